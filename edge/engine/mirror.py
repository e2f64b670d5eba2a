"""The mirror: an Oxigraph store that follows the live graph and evaluates all of SPARQL 1.1 on it.

It is told every change set, and brought up to date, with the net change only, when somebody asks. There are two: one
for the writer, which can also see the uncommitted state of the update that is running, and one for the readers, which
sees what is committed. So a query never waits for an update, and no lock is shared between them. Only the very first
one needs the whole live graph: it waits for the update that is being executed, if there is one, but never for the disk.

Oxigraph's in-memory store is three to six times faster here than its disk store, but never frees what is overwritten.
So the mirror counts what it has overwritten and is copied into a new store when that is more than it holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pyoxigraph as ox

from edge.engine.atomic import GraphName, apply_atomically
from edge.engine.changes import NO_CHANGE, ChangeSet, Statement, as_quad

T = TypeVar("T")

Source = Callable[[], tuple[Iterable[ox.Quad], Iterable[GraphName]]]
"""Gives the whole live graph, for the first filling."""

Ahead = Callable[[], Sequence[ChangeSet]]
"""Gives what that graph has, in order, and the mirror is not to show before it is noted."""

MIN_GARBAGE = 20_000
"""Overwritten quads that are never worth a copy."""


class Mirror:
    """Follows the live graph from its first use on; before that it costs nothing."""

    def __init__(self, source: Source, writing: threading.RLock, *, shared: bool, ahead: Ahead = tuple) -> None:
        """`writing` is held by whoever changes the live graph and notes the change, and by the first filling.

        `shared`: several threads read it. It then moves in one transaction, at about twice the cost: a query that
        begins while another brings the mirror up to date must not see half of an update.
        """
        self._shared = shared
        self._source = source
        self._ahead = ahead
        self._writing = writing
        self._lock = threading.Lock()
        self._store: ox.Store | None = None
        self._copies: list[ox.Store] = []
        self._quads: dict[Statement, bool] = {}
        self._graphs: dict[GraphName, bool] = {}
        self._size = 0
        self._garbage = 0
        self._staged = NO_CHANGE

    def note(self, changes: ChangeSet) -> None:
        """Remember a change of the live graph, instead of what is staged.

        Costs a few dictionary entries, and nothing before the first use.
        """
        if self._store is None:
            return
        with self._lock:
            self._fold(self._staged.inverse())
            self._fold(changes)
            self._staged = NO_CHANGE

    def stage(self, changes: ChangeSet) -> None:
        """Show an uncommitted change set, in place of the one staged before. The writer's mirror only."""
        with self._lock:
            self._fold(self._staged.inverse())
            self._fold(changes)
            self._staged = changes

    def open(self) -> ox.Store:
        """The store, in the state of all that was noted. Results that are being read keep the state they began with."""
        with self._lock:
            if self._store is not None:
                return self._apply(self._store)
        with self._writing, self._lock:
            if self._store is None:
                self._fill()
            return self._apply(self._store)  # type: ignore[arg-type]

    @contextmanager
    def held(self) -> Iterator[ox.Store]:
        """The store, likewise; nobody moves it meanwhile."""
        self.open()
        with self._lock:
            assert self._store is not None  # noqa: S101
            yield self._store

    def open_many(self, wanted: int, kept: int) -> list[ox.Store]:
        """So many stores in that state; of those there are, `kept` stay. The writer's mirror only.

        Two threads that read one Oxigraph store at once cost each other as much time as they save: it counts in memory
        who looks at a quad, and their processors pass these counts to and fro. With a store each they do not.
        """
        store = self.open()
        with self._lock:
            del self._copies[kept - 1 :]
            while len(self._copies) < wanted - 1:
                self._copies.append(_copy(store))
            return [store, *self._copies[: wanted - 1]]

    def _fold(self, changes: ChangeSet) -> None:
        added, removed = changes.statements
        _net(self._quads, removed, present=False)
        _net(self._quads, added, present=True)
        _net(self._graphs, changes.dropped, present=False)
        _net(self._graphs, changes.created, present=True)

    def _fill(self) -> None:
        quads, graphs = self._source()
        store = ox.Store()
        store.bulk_extend(quads)
        for name in graphs:
            store.add_graph(name)
        self._store, self._size, self._garbage = store, len(store), 0
        for changes in reversed(self._ahead()):
            self._fold(changes.inverse())

    def _apply(self, store: ox.Store) -> ox.Store:
        if not self._quads and not self._graphs:
            return store
        added = [as_quad(statement) for statement, present in self._quads.items() if present]
        removed = [as_quad(statement) for statement, present in self._quads.items() if not present]
        if self._shared:
            apply_atomically(store, removed, added, self._graphs)
        else:
            for each in (store, *self._copies):
                _apply_in_steps(each, removed, added, self._graphs)
        self._garbage += len(self._quads) - len(added)
        self._size += 2 * len(added) - len(self._quads)
        self._quads.clear()
        self._graphs.clear()
        if self._garbage > max(MIN_GARBAGE, self._size):
            store = self._store = _copy(store)
            self._copies.clear()
            self._garbage = 0
        return store


def _apply_in_steps(
    store: ox.Store, removed: Iterable[ox.Quad], added: Iterable[ox.Quad], graphs: Mapping[GraphName, bool]
) -> None:
    for quad in removed:
        store.remove(quad)
    for name, present in graphs.items():
        if present:
            store.add_graph(name)
        else:
            store.remove_graph(name)
    store.extend(added)


def _net(pending: dict[T, bool], items: Iterable[T], *, present: bool) -> None:
    """Note what came or went. What cancels a change that is still pending takes that away instead."""
    for item in items:
        if pending.pop(item, present) == present:
            pending[item] = present


def _copy(old: ox.Store) -> ox.Store:
    store = ox.Store()
    store.bulk_extend(old)
    for name in old.named_graphs():
        store.add_graph(name)
    return store
