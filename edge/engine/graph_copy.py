"""Copy the live graph in small pieces while updates change it.

The copy is exact although no lock is held from its first piece to its last. Two facts make it so:

- A quad that is there before each piece stands in one of the pieces (`LiveGraph.walk`).
- For a quad that an update adds or removes, the copy remembers the last state. That state overrides whatever the pieces
  say, so it does not matter whether the update came before or after the piece that could have held the quad.

The caller must hold the lock of the live graph during every call, and report every change in order.
"""

from __future__ import annotations

from itertools import islice

from edge.engine.atomic import GraphName
from edge.engine.changes import NO_CHANGE, ChangeSet, Statement
from edge.engine.graph import LiveGraph


class GraphCopy:
    """A copy in progress: pieces of the graph, then the changes that were made meanwhile."""

    def __init__(self, graph: LiveGraph) -> None:
        self.named_graphs = graph.named_graphs()
        """Named graphs at the start. Needed because a named graph can be empty."""
        self._walk = graph.walk()
        self._quads: dict[Statement, bool] = {}
        self._graphs: dict[GraphName, bool] = {}

    def take(self, size: int) -> list[Statement]:
        """Return the next quads, at most `size`; an empty list when all were returned."""
        return list(islice(self._walk, size))

    def note(self, changes: ChangeSet) -> None:
        """Remember the state of everything that a change touched."""
        added, removed = changes.statements
        self._quads.update(dict.fromkeys(removed, False))
        self._quads.update(dict.fromkeys(added, True))
        self._graphs.update(dict.fromkeys(changes.dropped, False))
        self._graphs.update(dict.fromkeys(changes.created, True))

    def take_changes(self) -> ChangeSet:
        """Return the remembered states as a change set, and forget them.

        To be applied after all pieces. Adding a quad that is there, or removing one that is not, must have no effect.
        """
        quads, graphs = self._quads, self._graphs
        if not quads and not graphs:
            return NO_CHANGE
        self._quads, self._graphs = {}, {}
        return ChangeSet(
            [statement for statement, present in quads.items() if present],
            [statement for statement, present in quads.items() if not present],
            [name for name, present in graphs.items() if present],
            [name for name, present in graphs.items() if not present],
        )
