"""The live graph: a dictionary index of quads and the authoritative state (Context Triple Store of the SEPA paper).

This module does not depend on SPARQL, files or time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyoxigraph as ox

from edge.engine.store.changes import Statement
from edge.engine.store.oxigraph_transaction import GraphName
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import BLANK, IRI, LITERAL, Dictionary
from edge.engine.store.triple_index import Quad, TripleIndex, members
from edge.protocol.results import Term

DEFAULT_GRAPH: Final = 0
"""Id of the default graph. The dictionary reserves it."""

_NO_TRIPLES: Final = TripleIndex()


def _walk(index: Callable[[], TripleIndex]) -> Iterator[tuple[int, int, int]]:
    """Yield the triples of an index that may change, or be replaced by another one, between two steps."""
    # A step uses ids from earlier steps. Those ids may stand for other terms by now, and an update may have replaced an
    # index by one with the same quads (MOVE). So each step looks everything up again, and `contains` decides.
    for s in index().all_subjects():
        for p in index().predicates_of(s):
            for o in list(members(index().objects(s, p))):
                if index().contains(s, p, o):
                    yield s, p, o


class LiveGraph:
    """The RDF dataset that the gateway serves: a default graph and named graphs, which may be empty."""

    def __init__(self, budget: StepBudget | None = None) -> None:
        self.dictionary = Dictionary()
        # reserves id 0; no client can name the blank node
        self.dictionary.retain(self.dictionary.intern(ox.BlankNode()))
        self.graphs: dict[int, TripleIndex] = {DEFAULT_GRAPH: TripleIndex()}
        """Graph id -> its triples. The default graph always exists; named graphs are created and dropped."""
        self.budget = budget or StepBudget()
        """Step budget of the running evaluation. Only one evaluation runs at a time."""

    def __len__(self) -> int:
        """Return the number of quads."""
        return sum(index.size for index in self.graphs.values())

    def contains(self, quad: Quad) -> bool:
        """Return whether the graph has the quad."""
        s, p, o, g = quad
        index = self.graphs.get(g)
        return index is not None and index.contains(s, p, o)

    def add(self, quad: Quad) -> bool:
        """Add a quad to an existing graph. Returns False if the quad existed."""
        s, p, o, g = quad
        if not self.graphs[g].add(s, p, o):
            return False
        # `create` holds the reference to the graph name.
        self.dictionary.retain_triple(s, p, o)
        return True

    def insert(self, graph: int, quads: Iterable[Quad]) -> list[Quad]:
        """Add quads of one existing graph. Returns those that did not exist."""
        added = list(self.graphs[graph].add_all(quads))
        self.dictionary.retain_triples(added)
        return added

    def add_all(self, quads: Iterable[Quad]) -> None:
        """Add many quads to existing graphs."""
        for graph, group in groupby(quads, key=itemgetter(3)):
            self.dictionary.retain_triples(self.graphs[graph].add_all(group))

    def remove(self, quad: Quad) -> bool:
        """Remove a quad. Returns False if it did not exist."""
        s, p, o, g = quad
        index = self.graphs.get(g)
        if index is None or not index.remove(s, p, o):
            return False
        self.dictionary.release_triple(s, p, o)
        return True

    def replace(self, old: Quad, new: Quad) -> bool:
        """Replace a quad by one with another object, if it is the only one with its subject and predicate.

        Returns False, without a change, if it is not.
        """
        s, p, o, g = old
        if not self.graphs[g].replace(s, p, o, new[2]):
            return False
        self.dictionary.retain(new[2])
        self.dictionary.release(o)
        return True

    def create(self, graph: int) -> bool:
        """Create an empty named graph. Returns False if it exists."""
        if graph in self.graphs:
            return False
        self.graphs[graph] = TripleIndex()
        self.dictionary.retain(graph)
        return True

    def drop(self, graph: int) -> bool:
        """Drop a named graph, which must be empty. Returns False if it does not exist."""
        if graph == DEFAULT_GRAPH or graph not in self.graphs:
            return False
        del self.graphs[graph]
        self.dictionary.release(graph)
        return True

    def legal(self, quad: Quad) -> bool:
        """Return whether each term is allowed in its position (RDF 1.1 Concepts, section 3.1)."""
        kinds = self.dictionary.kinds
        s, p, _, g = quad
        # The kinds are ordered IRI < BLANK < LITERAL < TRIPLE, so one comparison covers several of them.
        return kinds[s] <= BLANK and kinds[p] == IRI and kinds[g] < LITERAL

    def intern_quad(self, quad: ox.Quad) -> Quad:
        """Return the ids of a quad's terms. Interns new terms."""
        intern = self.dictionary.intern
        return intern(quad.subject), intern(quad.predicate), intern(quad.object), self.intern_graph(quad.graph_name)

    def intern_quads(self, quads: Iterable[ox.Quad]) -> Iterator[Quad]:
        """Yield the ids of the terms of each quad. Interns new terms."""
        intern = self.dictionary.intern
        for s, p, o, name in quads:
            yield intern(s), intern(p), intern(o), self.intern_graph(name)

    def intern_graph(self, name: Term | ox.DefaultGraph) -> int:
        """Return the id of a graph name."""
        return DEFAULT_GRAPH if isinstance(name, ox.DefaultGraph) else self.dictionary.intern(name)

    def decode_graph(self, graph: int) -> ox.NamedNode | ox.BlankNode | ox.DefaultGraph:
        """Return the name of a graph id."""
        if graph == DEFAULT_GRAPH:
            return ox.DefaultGraph()
        return self.dictionary.terms[graph]  # type: ignore[return-value]

    def decode(self, quad: Quad) -> ox.Quad:
        """Return the quad of terms for a quad of ids."""
        terms = self.dictionary.terms
        s, p, o, g = quad
        return ox.Quad(terms[s], terms[p], terms[o], self.decode_graph(g))  # type: ignore[arg-type]

    def quads(self) -> Iterator[ox.Quad]:
        """Yield every quad, as terms."""
        for graph, index in self.graphs.items():
            for s, p, o in index.match(None, None, None):
                yield self.decode((s, p, o, graph))

    def walk(self) -> Iterator[Statement]:
        """Yield every quad that exists before each step, as terms. The graph may change between two steps.

        Quads that exist only before some of the steps may be missing. Graphs that do not exist at the call are not
        visited.
        """
        return self._walk([(graph, self.decode_graph(graph)) for graph in self.graphs])

    def walk_ids(self, graph: int) -> Iterator[Quad]:
        """Yield the quads of one graph as ids, like `walk`.

        The caller must hold a reference to the name of the graph.
        """
        for s, p, o in _walk(lambda: self.graphs.get(graph, _NO_TRIPLES)):
            yield s, p, o, graph

    def _walk(self, graphs: Iterable[tuple[int, GraphName | ox.DefaultGraph]]) -> Iterator[Statement]:
        terms = self.dictionary.terms
        for graph, name in graphs:
            of_quad = None if isinstance(name, ox.DefaultGraph) else name
            for s, p, o in _walk(partial(self._index, graph, name)):
                yield terms[s], terms[p], terms[o], of_quad

    def _index(self, graph: int, name: GraphName | ox.DefaultGraph) -> TripleIndex:
        """Return the triples of the graph with this id and name; or an empty index."""
        index = self.graphs.get(graph)
        return _NO_TRIPLES if index is None or self.decode_graph(graph) != name else index

    def named_graphs(self) -> list[ox.NamedNode | ox.BlankNode]:
        """Return the names of the existing named graphs."""
        terms = self.dictionary.terms
        return [terms[graph] for graph in self.graphs if graph != DEFAULT_GRAPH]  # type: ignore[misc]
