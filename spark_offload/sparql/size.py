"""Size of a translated query, which decides how long Spark plans it. Planning cannot be cancelled."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from spark_offload.sparql import relational

_COUNTED = (
    relational.TriplePattern,
    relational.TransitiveClosure,
    relational.InnerJoin,
    relational.LeftOuterJoin,
    relational.UnionAll,
    relational.AntiJoin,
    relational.ExistsTest,
)


def size(query: relational.TranslatedQuery) -> int:
    """Return the number of triple patterns, joins, unions, paths and EXISTS of a query."""
    found = 0
    todo: list[object] = [query.pattern]
    while todo:
        part = todo.pop()
        found += isinstance(part, _COUNTED)
        if is_dataclass(part) and not isinstance(part, relational.InlineRows):
            todo += (getattr(part, each.name) for each in fields(part))
        elif isinstance(part, tuple):
            todo += part
    return found
