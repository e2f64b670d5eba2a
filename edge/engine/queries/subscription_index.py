"""Look-up triples table (LUTT): finds the entries that a changed quad can affect.

The paper gives each subscription its own table and scans all tables (SPS Architecture, section V). Here one index
serves all subscriptions. Its keys are the bound positions of the watched patterns. A changed quad needs one lookup for
each combination of bound positions in use, at most sixteen, however many patterns do not match.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from operator import contains, itemgetter
from typing import Generic, TypeVar

from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.triple_index import Quad
from edge.protocol.results import Term

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Watch:
    """A quad pattern on which a subscription depends. None matches any term."""

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    graph: Term | None = None
    default_graph: bool = False
    """Match only in the default graph; `graph` is then None."""

    def key(self, graph: LiveGraph) -> Key:
        """Return the pattern as term ids."""
        intern = graph.dictionary.intern
        return (
            None if self.subject is None else intern(self.subject),
            None if self.predicate is None else intern(self.predicate),
            None if self.object is None else intern(self.object),
            DEFAULT_GRAPH if self.default_graph else None if self.graph is None else intern(self.graph),
        )


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Conditions under which the result of a query can change."""

    watches: tuple[Watch, ...]
    graph_names: bool
    """Whether the result can change when a named graph is created or disappears."""


EVERYTHING = Dependencies((Watch(),), graph_names=True)

Key = tuple[int | None, int | None, int | None, int | None]
"""A quad pattern as term ids. None matches any term."""

_Positions = tuple[int, ...]
_Entries = dict[T, int]
_Table = tuple[Callable[[Quad], object], dict[object, T | _Entries[T]]]

Ids = tuple[Set[int], Set[int], Set[int], Set[int]]
"""Sets of subjects, predicates, objects and graphs."""


class SubscriptionIndex(Generic[T]):
    """Index from watched patterns to entries."""

    def __init__(self, graph: LiveGraph) -> None:
        self.graph = graph
        """The graph whose dictionary assigns the term ids of the patterns."""
        self._tables: dict[_Positions, _Table[T]] = {}
        """Bound positions -> a function that extracts them, and a map from bound ids to one entry or to counts."""

    def __bool__(self) -> bool:
        return bool(self._tables)

    def __len__(self) -> int:
        """Number of different patterns."""
        return sum(len(table) for _, table in self._tables.values())

    def add(self, key: Key, entry: T) -> None:
        """Register an entry under a pattern. Each registration counts."""
        positions = _bound(key)
        # The index holds ids across commits, so their terms must stay in the dictionary.
        for position in positions:
            self.graph.dictionary.retain(key[position])  # type: ignore[arg-type]
        pick, table = self._tables.setdefault(positions, (_picker(positions), {}))
        bound = pick(key)  # type: ignore[arg-type]
        there = table.get(bound)
        if there is None:
            table[bound] = entry  # most patterns have one entry; a dictionary for each would cost 200 bytes
        elif isinstance(there, dict):
            there[entry] = there.get(entry, 0) + 1
        else:
            table[bound] = {there: 2} if there == entry else {there: 1, entry: 1}

    def remove(self, key: Key, entry: T) -> None:
        """Undo one registration of an entry. The entry leaves the index with its last registration."""
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
        """Return the entries whose patterns match the quads, each with its matches, in a stable order.

        `ids`: all subjects, predicates, objects and graphs of the quads (a superset is allowed). With it, the index
        skips tables without a common id, where this check takes less time than a lookup of each quad.
        """
        if ids is not None:
            return self._hits_of_many(quads, ids)
        return self._hits(quads, self._tables.values())

    def _hits_of_many(self, quads: Mapping[Quad, bool], ids: Ids) -> dict[T, list[tuple[Quad, bool]]]:
        concerned = []
        for positions, (pick, table) in self._tables.items():
            # The check scans the table, so it pays only if the table is smaller than the change.
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
    """Return a function that extracts the bound positions of a quad."""
    return itemgetter(*positions) if positions else lambda quad: None


def _bound(key: Key) -> _Positions:
    """Return the bound positions of a pattern."""
    return tuple(position for position, term_id in enumerate(key) if term_id is not None)
