"""The mirror: an Oxigraph store that follows the live graph and evaluates all of SPARQL 1.1 on it.

It receives every change set, and is brought up to date, with the net change only, when a query needs it. There are two:
one for the writer, which can also see the uncommitted state of the update that is running, and one for the readers,
which sees what is committed. So a query never waits for an update, and no lock is shared between them.

A mirror costs nothing before its first use. Then it is filled in pieces of some hundred quads (`GraphCopy`). Updates
go on between two pieces. The thread that needs the mirror fills it; `prepare` does so on a thread in the background.

Oxigraph's in-memory store is three to six times faster here than its disk store, but never frees what is overwritten.
So the mirror counts overwritten quads. When they outnumber its quads, it fills a new store in the background, likewise
in pieces, and uses the old one until that is complete.

Locks are taken in this order: `writing` (the live graph), `_filling` (the store that is filled), `_noting`.
`_moving` (the store that is read) is never waited for by a thread that holds one of the others, except by the thread
that opens the writer's mirror.
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
"""Gives what that graph has, in order, and the mirror is not to show before it is noted."""

MIN_GARBAGE = 20_000
"""Overwritten quads that never justify a new store."""

PIECE = 500
"""Quads that are copied at a time. Updates wait for one piece, about a millisecond."""


_MOVING_WAIT: Final = 0.001
"""Seconds. Updates wait meanwhile, and a thread that has `_moving` may wait for nothing that updates have."""


class Mirror:
    """Follows the live graph from its first use on; before that it costs nothing."""

    def __init__(self, graph: LiveGraph, writing: threading.RLock, *, shared: bool, ahead: Ahead = tuple) -> None:
        """`writing` is held by whoever changes the live graph and notes the change, and while a piece is copied.

        `shared`: several threads read it. It then moves in one transaction, at about twice the cost: a query that
        begins while another brings the mirror up to date must not see half of an update.
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
        """What is not in `_quads` yet."""
        self._staged = NO_CHANGE
        self._size = 0
        self._garbage = 0
        self._copy: GraphCopy | None = None
        self._draft = ox.Store()
        """The store that is filled from `_copy`."""
        self._hidden: Sequence[ChangeSet] = ()
        """Uncommitted changes that were taken out of it."""
        self._renewing = False
        self._closed = False
        self._filler: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        """Whether `open` can return without filling the mirror first."""
        return self._store is not None

    def note(self, changes: ChangeSet) -> None:
        """Remember a change of the live graph, instead of what is staged. The caller holds `writing`.

        Costs a few dictionary entries, and nothing before the first use.
        """
        self._replace_staged(changes)
        self._staged = NO_CHANGE

    @property
    def untidy(self) -> bool:
        """Whether large changes that were noted are to be taken in."""
        copy = self._copy
        return bool(self._deferred) or (copy is not None and copy.untidy)

    def tidy(self) -> None:
        """Take in a piece of them. The writer does so between two requests."""
        if self.untidy:
            copy = self._copy
            with self._noting:
                _net(self._quads, self._deferred.take(LARGE))
                if copy is not None:
                    copy.tidy()

    def stage(self, changes: ChangeSet) -> None:
        """Show an uncommitted change set, in place of the one staged before. The writer's mirror only."""
        self._replace_staged(changes)
        self._staged = changes

    def note_undone(self, changes: ChangeSet) -> None:
        """Note that changes that were never noted are undone: a piece may have been copied while they were there."""
        if self._copy is not None:
            with self._noting:
                self._copy.note(changes.inverse())

    def prepare(self) -> None:
        """Fill the mirror in the background, unless it is filled or that has begun. Returns at once."""
        if self._store is None:
            self._fill_behind()

    def fill(self) -> None:
        """Fill the mirror on this thread, which must not be the writer's. Raises `NotReady` if it is closed."""
        while self._store is None:
            if self._closed:
                raise NotReady("The gateway is stopping; try again when it is back")
            self.fill_step()

    def close(self) -> None:
        """Stop filling in the background."""
        self._closed = True

    def open(self) -> ox.Store:
        """The store, in the state of all that was noted. Results that are being read keep the state they began with.

        The first time this takes about 6 microseconds a quad, during which other threads go on.
        """
        while (store := self._current()) is None:
            self.fill_step()
        return store

    @contextmanager
    def held(self) -> Iterator[ox.Store]:
        """The store, likewise; nobody moves it meanwhile."""
        self.open()
        with self._moving:
            assert self._store is not None  # noqa: S101
            yield self._store

    def fill_step(self) -> None:
        """Fill the mirror a bit further, where it has to be filled. Any thread."""
        with self._writing:
            if self._copy is None:
                if self._store is not None and not self._renewing:
                    return  # another thread has just filled it
                self._begin()
            self._filling.acquire()  # a thread that has it does not wait for `writing`
            copy = self._copy
            assert copy is not None  # noqa: S101  it changes with `writing` held only
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
        """What was changed since all pieces, or the last changes, were taken."""
        ahead = tuple(self._ahead())
        with self._noting:
            if len(ahead) != len(self._hidden) or any(a is not b for a, b in zip(ahead, self._hidden, strict=True)):
                for changes in reversed(ahead):
                    copy.note(changes.inverse())
                self._hidden = ahead
            return copy.take_changes()

    def _finish(self) -> None:
        """Use the store that was filled, unless the other one is being moved: then the next step tries again."""
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
        """Forget what was filled after an error (no memory): the next use begins again."""
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
        if self._store is None and self._copy is None:
            return
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
            _net(self._quads, zip(removed, repeat(False)))
            _net(self._quads, zip(added, repeat(True)))
        _net(self._graphs, zip(changes.dropped, repeat(False)))
        _net(self._graphs, zip(changes.created, repeat(True)))

    def _current(self) -> ox.Store | None:
        with self._moving:
            if self._store is None:
                return None
            try:
                self._apply(self._store)
            except BaseException:
                self._store = None  # it may have half of the changes
                raise
            return self._store

    def _apply(self, store: ox.Store) -> None:
        with self._noting:
            quads, graphs, deferred = self._quads, self._graphs, self._deferred
            if not quads and not graphs and not deferred:
                return
            self._quads, self._graphs, self._deferred = {}, {}, DeferredChanges()
        _net(quads, deferred.take())
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


def _net(pending: dict[T, bool], changes: Iterable[tuple[T, bool]]) -> None:
    """Note what came or went. What cancels a change that is still pending takes that away instead."""
    for item, present in changes:
        if pending.pop(item, present) == present:
            pending[item] = present
