"""The look-up triples table: which entries a changed quad can concern, at a cost that misses do not add to.

The paper gives each subscription a table of its own and walks all of them (SPS Architecture, section V). Here one
index serves all: a pattern with its variables taken out is a key, and a changed quad asks once for each set of bound
positions that is in use, sixteen at the most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from operator import contains, itemgetter
from typing import Generic, TypeVar

from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph, Quad
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

    def key(self, graph: LiveGraph) -> Key:
        """The pattern as ids."""
        intern = graph.dictionary.intern
        return (
            None if self.subject is None else intern(self.subject),
            None if self.predicate is None else intern(self.predicate),
            None if self.object is None else intern(self.object),
            DEFAULT_GRAPH if self.default_graph else None if self.graph is None else intern(self.graph),
        )


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the result of a query can change with."""

    watches: tuple[Watch, ...]
    graph_names: bool
    """Whether it changes when a named graph begins or ceases to exist."""


EVERYTHING = Dependencies((Watch(),), graph_names=True)

Key = tuple[int | None, int | None, int | None, int | None]
"""A quad pattern; None matches anything."""

_Positions = tuple[int, ...]
_Entries = dict[T, int]
_Table = tuple[Callable[[Quad], object], dict[object, T | _Entries[T]]]

Ids = tuple[Set[int], Set[int], Set[int], Set[int]]
"""Subjects, predicates, objects and graphs."""


class Lutt(Generic[T]):
    """Entries under the patterns that they watch."""

    def __init__(self, graph: LiveGraph) -> None:
        self.graph = graph
        """Whose ids the patterns are made of."""
        self._tables: dict[_Positions, _Table[T]] = {}
        """Bound positions -> what picks them, and: what is bound there -> the entry, or several with counts."""

    def __bool__(self) -> bool:
        return bool(self._tables)

    def __len__(self) -> int:
        """How many different patterns are watched."""
        return sum(len(table) for _, table in self._tables.values())

    def add(self, key: Key, entry: T) -> None:
        """Register an entry under a pattern; twice if it is there already."""
        positions = _bound(key)
        for position in positions:
            self.graph.dictionary.retain(key[position])  # type: ignore[arg-type]
        pick, table = self._tables.setdefault(positions, (_picker(positions), {}))
        bound = pick(key)  # type: ignore[arg-type]
        there = table.get(bound)
        if there is None:
            table[bound] = entry  # most patterns have one: a dictionary for each would cost 200 bytes
        elif isinstance(there, dict):
            there[entry] = there.get(entry, 0) + 1
        else:
            table[bound] = {there: 2} if there == entry else {there: 1, entry: 1}

    def remove(self, key: Key, entry: T) -> None:
        """Take an entry out as often as it was put in."""
        positions = _bound(key)
        pick, table = self._tables[positions]
        bound = pick(key)  # type: ignore[arg-type]
        there = table[bound]
        if isinstance(there, dict):
            there[entry] -= 1
            if not there[entry]:
                del there[entry]
        if not isinstance(there, dict) or not there:
            del table[bound]
            if not table:
                del self._tables[positions]
        for position in positions:
            self.graph.dictionary.release(key[position])  # type: ignore[arg-type]

    def hits(self, quads: Mapping[Quad, bool], ids: Ids | None = None) -> dict[T, list[tuple[Quad, bool]]]:
        """The entries under the patterns that quads match, each with what it matched, in a stable order.

        `ids`: all subjects, predicates, objects and graphs of the quads, and perhaps some more. Tables that share
        nothing with them are passed over, where that is found out in less time than each quad takes to be looked up.
        """
        if ids is not None:
            return self._hits_of_many(quads, ids)
        return self._hits(quads, self._tables.values())

    def _hits_of_many(self, quads: Mapping[Quad, bool], ids: Ids) -> dict[T, list[tuple[Quad, bool]]]:
        concerned = []
        for positions, (pick, table) in self._tables.items():
            if len(table) < len(quads) and len(positions) > 0:
                columns = [ids[position] for position in positions]
                if len(positions) == 1:
                    met = any(bound in columns[0] for bound in table)
                else:
                    met = any(all(map(contains, columns, bound)) for bound in table)  # type: ignore[call-overload]
                if not met:
                    continue
            concerned.append((pick, table))
        return self._hits(quads, concerned)

    def _hits(self, quads: Mapping[Quad, bool], tables: Collection[_Table[T]]) -> dict[T, list[tuple[Quad, bool]]]:
        found: dict[T, list[tuple[Quad, bool]]] = {}
        if not tables:
            return found
        for change in quads.items():
            quad = change[0]
            for pick, table in tables:
                there = table.get(pick(quad))
                if there is None:
                    continue
                for entry in there if isinstance(there, dict) else (there,):
                    known = found.get(entry)
                    if known is None:
                        found[entry] = [change]
                    else:
                        known.append(change)
        return found


def _picker(positions: _Positions) -> Callable[[Quad], object]:
    """What takes the bound positions out of a quad."""
    return itemgetter(*positions) if positions else lambda quad: None


def _bound(key: Key) -> _Positions:
    """The positions that are bound."""
    return tuple(position for position, term_id in enumerate(key) if term_id is not None)
