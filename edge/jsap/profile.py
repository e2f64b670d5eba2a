"""A profile: named updates and queries, each with its forced bindings, its graphs and where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Literal

from edge.jsap.bindings import ForcedBinding, Value
from edge.jsap.mappings import SemanticMapping
from edge.jsap.targets import Sparql11Target, SubscribeTarget


@dataclass(frozen=True, slots=True)
class Graphs:
    """The dataset of a request: `using-graph-uri`, `using-named-graph-uri` of an update, `default-` and `named-` of a
    query. None: the request names none.
    """

    default: tuple[str, ...] | None = None
    named: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Entry:
    """One update or query of a profile (Listing 15), ready to be sent."""

    name: str
    kind: Literal["update", "query"]
    forced: Mapping[str, ForcedBinding]
    """By variable name, without question mark."""
    graphs: Graphs
    sparql11: Sparql11Target
    """Where the update or query is sent."""
    sparql11se: SubscribeTarget
    """Where a query is subscribed to."""

    def text(self, bindings: Mapping[str, Value] | None = None) -> str:
        """The SPARQL with these values, and defaults for the others, in the places of the forced variables.

        It has PREFIX lines for what it uses and does not declare. Raises `BindingError` for a missing, unknown or
        unfit value.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Profile:
    """An application: all its updates and queries."""

    name: str
    updates: Mapping[str, Entry]
    queries: Mapping[str, Entry]
    extended: Mapping[str, object]
    """Application data of the profile's own, as JSON has it: objects are dicts, numbers int or float."""
    namespaces: Mapping[str, str]
    """Prefix to IRI."""

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Profile:
        """The profile of a file, JSON or YAML, with what it includes. Everything is checked.

        Raises `ProfileError` with all that is wrong, `OSError` where the file cannot be read.
        """
        raise NotImplementedError

    @classmethod
    def parse(cls, text: str, name: str = "profile.jsap") -> Profile:
        """The same from a text. `name` is what messages call it; what it includes is looked for beside `name`."""
        raise NotImplementedError

    def update(self, name: str) -> Entry:
        """The update of this name. Raises `UnknownEntry`."""
        raise NotImplementedError

    def query(self, name: str) -> Entry:
        """The query of this name. Raises `UnknownEntry`."""
        raise NotImplementedError

    def semantic_mappings(self) -> tuple[SemanticMapping, ...]:
        """`extended.semantic-mappings` (Listing 17): which topics belong to which observations."""
        raise NotImplementedError
