"""The mirror: an Oxigraph store that follows the live graph and evaluates all of SPARQL 1.1 on it.

It receives every change set, but applies only the combined change, when a query needs it. There are two mirrors. The
writer's mirror can also show the uncommitted state of the running update. The readers' mirror shows committed data. So
a query never waits for an update, and the two share no lock.

A mirror costs nothing before its first use. Then it is filled in pieces of some hundred quads (`GraphCopy`). Updates
continue between two pieces. The thread that needs the mirror fills it; `prepare` fills it on a background thread.

Oxigraph's in-memory store is three to six times faster here than its disk store, but never frees overwritten quads. So
the mirror counts them. When they outnumber its live quads, it fills a new store in the background, also in pieces, and
uses the old store until the new one is complete.

Lock order: `writing` (the live graph), `_filling` (the store that is being filled), `_noting`. A thread that holds one
of these never waits for `_moving` (the store that is read), except the thread that opens the writer's mirror.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Final, TypeVar

import pyoxigraph as ox

from edge.engine.store.changes import NO_CHANGE, ChangeSet, Statement, as_quad
from edge.engine.store.deferred_changes import LARGE, DeferredChanges
from edge.engine.store.graph import LiveGraph
from edge.engine.store.graph_copy import GraphCopy
from edge.engine.store.oxigraph_transaction import GraphName, apply_atomically
from edge.protocol.errors import NotReady

T = TypeVar("T")

Ahead = Callable[[], Sequence[ChangeSet]]
"""Returns, in order, the change sets that the graph has but the mirror must not show before they are noted."""

MIN_GARBAGE = 20_000
"""Number of overwritten quads below which a new store is never worth its cost."""

PIECE = 500
"""Quads that are copied at a time. Updates wait for one piece, about a millisecond."""


_MOVING_WAIT: Final = 0.001
"""Seconds. Updates wait meanwhile, and a thread that holds `_moving` must not wait for a lock that updates hold."""


class Mirror:
    """Oxigraph store that follows the live graph from its first use on. Before that it costs nothing."""

    def __init__(self, graph: LiveGraph, writing: threading.RLock, *, shared: bool, ahead: Ahead = tuple) -> None:
        """`writing`: lock held during each change of the live graph and its `note`, and during the copy of a piece.

        `shared`: several threads read the mirror. It then applies changes in one transaction, at about twice the cost,
        so that a query that starts meanwhile does not see half of an update.
        """
        self._graph = graph
        self._shared = shared
        self._ahead = ahead
        self._writing = writing
        self._filling = threading.Lock()
        self._noting = threading.Lock()
        self._moving = threading.Lock()
        self._store: ox.Store | None = None
        self._quads: dict[Statement, bool] = {}
        self._graphs: dict[GraphName, bool] = {}
        self._deferred = DeferredChanges()
        """Changes that are not in `_quads` yet."""
        self._staged = NO_CHANGE
        self._size = 0
        self._garbage = 0
        self._copy: GraphCopy | None = None
        self._draft = ox.Store()
        """The store that is filled from `_copy`."""
        self._hidden: Sequence[ChangeSet] = ()
        """Uncommitted changes that were removed from the copy."""
        self._renewing = False
        self._closed = False
        self._filler: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        """Whether `open` can return without filling the mirror first."""
        return self._store is not None

    def note(self, changes: ChangeSet) -> None:
        """Remember a committed change, in place of the staged one. The caller holds `writing`.

        It costs a few dictionary entries, and nothing before the first use.
        """
        if self._store is not None or self._copy is not None:
            self._replace_staged(changes)
        self._staged = NO_CHANGE

    @property
    def untidy(self) -> bool:
        """Whether large changes still wait for `tidy`."""
        copy = self._copy
        return bool(self._deferred) or (copy is not None and copy.untidy)

    def tidy(self) -> None:
        """Process one piece of the large changes. The writer calls it between two requests."""
        if self.untidy:
            copy = self._copy
            with self._noting:
                _merge(self._quads, self._deferred.take(LARGE))
                if copy is not None:
                    copy.tidy()

    def stage(self, changes: ChangeSet) -> None:
        """Show an uncommitted change set, in place of the one staged before. Only for the writer's mirror."""
        if self._store is not None or self._copy is not None:
            self._replace_staged(changes)
        self._staged = changes

    def note_undone(self, changes: ChangeSet) -> None:
        """Note that changes were undone that were never noted.

        A piece may have been copied while the graph had them.
        """
        if self._copy is not None:
            with self._noting:
                self._copy.note(changes.inverse())

    def prepare(self) -> None:
        """Start to fill the mirror in the background, unless it is filled or being filled. Returns at once."""
        if self._store is None:
            self._fill_behind()

    def fill(self) -> None:
        """Fill the mirror on this thread, which must not be the writer thread. Raises `NotReady` if it is closed."""
        while self._store is None:
            if self._closed:
                raise NotReady("The gateway is stopping; try again when it is back")
            self.fill_step()

    def close(self) -> None:
        """Stop filling in the background."""
        self._closed = True

    def open(self) -> ox.Store:
        """Return the store, with all noted changes applied. Results that are being read keep their initial state.

        The first call takes about 6 microseconds a quad. Other threads continue meanwhile.
        """
        while (store := self._current()) is None:
            self.fill_step()
        return store

    @contextmanager
    def held(self) -> Iterator[ox.Store]:
        """Return the store as `open` does, and prevent changes of it until the context ends."""
        self.open()
        with self._moving:
            assert self._store is not None  # noqa: S101
            yield self._store

    def fill_step(self) -> None:
        """Fill the mirror by one piece, if it needs filling. Any thread may call it."""
        with self._writing:
            if self._copy is None:
                if self._store is not None and not self._renewing:
                    return  # another thread has just filled it
                self._begin()
            self._filling.acquire()  # a thread that holds it never waits for `writing`
            copy = self._copy
            assert copy is not None  # noqa: S101  it changes only while `writing` is held
            try:
                piece = copy.take(PIECE)
                changes = self._changes(copy) if not piece else NO_CHANGE
                if not piece and sum(changes.sizes) <= PIECE:
                    _apply_in_steps(self._draft, changes.removed, changes.added, _graph_states(changes))
                    self._finish()
                    changes = NO_CHANGE
            except BaseException:
                self._abandon()
                self._filling.release()
                raise
            draft = self._draft
        try:
            draft.extend([as_quad(statement) for statement in piece])
            if changes:
                _apply_in_steps(draft, changes.removed, changes.added, _graph_states(changes))
        except BaseException:
            self._abandon()
            raise
        finally:
            self._filling.release()

    def _begin(self) -> None:
        copy, self._draft = GraphCopy(self._graph), ox.Store()
        for name in copy.named_graphs:
            self._draft.add_graph(name)
        self._copy, self._hidden = copy, ()

    def _changes(self, copy: GraphCopy) -> ChangeSet:
        """Return the changes since all pieces, or the last changes, were taken."""
        ahead = tuple(self._ahead())
        with self._noting:
            # Compare by identity: equal change sets at different times are different uncommitted changes.
            if len(ahead) != len(self._hidden) or any(a is not b for a, b in zip(ahead, self._hidden, strict=True)):
                for changes in reversed(ahead):
                    copy.note(changes.inverse())
                self._hidden = ahead
            return copy.take_changes()

    def _finish(self) -> None:
        """Switch to the filled store. If the other store is being changed, the next step tries again."""
        if not self._moving.acquire(timeout=_MOVING_WAIT):
            return
        try:
            with self._noting:
                self._store, self._copy, self._draft = self._draft, None, ox.Store()
                self._quads, self._graphs, self._deferred = {}, {}, DeferredChanges()
            self._size, self._garbage = len(self._graph), 0
            self._renewing = False
        finally:
            self._moving.release()

    def _abandon(self) -> None:
        """Discard the partly filled store after an error (out of memory). The next use starts from the beginning."""
        self._copy, self._draft = None, ox.Store()

    def _fill_behind(self) -> None:
        if self._closed or (self._filler is not None and self._filler.is_alive()):
            return
        self._filler = threading.Thread(target=self._fill_all, name="mirror")
        self._filler.start()

    def _fill_all(self) -> None:
        while not self._closed and (self._store is None or self._renewing):
            self.fill_step()

    def _replace_staged(self, changes: ChangeSet) -> None:
        with self._noting:
            for each in (self._staged.inverse(), changes):
                if self._store is not None:
                    self._fold(each)
                if self._copy is not None:
                    self._copy.note(each)

    def _fold(self, changes: ChangeSet) -> None:
        if self._deferred.defers(changes):
            self._deferred.put(changes)
        else:
            added, removed = changes.statements
            _merge(self._quads, zip(removed, repeat(False)))
            _merge(self._quads, zip(added, repeat(True)))
        _merge(self._graphs, zip(changes.dropped, repeat(False)))
        _merge(self._graphs, zip(changes.created, repeat(True)))

    def _current(self) -> ox.Store | None:
        with self._moving:
            if self._store is None:
                return None
            try:
                self._apply(self._store)
            except BaseException:
                self._store = None  # it may have only half of the changes
                raise
            return self._store

    def _apply(self, store: ox.Store) -> None:
        # Detach the pending changes under the lock, and apply them without it.
        with self._noting:
            quads, graphs, deferred = self._quads, self._graphs, self._deferred
            if not quads and not graphs and not deferred:
                return
            self._quads, self._graphs, self._deferred = {}, {}, DeferredChanges()
        _merge(quads, deferred.take())
        added = [as_quad(statement) for statement, present in quads.items() if present]
        removed = [as_quad(statement) for statement, present in quads.items() if not present]
        if self._shared:
            apply_atomically(store, removed, added, graphs)
        else:
            _apply_in_steps(store, removed, added, graphs)
        self._garbage += len(removed)
        self._size += len(added) - len(removed)
        if self._garbage > max(MIN_GARBAGE, self._size):
            self._renewing = True
            self._fill_behind()


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


def _graph_states(changes: ChangeSet) -> dict[GraphName, bool]:
    return dict.fromkeys(changes.created, True) | dict.fromkeys(changes.dropped, False)


def _merge(pending: dict[T, bool], changes: Iterable[tuple[T, bool]]) -> None:
    """Combine changes with pending ones: a change that cancels a pending one removes it."""
    for item, present in changes:
        if pending.pop(item, present) == present:
            pending[item] = present
