"""The look-up triples table: which SPUs a changed quad can concern, at a cost that misses do not add to.

The paper gives each subscription a table of its own and walks all of them (SPS Architecture, section V). Here one
index serves all: a pattern with its variables taken out is a key, and a changed quad asks once for each set of bound
positions that is in use, sixteen at the most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from edge.engine.graph import DEFAULT_GRAPH, LiveGraph, Quad
from edge.protocol.results import Term

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Watch:
    """A quad pattern that a subscription depends on; None matches anything."""

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    graph: Term | None = None
    default_graph: bool = False
    """Only the default graph; `graph` is None then."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the result of a query can change with."""

    watches: tuple[Watch, ...]
    graph_names: bool
    """Whether it changes when a named graph begins or ceases to exist."""


EVERYTHING = Dependencies((Watch(),), graph_names=True)

Key = tuple[int | None, int | None, int | None, int | None]


class Lutt(Generic[T]):
    """Entries under the patterns that they watch."""

    def __init__(self, graph: LiveGraph) -> None:
        self._graph = graph
        self._tables: dict[tuple[bool, bool, bool, bool], dict[Key, dict[T, int]]] = {}

    def __len__(self) -> int:
        """How many different patterns are watched."""
        return sum(len(table) for table in self._tables.values())

    def add(self, watches: Iterable[Watch], entry: T) -> list[Key]:
        """Register an entry. Returns its keys, which `remove` takes."""
        keys = [self._key(watch) for watch in watches]
        for key in keys:
            for term_id in key:
                if term_id is not None:
                    self._graph.dictionary.retain(term_id)
            entries = self._tables.setdefault(_mask(key), {}).setdefault(key, {})
            entries[entry] = entries.get(entry, 0) + 1
        return keys

    def remove(self, keys: Iterable[Key], entry: T) -> None:
        """Take an entry out again."""
        for key in keys:
            mask = _mask(key)
            entries = self._tables[mask][key]
            entries[entry] -= 1
            if not entries[entry]:
                del entries[entry]
            if not entries:
                del self._tables[mask][key]
            if not self._tables[mask]:
                del self._tables[mask]
            for term_id in key:
                if term_id is not None:
                    self._graph.dictionary.release(term_id)

    def hits(self, quads: Iterable[Quad]) -> dict[T, None]:
        """The entries that any of the quads concerns, in a stable order."""
        found: dict[T, None] = {}
        for s, p, o, g in quads:
            for (has_s, has_p, has_o, has_g), table in self._tables.items():
                key = (s if has_s else None, p if has_p else None, o if has_o else None, g if has_g else None)
                entries = table.get(key)
                if entries is not None:
                    found.update(dict.fromkeys(entries))
        return found

    def _key(self, watch: Watch) -> Key:
        intern = self._graph.dictionary.intern
        graph = DEFAULT_GRAPH if watch.default_graph else None if watch.graph is None else intern(watch.graph)
        return (
            None if watch.subject is None else intern(watch.subject),
            None if watch.predicate is None else intern(watch.predicate),
            None if watch.object is None else intern(watch.object),
            graph,
        )


def _mask(key: Key) -> tuple[bool, bool, bool, bool]:
    s, p, o, g = key
    return s is not None, p is not None, o is not None, g is not None
