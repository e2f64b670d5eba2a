"""Staged change: a large change that is prepared in pieces, while others' updates go on, and then applied as one.

Nobody sees anything of it before it is applied. What it is to reach, that some quads are there and others are not, does
not depend on the state. Only what is left to do for that does: the quads that others change after they were compared
with the graph are noted, and looked at again when the change is applied.

The pieces intern terms, compare quads with the graph, build an index of the new quads and encode them for the journal.
What must happen at once is little: indexes are joined. So 100,000 quads hold up others for some 50 ms, not for 800 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from edge.engine.attempt import Quads
from edge.engine.changes import ChangeSet, Statement
from edge.engine.graph import DEFAULT_GRAPH, LiveGraph, Quad, TripleIndex
from edge.engine.journal_codec import EncodedQuads
from edge.engine.plan import Data
from edge.engine.transaction import Transaction

STAGED_FROM: Final = 2_000
"""Quads from which a change is staged."""
_PIECE: Final = 500
"""Quads of a piece: about 2 ms."""
_MOST_STALE: Final = 1_000
"""Quads that are looked at again when the change is applied. If there are more, all are compared again."""
_MOST_COMPARISONS: Final = 3
"""How often that is done, so that nobody can keep a change from being applied."""


class NotStaged(Exception):
    """The change has something that cannot be prepared in pieces. It must be discarded, and applied in one go."""


class StagedChange:
    """What one update adds and removes. All methods are called on the writer's thread."""

    def __init__(
        self,
        graph: LiveGraph,
        operations: Sequence[Data | Quads],
        transaction: Transaction,
        checked: Callable[[Iterable[Quad]], Iterable[Quad]],
    ) -> None:
        """`checked` raises what keeps the graph from holding a quad. Nothing else may use the transaction."""
        self._graph = graph
        self._operations = operations
        self._transaction = transaction
        self._checked = checked
        self._wanted: dict[Quad, bool] = {}
        """Whether each quad is to be there in the end. The change holds references to their terms."""
        self._named: dict[int, bool] = {}
        """The graphs of these quads, and whether any was to be added to them. References, too."""
        self._pinned: list[int] = []
        """Terms that are held until the quads that have them are."""
        self._compared = 0
        self._stale: set[Quad] = set()
        """Quads that others have changed since the comparison began."""
        self._reset()
        self._steps: Iterator[None] | None = self._prepare()

    def _reset(self) -> None:
        self._net: dict[Quad, bool] = {}
        self._added: list[Statement] = []
        self._removed: list[Statement] = []
        self._added_index: dict[int, TripleIndex] = {}
        self._removed_index: dict[int, TripleIndex] = {}
        self._ids: tuple[set[int], set[int], set[int], set[int]] = (set(), set(), set(), set())
        self.encoded = EncodedQuads()
        """The quads as the journal stores them."""

    @property
    def size(self) -> int:
        """Quads that it names."""
        return len(self._wanted)

    def advance(self) -> bool:
        """Prepare a piece. Nothing may be uncommitted. Returns whether it can be applied.

        Raises `EdgeError` where the update is refused, and `NotStaged`; it must be discarded then.
        """
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        if self._steps is None and len(self._stale) > _MOST_STALE and self._compared < _MOST_COMPARISONS:
            self._steps = self._compare()
        return self._steps is None

    def note(self, changed: Mapping[Quad, bool]) -> None:
        """Note what another update has changed."""
        if self._compared:
            self._stale.update(changed.keys() & self._wanted.keys())

    def apply(self) -> tuple[Transaction, ChangeSet]:
        """Apply it to the graph."""
        self._look_again()
        graph, transaction = self._graph, self._transaction
        for name, adds in self._named.items():
            if adds and name not in graph.graphs:
                transaction.create(name)
        for name, index in self._removed_index.items():
            if index.size:  # else the graph may be gone
                graph.graphs[name].subtract(index)
        for name, index in self._added_index.items():
            graph.graphs[name].absorb(index)
        transaction.adopt(self._net, self._ids)
        created = [graph.dictionary.terms[name] for name in transaction.graphs]
        return transaction, ChangeSet(self._added, self._removed, created)  # type: ignore[arg-type]  # they name graphs

    def release(self, *, applied: bool) -> Iterator[None]:
        """Give the references back, piece by piece, but for those that became the graph's when it was applied."""
        dictionary, net = self._graph.dictionary, self._net if applied else {}
        for name in self._named:
            dictionary.release(name)
        yield from self._unpin()
        for number, (s, p, o, g) in enumerate(self._wanted, 1):
            present = net.get((s, p, o, g))
            if present is not True:
                dictionary.release_triple(s, p, o)
                if present is False:  # the graph's own
                    dictionary.release_triple(s, p, o)
            if number % _PIECE == 0:
                yield

    def _prepare(self) -> Iterator[None]:
        for operation in self._operations:
            if isinstance(operation, Data):
                yield from self._want_data(operation)
            else:
                for quads, present in zip(operation, (False, True), strict=True):
                    yield from self._want(map(self._graph.intern_quad, quads), present=present)
        self._operations = ()
        yield from self._compare()

    def _want_data(self, data: Data) -> Iterator[None]:
        dictionary = self._graph.dictionary
        ids: list[int] = []
        terms = data.ids(dictionary)
        while piece := list(islice(terms, _PIECE)):
            ids += piece
            for term_id in piece:
                dictionary.retain(term_id)
            self._pinned += piece
            yield
        yield from self._want(data.quads_of(ids), present=data.inserts)
        yield from self._unpin()

    def _unpin(self) -> Iterator[None]:
        while self._pinned:
            for term_id in self._pinned[-_PIECE:]:
                self._graph.dictionary.release(term_id)
            del self._pinned[-_PIECE:]
            yield

    def _want(self, quads: Iterator[Quad], *, present: bool) -> Iterator[None]:
        dictionary, wanted = self._graph.dictionary, self._wanted
        while piece := list(islice(quads, _PIECE)):
            for quad in piece:
                if quad not in wanted:
                    s, p, o, _ = quad
                    dictionary.retain_triple(s, p, o)
                wanted[quad] = present
            for name in {quad[3] for quad in piece}:
                if name not in self._named:
                    dictionary.retain(name)
                self._named[name] = self._named.get(name, False) or present
                self._transaction.check(name)
                if self._transaction.is_ledger(name):
                    raise NotStaged
            if present:
                self._checked(piece)
            yield

    def _compare(self) -> Iterator[None]:
        """Find out what of it is not so yet."""
        self._compared += 1
        self._stale.clear()
        self._reset()
        wanted = iter(self._wanted.items())
        while piece := list(islice(wanted, _PIECE)):
            added, removed = len(self._added), len(self._removed)
            for quad, present in piece:
                if self._graph.contains(quad) is not present:
                    self._change(quad, present=present)
            self.encoded.add(self._added[added:], self._removed[removed:])
            yield

    def _change(self, quad: Quad, *, present: bool) -> None:
        s, p, o, g = quad
        self._net[quad] = present
        indexes = self._added_index if present else self._removed_index
        index = indexes.get(g)
        if index is None:
            index = indexes[g] = TripleIndex()
        index.add(s, p, o)
        for ids, term_id in zip(self._ids, quad, strict=True):
            ids.add(term_id)
        (self._added if present else self._removed).append(self._statement(quad))

    def _statement(self, quad: Quad) -> Statement:
        terms = self._graph.dictionary.terms
        s, p, o, g = quad
        return (terms[s], terms[p], terms[o], terms[g] if g != DEFAULT_GRAPH else None)  # type: ignore[return-value]

    def _look_again(self) -> None:
        """Compare the quads again that others have changed."""
        gone = False
        added, removed = len(self._added), len(self._removed)
        for quad in self._stale:
            present, before = self._wanted[quad], self._net.get(quad)
            if self._graph.contains(quad) is not present:
                if before is None:
                    self._change(quad, present=present)
            elif before is not None:
                s, p, o, g = quad
                del self._net[quad]
                (self._added_index if present else self._removed_index)[g].remove(s, p, o)
                gone = True
        self.encoded.add(self._added[added:], self._removed[removed:])
        if gone:
            self._added = [self._statement(quad) for quad, present in self._net.items() if present]
            self._removed = [self._statement(quad) for quad, present in self._net.items() if not present]
