"""The mirror in a forked process: the store as of the fork, plus the changes that the process itself makes.

It takes no lock, because a thread of the parent may have held the lock at the fork.
"""

from __future__ import annotations

import pyoxigraph as ox

from edge.engine.store.changes import NO_CHANGE, ChangeSet


class ForkedMirror:
    """The subset of `Mirror` that an update needs."""

    ready = True

    def __init__(self, store: ox.Store | None) -> None:
        """`store`: None if no update needs the mirror."""
        self._store = store
        self._staged = NO_CHANGE

    def note(self, changes: ChangeSet) -> None:
        """Apply a change of the live graph, in place of the staged one."""
        self.stage(changes)
        self._staged = NO_CHANGE

    def stage(self, changes: ChangeSet) -> None:
        """Apply an uncommitted change set, in place of the one staged before."""
        if self._store is not None:
            # Oxigraph has no transactions in Python, so the staged change is undone by its inverse.
            for each in (self._staged.inverse(), changes):
                self._apply(self._store, each)
        self._staged = changes

    def open(self) -> ox.Store:
        """Return the store."""
        assert self._store is not None, "no update needs it"  # noqa: S101
        return self._store

    @staticmethod
    def _apply(store: ox.Store, changes: ChangeSet) -> None:
        for quad in changes.removed:
            store.remove(quad)
        for name in changes.created:
            store.add_graph(name)
        store.extend(changes.added)
        for name in changes.dropped:
            store.remove_graph(name)
