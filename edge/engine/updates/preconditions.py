"""Preconditions of updates: compare and write in one step of the writer.

A gate reads a graph before it knows whether a condition holds, such as an entity tag of HTTP. It begins a watch of the
graph, then reads it, then sends the update with the watch as its condition. The writer marks the watches of the graphs
that an update changes, whoever sent it, and refuses an update whose watch is marked.
"""

from __future__ import annotations

import weakref

import pyoxigraph as ox

from edge.engine.requests import GraphWatch, Precondition
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.transaction import Transaction
from edge.protocol.errors import PreconditionFailed


class Preconditions:
    """The watches of one live graph. All methods run on the writer's thread."""

    def __init__(self, graph: LiveGraph) -> None:
        self._graph = graph
        self.watches: list[weakref.ref[GraphWatch]] = []
        """Weak references: a watch ends with its request, even if its client disconnects. While there are any, `note`
        must be called for each change of the graph.
        """

    def watch(self, graph: str) -> GraphWatch:
        """Begin to watch a graph. No transaction may be uncommitted.

        Then a query that begins later reads the present state of the graph, or a later one.
        """
        watch = GraphWatch(graph)
        self.watches = [each for each in self.watches if each() is not None]
        self.watches.append(weakref.ref(watch))
        return watch

    def check(self, condition: Precondition) -> None:
        """Raise `PreconditionFailed` if a condition does not hold."""
        if condition.exists is not None and condition.graph:
            exists = self._graph.intern_graph(ox.NamedNode(condition.graph)) in self._graph.graphs
            if exists is not condition.exists:
                state = "exists already" if exists else "does not exist"
                raise PreconditionFailed(f"The graph <{condition.graph}> {state}; nothing was changed")
        if condition.watch is not None and condition.watch.changed:
            raise PreconditionFailed("The graph has changed since it was read; nothing was changed")

    def note(self, transaction: Transaction) -> None:
        """Mark the watches of the graphs that a transaction has changed, created or dropped."""
        self.watches = [each for each in self.watches if each() is not None]
        if not self.watches:
            return
        ids = {quad[3] for quad in transaction.quads} if transaction.ids is None else set(transaction.ids[3])
        names = {self._name(each) for each in ids | transaction.graphs.keys()}
        for each in self.watches:
            watch = each()
            if watch is not None and watch.graph in names:
                watch.changed = True

    def _name(self, graph: int) -> str:
        return "" if graph == DEFAULT_GRAPH else getattr(self._graph.decode_graph(graph), "value", "")
