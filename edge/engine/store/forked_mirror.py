"""The mirror in a forked process: the store as it was at the fork, moved by what the process itself does.

It takes no lock: a thread of the parent may have held it at the fork.
"""

from __future__ import annotations

import pyoxigraph as ox

from edge.engine.store.changes import NO_CHANGE, ChangeSet


class ForkedMirror:
    """Has the part of a `Mirror` that an update needs."""

    ready = True

    def __init__(self, store: ox.Store | None) -> None:
        """`store`: None where no update needs it."""
        self._store = store
        self._staged = NO_CHANGE

    def note(self, changes: ChangeSet) -> None:
        """Show a change of the live graph, instead of what is staged."""
        self.stage(changes)
        self._staged = NO_CHANGE

    def stage(self, changes: ChangeSet) -> None:
        """Show an uncommitted change set, in place of the one staged before."""
        if self._store is not None:
            for each in (self._staged.inverse(), changes):
                self._apply(self._store, each)
        self._staged = changes

    def open(self) -> ox.Store:
        """The store."""
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
