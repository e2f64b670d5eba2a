"""Settings with values that an operator cannot choose, such as a limit that few requests reach."""

from typing import Any, TypeVar

from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.settings import EngineSettings
from edge.section import Section

SomeSection = TypeVar("SomeSection", bound=Section)


def unchecked(kind: type[SomeSection], **values: Any) -> SomeSection:
    """Return a section of these values, which may be out of bounds, and of the defaults of its other keys."""
    assert values.keys() <= kind.model_fields.keys()
    return kind.model_construct(**values)


def query_rules(**values: Any) -> QueryRules:
    """Return the rules of queries with these settings of the engine, which may be out of bounds."""
    return QueryRules(unchecked(EngineSettings, **values))
