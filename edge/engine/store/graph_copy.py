"""Copy the live graph in small pieces while updates change it.

The copy is exact although no lock is held from its first piece to its last. Two facts make it so:

- A quad that is there before each piece stands in one of the pieces (`LiveGraph.walk`).
- For a quad that an update adds or removes, the copy remembers the last state. That state overrides whatever the pieces
  say, so it does not matter whether the update came before or after the piece that could have held the quad.

The caller must hold the lock of the live graph during every call, and report every change in order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from edge.engine.store.changes import NO_CHANGE, ChangeSet, Statement
from edge.engine.store.deferred_changes import LARGE, DeferredChanges
from edge.engine.store.graph import LiveGraph
from edge.engine.store.oxigraph_transaction import GraphName


class GraphCopy:
    """A copy in progress: pieces of the graph, then the changes that were made meanwhile."""

    def __init__(self, graph: LiveGraph) -> None:
        self.named_graphs = graph.named_graphs()
        """Named graphs at the start. Needed because a named graph can be empty."""
        self._walk = graph.walk()
        self._quads: dict[Statement, bool] = {}
        self._graphs: dict[GraphName, bool] = {}
        self._deferred = DeferredChanges()
        """Changes that are not in `_quads` yet."""

    def take(self, size: int) -> list[Statement]:
        """Return the next quads, at most `size`; an empty list when all were returned."""
        return list(islice(self._walk, size))

    def note(self, changes: ChangeSet) -> None:
        """Remember the state of everything that a change touched."""
        if self._deferred.defers(changes):
            self._deferred.put(changes)
        else:
            added, removed = changes.statements
            self._quads.update(dict.fromkeys(removed, False))
            self._quads.update(dict.fromkeys(added, True))
        self._graphs.update(dict.fromkeys(changes.dropped, False))
        self._graphs.update(dict.fromkeys(changes.created, True))

    @property
    def untidy(self) -> bool:
        """Whether large changes still wait for `tidy`."""
        return bool(self._deferred)

    def tidy(self) -> None:
        """Process one piece of the large changes."""
        self._quads.update(self._deferred.take(LARGE))

    def behind(self, most: int) -> bool:
        """Return whether at least `most` states are remembered."""
        return bool(self._deferred) or len(self._quads) + len(self._graphs) >= most

    def take_changes(self) -> ChangeSet:
        """Return the remembered states as a change set, and forget them.

        To be applied after all pieces. Adding a quad that is there, or removing one that is not, must have no effect.
        """
        return self.detach_changes()()

    def detach_changes(self) -> Callable[[], ChangeSet]:
        """Detach the remembered states. Returns a function that makes the change set and needs no lock."""
        quads, graphs, deferred = self._quads, self._graphs, self._deferred
        self._quads, self._graphs, self._deferred = {}, {}, DeferredChanges()

        def make() -> ChangeSet:
            quads.update(deferred.take())
            if not quads and not graphs:
                return NO_CHANGE
            return ChangeSet(
                [statement for statement, present in quads.items() if present],
                [statement for statement, present in quads.items() if not present],
                [name for name, present in graphs.items() if present],
                [name for name, present in graphs.items() if not present],
            )

        return make
