"""The live graph: a dictionary index of quads, the authoritative state (the paper's Context Triple Store).

Two nested indexes a graph, over interned terms: by subject and predicate, by predicate and object. Where only an object
is known each predicate is asked for it, for there are few predicates; a third index would cost every update its time,
and half as much memory again. Nothing here knows SPARQL, files or time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import pyoxigraph as ox

from edge.engine.store.changes import Statement
from edge.engine.store.index_merge import Index, IndexMerge, Leaf
from edge.engine.store.oxigraph_transaction import GraphName
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import BLANK, IRI, LITERAL, Dictionary
from edge.protocol.results import Term

Quad = tuple[int, int, int, int]
"""Subject, predicate, object, graph: ids of the dictionary."""

DEFAULT_GRAPH: Final = 0
"""The id under which the default graph stands. The dictionary reserves it."""

SOME: Final = -1
"""Stands for the id of a term that is given and not known (`TripleIndex.most`)."""

_EMPTY: Final[dict[int, Leaf]] = {}


def _insert(index: Index, first: int, second: int, third: int) -> int:
    """0: it was there; 2: there are others with the same first and second; 1: there are not."""
    branch = index.get(first)
    if branch is None:
        index[first] = {second: third}
        return 1
    leaf = branch.get(second)
    if leaf is None:
        branch[second] = third
        return 1
    if isinstance(leaf, int):
        if leaf == third:
            return 0
        branch[second] = {leaf, third}
    elif third in leaf:
        return 0
    else:
        leaf.add(third)
    return 2


def _delete(index: Index, first: int, second: int, third: int) -> int:
    """0: it was not there; 2: others with the same first and second are left; 1: none is."""
    branch = index.get(first)
    if branch is None:
        return 0
    leaf = branch.get(second)
    if isinstance(leaf, int):
        if leaf != third:
            return 0
        if len(branch) == 1:
            del index[first]
        else:
            del branch[second]
        return 1
    if leaf is None or third not in leaf:
        return 0
    leaf.remove(third)
    if len(leaf) == 1:
        branch[second] = leaf.pop()
    return 2


def _subtract(index: Index, other: Index, left: dict[int, int]) -> None:
    """Remove the entries of another index, all of which are here.

    `left` counts, by second, the pairs of first and second of the other that still have entries here.
    """
    for first, less in other.items():
        branch = index[first]
        if branch == less:
            del index[first]
            continue
        for second, leaf in less.items():
            rest = branch[second]
            if rest == leaf:
                del branch[second]
                continue
            left[second] = left.get(second, 0) + 1
            assert isinstance(rest, set)  # noqa: S101  it has more than the other
            rest.difference_update(members(leaf))
            if len(rest) == 1:
                branch[second] = rest.pop()


def members(leaf: Leaf | None) -> Iterable[int]:
    """Return the ids of a leaf."""
    if leaf is None:
        return ()
    return (leaf,) if isinstance(leaf, int) else leaf


def leaf_of(ids: set[int]) -> Leaf | None:
    """Return the leaf that has these ids."""
    return ids if len(ids) > 1 else next(iter(ids), None)


class TripleIndex:
    """The triples of one graph."""

    __slots__ = ("_further", "_pos", "_predicates", "_spo", "size")

    def __init__(self) -> None:
        self._spo: Index = {}
        self._pos: Index = {}
        self._predicates: dict[int, int] = {}
        self._further: dict[int, int] = {}
        """Triples of a predicate beyond the first of each subject."""
        self.size = 0

    def contains(self, s: int, p: int, o: int) -> bool:
        """Whether the triple is there."""
        branch = self._spo.get(s)
        if branch is None:
            return False
        leaf = branch.get(p)
        return leaf == o if isinstance(leaf, int) else leaf is not None and o in leaf

    def add(self, s: int, p: int, o: int) -> bool:
        """Add a triple. False: it was there."""
        inserted = _insert(self._spo, s, p, o)
        if not inserted:
            return False
        if inserted == 2:
            self._further[p] = self._further.get(p, 0) + 1
        _insert(self._pos, p, o, s)
        self._predicates[p] = self._predicates.get(p, 0) + 1
        self.size += 1
        return True

    def remove(self, s: int, p: int, o: int) -> bool:
        """Remove a triple. False: it was not there."""
        deleted = _delete(self._spo, s, p, o)
        if not deleted:
            return False
        if deleted == 2:
            self._further[p] -= 1
        _delete(self._pos, p, o, s)
        left = self._predicates[p] - 1
        if left:
            self._predicates[p] = left
        else:
            del self._predicates[p]
            self._further.pop(p, None)
        self.size -= 1
        return True

    def absorb(self, other: TripleIndex) -> None:
        """Add the triples of another index, none of which is here. The other must not be used any more."""
        TripleMerge(self, other).apply()

    def take_in(self, other: TripleIndex, met: Mapping[int, int]) -> None:
        """Count the triples of another index. `met`: by predicate, the subjects that have it in both."""
        for p, count in other._predicates.items():
            self._predicates[p] = self._predicates.get(p, 0) + count
            further = other._further.get(p, 0) + met.get(p, 0)
            if further:
                self._further[p] = self._further.get(p, 0) + further
        self.size += other.size

    def merges(self, other: TripleIndex) -> tuple[IndexMerge, IndexMerge]:
        """How another index is merged into this one: by subject, and by predicate."""
        return IndexMerge(self._spo, other._spo), IndexMerge(self._pos, other._pos)

    def subtract(self, other: TripleIndex) -> None:
        """Remove the triples of another index, all of which are here."""
        left: dict[int, int] = {}
        _subtract(self._spo, other._spo, left)
        _subtract(self._pos, other._pos, {})
        for p, count in other._predicates.items():
            if self._predicates[p] == count:
                del self._predicates[p]
                self._further.pop(p, None)
                continue
            self._predicates[p] -= count
            further = other._further.get(p, 0) + left.get(p, 0)
            if further:
                self._further[p] -= further
        self.size -= other.size

    def terms(self) -> tuple[Collection[int], Collection[int], set[int]]:
        """The subjects, predicates and objects of its triples."""
        return self._spo.keys(), self._pos.keys(), {o for branch in self._pos.values() for o in branch}

    def objects(self, s: int, p: int) -> Leaf | None:
        """The objects of the triples with this subject and predicate: None, one, or a set. Read it, never write it."""
        branch = self._spo.get(s)
        return None if branch is None else branch.get(p)

    def subjects(self, p: int, o: int) -> Leaf | None:
        """The subjects of the triples with this predicate and object, likewise."""
        branch = self._pos.get(p)
        return None if branch is None else branch.get(o)

    def match(self, s: int | None, p: int | None, o: int | None) -> Iterator[tuple[int, int, int]]:
        """The triples that agree with what is given; None stands for anything. Do not change the graph meanwhile."""
        if s is not None:
            branch = self._spo.get(s)
            if branch is None:
                return
            if p is not None:
                leaf = branch.get(p)
                if o is None:
                    for third in members(leaf):
                        yield s, p, third
                elif leaf == o or (isinstance(leaf, set) and o in leaf):
                    yield s, p, o
            elif o is not None:
                for predicate, leaf in branch.items():
                    if leaf == o or (isinstance(leaf, set) and o in leaf):
                        yield s, predicate, o
            else:
                for predicate, leaf in branch.items():
                    for third in members(leaf):
                        yield s, predicate, third
        elif p is not None:
            branch = self._pos.get(p)
            if branch is None:
                return
            if o is not None:
                for subject in members(branch.get(o)):
                    yield subject, p, o
            else:
                for third, leaf in branch.items():
                    for subject in members(leaf):
                        yield subject, p, third
        elif o is not None:
            for predicate, branch in self._pos.items():
                for subject in members(branch.get(o)):
                    yield subject, predicate, o
        else:
            for subject, branch in self._spo.items():
                for predicate, leaf in branch.items():
                    for third in members(leaf):
                        yield subject, predicate, third

    def all_subjects(self) -> list[int]:
        """All subjects."""
        return list(self._spo)

    def predicates_of(self, s: int) -> list[int]:
        """The predicates of a subject."""
        return list(self._spo.get(s, _EMPTY))

    def estimate(self, s: int | None, p: int | None, o: int | None) -> int:
        """About how many triples `match` would give, without walking them."""
        if s is not None:
            branch = self._spo.get(s)
            if branch is None:
                return 0
            if p is not None:
                leaf = branch.get(p)
                return 0 if leaf is None else 1 if o is not None or isinstance(leaf, int) else len(leaf)
            return len(branch)
        if p is not None:
            if o is None:
                return self._predicates.get(p, 0)
            leaf = self._pos.get(p, {}).get(o)
            return 0 if leaf is None else 1 if isinstance(leaf, int) else len(leaf)
        if o is None:
            return self.size
        leaves = [branch[o] for branch in self._pos.values() if o in branch]
        return sum([1 if isinstance(leaf, int) else len(leaf) for leaf in leaves])

    def most(self, s: int | None, p: int | None, o: int | None) -> int:
        """How many triples `match` can give at the most, where an id may be `SOME`: that of a term not known yet.

        Any thread may ask; while another changes the graph the answer is about right.
        """
        predicates = self._predicates
        if p is None or p == SOME:
            return min(self.size, sum([self.most(s, each, o) for each in list(predicates)]))
        count = predicates.get(p, 0)
        if s is None and o is None:
            return count
        if s is not None and o is not None:
            return min(1, count)
        if o is None:
            if s == SOME:
                return min(count, self._further.get(p, 0) + 1)
            leaf = self._spo.get(s, _EMPTY).get(p)  # type: ignore[arg-type]  # it is one
        else:
            branch = self._pos.get(p, _EMPTY)
            if o == SOME:
                return min(count, max(0, count - len(branch)) + 1)
            leaf = branch.get(o)
        return 0 if leaf is None else 1 if isinstance(leaf, int) else len(leaf)


class TripleMerge:
    """Merging the triples of an index into another one that has none of them, prepared in pieces (`index_merge`)."""

    def __init__(self, into: TripleIndex, other: TripleIndex) -> None:
        """Until `apply` the other must not be used, but for triples that were taken back."""
        self.into = into
        self._other = other
        self._by_subject, self._by_predicate = into.merges(other)

    def prepare(self) -> Iterator[None]:
        """Prepare it, piece by piece."""
        yield from self._by_subject.prepare()
        yield from self._by_predicate.prepare()

    def take_back(self, s: int, p: int, o: int) -> None:
        """Take back what was prepared for a triple, which changes in either index or has changed."""
        self._by_subject.take_back(s, p)
        self._by_predicate.take_back(p, o)

    def take_all_back(self) -> Iterator[None]:
        """Take everything back, piece by piece."""
        yield from self._by_subject.take_all_back()
        yield from self._by_predicate.take_all_back()

    def apply(self) -> None:
        """Merge. Nearly all of it is done in C as far as it was prepared. The other must not be used any more."""
        self._by_predicate.merge()
        self.into.take_in(self._other, self._by_subject.merge())

    def release(self) -> Iterator[None]:
        """Free what is no longer used, piece by piece."""
        yield from self._by_subject.release()
        yield from self._by_predicate.release()


_NO_TRIPLES: Final = TripleIndex()


def _walk(index: Callable[[], TripleIndex]) -> Iterator[tuple[int, int, int]]:
    """The triples of an index that may change, or become another one, between two steps."""
    # A step uses ids of earlier ones, which may stand for other terms by now, and an update may have replaced an
    # index by one with the same quads (MOVE). So everything is looked up again, and `contains` has the last word.
    for s in index().all_subjects():
        for p in index().predicates_of(s):
            for o in list(members(index().objects(s, p))):
                if index().contains(s, p, o):
                    yield s, p, o


class LiveGraph:
    """The RDF dataset that the gateway serves: a default graph and named graphs, which may exist and be empty."""

    def __init__(self, effort: StepBudget | None = None) -> None:
        self.dictionary = Dictionary()
        self.dictionary.retain(self.dictionary.intern(ox.BlankNode()))  # takes the id; nobody can name it
        self.graphs: dict[int, TripleIndex] = {DEFAULT_GRAPH: TripleIndex()}
        """Graph id -> its triples. The default graph is always there; named graphs come and go."""
        self.effort = effort or StepBudget()
        """Of the evaluation on it that runs: one at a time does."""

    def __len__(self) -> int:
        """How many quads there are."""
        return sum(index.size for index in self.graphs.values())

    def contains(self, quad: Quad) -> bool:
        """Whether the quad is there."""
        s, p, o, g = quad
        index = self.graphs.get(g)
        return index is not None and index.contains(s, p, o)

    def add(self, quad: Quad) -> bool:
        """Add a quad to a graph that exists. False: it was there."""
        s, p, o, g = quad
        if not self.graphs[g].add(s, p, o):
            return False
        self.dictionary.retain_triple(s, p, o)
        return True

    def remove(self, quad: Quad) -> bool:
        """Remove a quad. False: it was not there."""
        s, p, o, g = quad
        index = self.graphs.get(g)
        if index is None or not index.remove(s, p, o):
            return False
        self.dictionary.release_triple(s, p, o)
        return True

    def create(self, graph: int) -> bool:
        """Begin an empty named graph. False: it exists."""
        if graph in self.graphs:
            return False
        self.graphs[graph] = TripleIndex()
        self.dictionary.retain(graph)
        return True

    def drop(self, graph: int) -> bool:
        """End a named graph, which must be empty. False: there is none."""
        if graph == DEFAULT_GRAPH or graph not in self.graphs:
            return False
        del self.graphs[graph]
        self.dictionary.release(graph)
        return True

    def legal(self, quad: Quad) -> bool:
        """Whether the terms may stand where they stand (RDF 1.1 Concepts, section 3.1)."""
        kinds = self.dictionary.kinds
        s, p, _, g = quad
        return kinds[s] <= BLANK and kinds[p] == IRI and kinds[g] < LITERAL

    def intern_quad(self, quad: ox.Quad) -> Quad:
        """A quad of terms as a quad of ids."""
        intern = self.dictionary.intern
        return intern(quad.subject), intern(quad.predicate), intern(quad.object), self.intern_graph(quad.graph_name)

    def intern_graph(self, name: Term | ox.DefaultGraph) -> int:
        """A graph's name as an id."""
        return DEFAULT_GRAPH if isinstance(name, ox.DefaultGraph) else self.dictionary.intern(name)

    def decode_graph(self, graph: int) -> ox.NamedNode | ox.BlankNode | ox.DefaultGraph:
        """A graph's id as its name."""
        if graph == DEFAULT_GRAPH:
            return ox.DefaultGraph()
        return self.dictionary.terms[graph]  # type: ignore[return-value]

    def decode(self, quad: Quad) -> ox.Quad:
        """A quad of ids as a quad of terms."""
        terms = self.dictionary.terms
        s, p, o, g = quad
        return ox.Quad(terms[s], terms[p], terms[o], self.decode_graph(g))  # type: ignore[arg-type]

    def quads(self) -> Iterator[ox.Quad]:
        """Every quad, as terms."""
        for graph, index in self.graphs.items():
            for s, p, o in index.match(None, None, None):
                yield self.decode((s, p, o, graph))

    def walk(self) -> Iterator[Statement]:
        """Every quad that is there before each step, as terms. The graph may change between two steps.

        Others that are there before some of the steps may or may not come; none of a graph that does not exist now.
        """
        return self._walk([(graph, self.decode_graph(graph)) for graph in self.graphs])

    def walk_ids(self, graph: int) -> Iterator[Quad]:
        """The same of one graph, as ids, while somebody holds a reference to its name."""
        for s, p, o in _walk(lambda: self.graphs.get(graph, _NO_TRIPLES)):
            yield s, p, o, graph

    def _walk(self, graphs: Iterable[tuple[int, GraphName | ox.DefaultGraph]]) -> Iterator[Statement]:
        terms = self.dictionary.terms
        for graph, name in graphs:
            of_quad = None if isinstance(name, ox.DefaultGraph) else name
            for s, p, o in _walk(partial(self._index, graph, name)):
                yield terms[s], terms[p], terms[o], of_quad

    def _index(self, graph: int, name: GraphName | ox.DefaultGraph) -> TripleIndex:
        """The triples of the graph that has this id and name; none, if there is no such graph."""
        index = self.graphs.get(graph)
        return _NO_TRIPLES if index is None or self.decode_graph(graph) != name else index

    def named_graphs(self) -> list[ox.NamedNode | ox.BlankNode]:
        """The names of the named graphs that exist."""
        terms = self.dictionary.terms
        return [terms[graph] for graph in self.graphs if graph != DEFAULT_GRAPH]  # type: ignore[misc]
