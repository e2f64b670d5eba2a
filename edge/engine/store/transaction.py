"""Transaction: the combined changes of one update request, applied to the live graph and reversible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Final, NoReturn

from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.store.earlier_index import EarlierIndex
from edge.engine.store.graph import LiveGraph
from edge.engine.store.triple_index import Quad, TripleIndex
from edge.protocol.errors import Forbidden, ResultTooLarge, UpdateFailed

_GRAPH: Final = itemgetter(3)
"""The graph of a quad."""
_MAX_LEDGER_QUADS: Final = 20_000
"""Quads that one request may add to the ledger. The ledger inserts them at once, which takes about 0.15 s."""


class Transaction:
    """The combined changes of one request so far, applied to the live graph and reversible."""

    def __init__(self, graph: LiveGraph, writable: Collection[int] | None = None, ledger: int | None = None) -> None:
        """Begin without changes.

        `writable`: ids of the graphs that may be changed; None: all. `ledger`: id of the name that stands for the
        ledger.

        A caller that keeps a transaction while others change the graph must hold references to these ids.
        """
        self._graph = graph
        self.writable = writable
        self._ledger = ledger
        self.ledger_quads: dict[Quad, None] = {}
        """Quads that were added to the ledger."""
        # Only this class changes these two.
        self.quads: dict[Quad, bool] = {}
        """The combined change: True for an added quad, False for a removed one."""
        self.ids: tuple[Set[int], Set[int], Set[int], Set[int]] | None = None
        """Subjects, predicates, objects and graphs of the combined change, possibly more; None: not collected."""
        self.graphs: dict[int, bool] = {}
        """The named graphs that were created (True) or dropped (False)."""
        self._parts: Mapping[int, tuple[int, TripleIndex]] | None = None
        """Parts of a large change, by graph; None if the change is small or was made quad by quad."""

    def apply(self, removed: Iterable[Quad], added: Iterable[Quad]) -> None:
        """Remove existing quads, then add others, and create their graphs if needed."""
        graph, quads = self._graph, self.quads
        if self.writable is not None:
            removed, added = list(removed), list(added)
            for name in {quad[3] for quad in (*removed, *added)}:
                self.check(name)
        for quad in removed:
            # A quad that this transaction adds and removes again is not part of the combined change.
            if graph.remove(quad) and not quads.pop(quad, False):
                quads[quad] = False
        for name, group in groupby(added, key=_GRAPH):
            if name not in graph.graphs:
                if name == self._ledger:
                    for quad in group:
                        self.add_to_ledger(quad)
                    continue
                self.create(name)
            for quad in graph.insert(name, group):
                if quads.pop(quad, True):
                    quads[quad] = True

    def add(self, quad: Quad) -> None:
        """Add a quad to an existing graph that the client may change."""
        if self._graph.add(quad) and self.quads.pop(quad, True):
            self.quads[quad] = True

    def remove(self, quad: Quad) -> None:
        """Remove a quad from a graph that the client may change, if it exists."""
        if self._graph.remove(quad) and not self.quads.pop(quad, False):
            self.quads[quad] = False

    def replace(self, old: Quad, new: Quad) -> None:
        """Remove a quad, and add another one with the same subject, predicate and graph."""
        if not self._graph.replace(old, new):
            self.remove(old)
            self.add(new)
        elif old != new:
            quads = self.quads
            if not quads.pop(old, False):
                quads[old] = False
            if quads.pop(new, True):
                quads[new] = True

    def add_to_ledger(self, quad: Quad) -> None:
        """Add a quad to the ledger. Raises `ResultTooLarge` if the request adds too many."""
        self.ledger_quads[quad] = None
        if len(self.ledger_quads) > _MAX_LEDGER_QUADS:
            raise ResultTooLarge(
                f"The request adds more than {_MAX_LEDGER_QUADS} triples to the history, which would delay other "
                "clients; add them in several requests"
            )

    def adopt(
        self,
        quads: dict[Quad, bool],
        ids: tuple[Set[int], Set[int], Set[int], Set[int]],
        parts: Mapping[int, tuple[int, TripleIndex]],
    ) -> None:
        """Take over a combined change that is already applied to the live graph.

        `parts`: by graph, the number of added triples and an index of the removed ones.
        """
        self.quads, self.ids, self._parts = quads, ids, parts

    def create(self, graph: int) -> None:
        """Create a named graph unless it exists."""
        self.check(graph)
        if graph != self._ledger and self._graph.create(graph) and self.graphs.pop(graph, True):
            self.graphs[graph] = True

    def drop(self, graph: int) -> None:
        """Remove a graph's triples, and the graph if it has a name."""
        self.clear(graph)
        if self._graph.drop(graph) and not self.graphs.pop(graph, False):
            self.graphs[graph] = False

    def clear(self, graph: int) -> None:
        """Remove a graph's triples."""
        self.check(graph)
        self.apply([(s, p, o, graph) for s, p, o in self._graph.graphs[graph].match(None, None, None)], ())

    def check(self, graph: int) -> None:
        """Raise `Forbidden` if the client may not change a graph.

        It raises even if nothing would change, so that a client learns nothing about the content.
        """
        if self.writable is not None and graph not in self.writable:
            name = self._graph.decode_graph(graph)
            raise Forbidden(f"This client may not change the graph {name}; the operator can allow it")

    def check_named(self, graph: int) -> None:
        """Check a graph that a template names, before it is known whether the WHERE clause has solutions."""
        self.check(graph)

    def check_all(self) -> None:
        """Raise `Forbidden` unless the client may change every graph."""
        if self.writable is not None:
            raise Forbidden("This client may not change all graphs: name those that it may")

    def is_ledger(self, graph: int) -> bool:
        """Return whether quads for this graph are added to the ledger."""
        return graph == self._ledger

    def entries(self) -> list[Statement]:
        """Return the quads added to the ledger, as terms."""
        terms = self._graph.dictionary.terms
        return [(terms[s], terms[p], terms[o], terms[g] if g else None) for s, p, o, g in self.ledger_quads]  # type: ignore[misc]

    def change_set(self) -> ChangeSet:
        """Return the combined change, as terms."""
        terms = self._graph.dictionary.terms
        added: list[Statement] = []
        removed: list[Statement] = []
        for (s, p, o, g), present in self.quads.items():
            statement = (terms[s], terms[p], terms[o], terms[g] if g else None)  # 0 is the default graph
            (added if present else removed).append(statement)  # type: ignore[arg-type]
        if not self.graphs:
            return ChangeSet(added, removed)
        created = [terms[graph] for graph, present in self.graphs.items() if present]
        dropped = [terms[graph] for graph, present in self.graphs.items() if not present]
        return ChangeSet(added, removed, created, dropped)  # type: ignore[arg-type]

    def undo(self) -> None:
        """Restore the live graph to its state before the transaction. Nothing else may have changed it since."""
        self._set(forward=False)
        self.quads, self.graphs, self.ledger_quads, self._parts = {}, {}, {}, None

    @contextmanager
    def reverted(self) -> Iterator[None]:
        """Show the state before the transaction until the context ends. The graph may only be read meanwhile."""
        if self._parts is not None:
            with self._earlier(self._parts):
                yield
            return
        self._set(forward=False)
        try:
            yield
        finally:
            self._set(forward=True)

    @contextmanager
    def _earlier(self, parts: Mapping[int, tuple[int, TripleIndex]]) -> Iterator[None]:
        """Show the state before a large change. Views replace the indexes of the changed graphs; nothing is undone."""
        graphs = self._graph.graphs
        names = parts.keys() | self.graphs.keys()
        now = {name: graphs[name] for name in names if name in graphs}
        try:
            for name in names:
                if self.graphs.get(name):  # the graph did not exist
                    del graphs[name]
                    continue
                added, removed = parts.get(name, (0, TripleIndex()))
                graphs[name] = EarlierIndex(now.get(name, TripleIndex()), name, self.quads, added, removed)
            yield
        finally:
            for name in names - now.keys():
                graphs.pop(name, None)
            graphs.update(now)

    def _set(self, *, forward: bool) -> None:
        # Graphs must exist before their quads are added, and be empty before they are dropped.
        for graph, present in self.graphs.items():
            if present == forward:
                self._graph.create(graph)
        for quad, present in self.quads.items():
            (self._graph.add if present == forward else self._graph.remove)(quad)
        for graph, present in self.graphs.items():
            if present != forward:
                self._graph.drop(graph)


class Deposit(Transaction):
    """The changes of a request that does not touch the live graph: all its quads are added to the ledger."""

    def apply(self, removed: Iterable[Quad], added: Iterable[Quad]) -> None:
        """Add quads to the ledger. Removals are ignored, since the ledger only grows."""
        if self._ledger is not None:
            self.check(self._ledger)
        for quad in added:
            self.add_to_ledger(quad)

    def check_named(self, graph: int) -> None:
        """Allow any graph: the quads are added to the ledger whatever graph the client names."""

    def create(self, graph: int) -> None:
        """Raise `UpdateFailed`."""
        self._refuse()

    def drop(self, graph: int) -> None:
        """Raise `UpdateFailed`."""
        self._refuse()

    def clear(self, graph: int) -> None:
        """Raise `UpdateFailed`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UpdateFailed("The history only grows, so this update can only insert triples")
