"""Staged change: a large change that the engine prepares in pieces between other updates, and then applies at once.

No client sees any part of it before it is applied. The goal of data (these quads present, those absent) does not depend
on the state of the graph. The goal of operations on whole graphs follows, for each triple, from the graphs that contain
it (see `whole_graphs`). The remaining work does depend on the state: the change records quads that other updates modify
after their comparison with the graph, and compares them again when it is applied.

The pieces intern terms, compare quads with the graph, index the new quads and encode them for the journal. Only a
little work must happen at once: the indexes are merged. So 100,000 quads block other updates for about 50 ms, not for
800 ms.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from edge.engine.journal.codec import EncodedQuads
from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.transaction import Transaction
from edge.engine.store.triple_index import Quad, TripleIndex, TripleMerge
from edge.engine.updates.update_plan import Data, Manage, Quads, Transfer
from edge.engine.updates.whole_graphs import WholeGraphs
from edge.protocol.errors import UpdateConflict

STAGED_FROM: Final = 2_000
"""Number of quads from which on a change is staged."""
_PIECE: Final = 500
"""Quads in a piece: about 2 ms."""
_COMPARED: Final = 250
"""Quads in a piece of the comparison, which also encodes them and takes longer."""
_MOST_STALE: Final = 1_000
"""Limit of quads that are compared again when the change is applied. Beyond it, all quads are compared again."""
_SEARCHED: Final = 5_000
"""Quads of another change that are looked up in a piece: 1 to 2 ms."""
_LOOKED_UP: Final = 100
"""Quads that are looked up in one call, which holds the GIL."""
_ENCODED: Final = 50
"""Quads that are encoded together: about 0.2 ms."""
_FEW_TURNED: Final = 250
"""Limit of quads whose goal was reversed after their comparison; each requires encoding its group of quads again.
Beyond it, all quads are compared again."""
_MOST_TURNED: Final = 1_000
"""The same limit after the last comparison. Beyond it, the update is rejected."""
_MOST_COMPARISONS: Final = 3
"""Limit of full comparisons, so that other clients cannot delay the change forever."""


Operation = Data | Quads | Manage | Transfer
"""An operation that can be prepared in pieces."""


class NotStaged(Exception):
    """The change has a part that cannot be prepared in pieces. The caller must discard it and apply it at once."""


class StagedChange:
    """Quads that one update adds and removes. All methods run on the writer's thread."""

    def __init__(
        self,
        graph: LiveGraph,
        operations: Sequence[Operation],
        transaction: Transaction,
        check: Callable[[Iterable[Quad], int], None],
    ) -> None:
        """Start a staged change. The transaction must not be used for anything else.

        `check` raises the error if the graph cannot hold some quads, or if the change names too many.
        """
        self._graph = graph
        self._operations = operations
        self._transaction = transaction
        self._check = check
        self._whole: WholeGraphs | None = None
        """The operations, if some of them are on whole graphs."""
        self._unsettled: dict[Quad, None] = {}
        """Quads of these graphs that other updates have changed since the last piece. Holds references."""
        self._existence: dict[int, bool] = {}
        """Named graphs that the change creates (True) or drops."""
        self._wanted: dict[Quad, bool] = {}
        """The goal for each quad: present or absent. Holds references to the terms."""
        self._order: list[Quad] = []
        """These quads in their order. A list that grows slowly spares the garbage collector a new large one."""
        self._named: dict[int, bool] = {}
        """The graphs of these quads, and whether the change adds quads to them. Holds references, too."""
        self._ledger_quads: list[Quad] = []
        """Quads that go to the ledger. Holds references, too."""
        self._pinned: list[int] = []
        """Terms with a reference until the quads with them have their own."""
        # Without a reference, the id could be reused for another graph, which would then be writable.
        for name in transaction.writable or ():
            graph.dictionary.retain(name)
        self._compared = 0
        self._joined = 0
        self._disturbed = False
        """Whether other updates have changed so much since the merges began that the merges must start again."""
        self._freeing: Iterator[None] = iter(())
        """Frees the last comparison while a new one replaces it."""
        self._spare: list[object] = []
        """Quads that would all be freed together with the update. `release` frees them piece by piece."""
        self._spare_terms: list[Sequence[object]] = []
        """Pieces of terms, for the same purpose."""
        self._unsearched: list[list[Quad]] = []
        """Quads of other large changes since then, which may be among the quads of this one."""
        self._reset()
        self._steps: Iterator[None] | None = self._prepare()

    def _reset(self) -> None:
        self._stale: set[Quad] = set()
        """Quads that other updates have changed since the comparison began."""
        self._turned: set[Quad] = set()
        """Quads whose goal was reversed after their comparison."""
        self.net: dict[Quad, bool] = {}
        """The effective change: quads that are added (True) or removed."""
        self._added: list[Statement] = []
        self._removed: list[Statement] = []
        self._added_index: dict[int, TripleIndex] = {}
        self._removed_index: dict[int, TripleIndex] = {}
        self._merges: dict[int, TripleMerge] = {}
        """Merges of the new quads into the graphs, by graph."""
        self.ids: tuple[set[int], set[int], set[int], set[int]] = (set(), set(), set(), set())
        """Their subjects, predicates, objects and graphs; may contain more."""
        self.encoded = EncodedQuads()
        """The quads in the encoding of the journal."""

    @property
    def size(self) -> int:
        """Number of quads that the change names."""
        return len(self._wanted)

    def advance(self) -> bool:
        """Prepare one piece. Return whether the change can be applied. No transaction may be uncommitted.

        Raises `NotStaged`, and `EdgeError` if the update is rejected. The caller must then discard the change.
        """
        if self._unsettled:
            self._settle()
        if self._unsearched:
            self._search()
            # Further ones come more slowly: a change of that size takes many pieces itself.
            if self._unsearched:
                return False
        # `next` returns the default `self` when the generator has ended.
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        if self._steps is None:
            if self._compared < _MOST_COMPARISONS:
                if len(self._stale) > _MOST_STALE or len(self._turned) > _FEW_TURNED:
                    self._steps = self._compare()
            elif len(self._turned) > _MOST_TURNED:
                raise UpdateConflict(
                    f"The data that the update copies kept changing, more than {_MOST_TURNED} triples in each of "
                    f"{_MOST_COMPARISONS} attempts; nothing was changed. Send it again, or copy the data in parts"
                )
        if self._steps is None and self._disturbed and self._joined < _MOST_COMPARISONS:
            self._steps = self._join_again()
        return self._steps is None

    def note(self, changed: Mapping[Quad, bool]) -> None:
        """Record the changes of another update."""
        # For that many quads, new merges are cheaper than taking each quad back out of the merges.
        if len(changed) > _MOST_STALE:
            self._disturbed = True
        elif self._merges and not self._disturbed:  # disturbed merges are discarded
            # The merges read only the settled part of the graphs, and a change may have left some quads outside.
            for merge in self._merges.values():
                merge.into.settle_at_once()
            for quad in changed:
                self._take_back(quad)
        if self._compared and len(changed) > _SEARCHED:
            # A copy, because the other change releases its quads meanwhile. An id that then stands for another term
            # causes an unnecessary comparison at most.
            self._unsearched.append(list(changed))
        elif self._compared:
            self._stale.update(changed.keys() & self._wanted.keys())
        if self._whole is not None:
            followed = {name for name in {g for _, _, _, g in changed} if self._whole.follows(name)}
            for quad in changed if followed else ():
                if quad[3] in followed and quad not in self._unsettled:
                    self._hold(quad)
                    self._unsettled[quad] = None

    def settle(self) -> ChangeSet:
        """Return the remaining change for the current state. It must be applied before anything else changes the graph.

        Raises `EdgeError` if the update is rejected.
        """
        graphs, terms = self._graph.graphs, self._graph.dictionary.terms
        if self._disturbed:
            for _ in self._take_all_back():
                pass
        self._look_again()
        if self._whole is not None:
            self._existence = self._whole.existence()
        else:
            self._existence = {name: True for name, adds in self._named.items() if adds and name not in graphs}
        created = [terms[name] for name, exists in self._existence.items() if exists]
        dropped = [terms[name] for name, exists in self._existence.items() if not exists]
        return ChangeSet(self._added, self._removed, created, dropped)  # type: ignore[arg-type]  # they name graphs

    def apply(self) -> Transaction:
        """Apply the change to the graph."""
        graph, transaction = self._graph, self._transaction
        none = TripleIndex()
        parts = {
            name: (self._added_index.get(name, none).size, self._removed_index.get(name, none))
            for name in self._added_index.keys() | self._removed_index.keys()
        }
        for name, exists in self._existence.items():
            if exists:
                transaction.create(name)
        # Additions go first: their prepared merges are valid only for the current state of the indexes.
        for name, index in self._added_index.items():
            merge = self._merges.get(name)
            if merge is not None and merge.into is graph.graphs.get(name):
                merge.apply()
            elif index.size:
                for _ in merge.take_all_back() if merge is not None else ():
                    pass
                graph.graphs[name].absorb(index)
        for name, index in self._removed_index.items():
            if index.size:  # with an empty index the graph may not exist any more
                graph.graphs[name].subtract(index)
        for name, exists in self._existence.items():
            if not exists:
                transaction.drop(name)
        transaction.adopt(self.net, self.ids, parts)
        return transaction

    def release(self, *, applied: bool) -> Iterator[None]:
        """Release the references piece by piece, except those that the graph took over when the change was applied."""
        dictionary, net = self._graph.dictionary, self.net if applied else {}
        for name in (*self._named, *(self._transaction.writable or ())):
            dictionary.release(name)
        for name in self._added_index:
            if name in self._graph.graphs:
                yield from self._graph.graphs[name].settle()
        for quad in (*self._unsettled, *self._ledger_quads):
            self._let_go(quad)
        yield from self._unpin()
        wanted, order = self._wanted, self._order
        while wanted:  # piece by piece: freeing a large dictionary at once would block the writer
            (s, p, o, g), _ = wanted.popitem()
            order.pop()
            present = net.pop((s, p, o, g), None)
            if present is not True:
                dictionary.release_triple(s, p, o)
                if present is False:  # the reference of the graph, which no longer has the triple
                    dictionary.release_triple(s, p, o)
            if len(wanted) % _PIECE == 0:
                yield
        yield from self._freeing
        yield from self._drop(applied=applied)
        while self._spare:
            del self._spare[-_PIECE:]
            yield
        while self._spare_terms:
            self._spare_terms.pop()
            yield

    def _drop(self, *, applied: bool) -> Iterator[None]:
        """Drop the comparison. The iterator frees it piece by piece.

        `applied`: the graph took over the index of the added quads.
        """
        indexes = [*self._removed_index.values(), *(() if applied else self._added_index.values())]
        statements, quads = [self._added, self._removed], [self._stale, self._turned]
        freeing = _freed([*self._merges.values()], indexes, statements, quads, [self.net, *self.ids])
        self._reset()
        return freeing

    def _search(self) -> None:
        """Look up a piece of the quads of other large changes."""
        quads = self._unsearched[-1]
        for _ in range(-(-_SEARCHED // _LOOKED_UP)):
            self._stale.update(filter(self._wanted.__contains__, quads[-_LOOKED_UP:]))
            del quads[-_LOOKED_UP:]
        if not quads:
            self._unsearched.pop()

    def _prepare(self) -> Iterator[None]:
        whole = any(isinstance(operation, Manage | Transfer) for operation in self._operations)
        steps: list[Manage | Transfer | dict[Quad, bool]] = []
        for operation in self._operations:
            if isinstance(operation, Manage | Transfer):
                steps.append(operation)
                continue
            named: dict[Quad, bool] | None = {} if whole else None
            if isinstance(operation, Data):
                yield from self._want_data(operation, named)
            else:
                for quads, present in zip(operation, (False, True), strict=True):
                    self._spare += quads
                    yield from self._want(map(self._graph.intern_quad, quads), named, present=present)
            if named is not None:
                steps.append(named)
        self._operations = ()
        if whole:
            yield from self._follow(WholeGraphs(self._graph, steps, self._transaction))
        yield from self._compare()

    def _want_data(self, data: Data, named: dict[Quad, bool] | None) -> Iterator[None]:
        dictionary = self._graph.dictionary
        for name in data.empty:
            self._transaction.check_named(self._graph.intern_graph(name))
        ids: list[int] = []
        if data.size >= STAGED_FROM:
            # The loop below creates hardly any objects except in long lists. Without this collection they would still
            # be young when they are long, and two collections would visit all items: 20 ms each for 80,000 quads.
            gc.collect(1)
        # Between two pieces the dictionary may sweep terms without references, so these pin theirs.
        self._spare_terms += data.terms.pieces
        terms = data.ids(dictionary)
        while piece := list(islice(terms, _PIECE)):
            ids += piece
            for term_id in piece:
                dictionary.retain(term_id)
            self._pinned += piece
            yield
        yield from self._want(data.quads_of(ids), named, present=data.inserts)
        yield from self._unpin()

    def _unpin(self) -> Iterator[None]:
        while self._pinned:
            for term_id in self._pinned[-_PIECE:]:
                self._graph.dictionary.release(term_id)
            del self._pinned[-_PIECE:]
            yield

    def _want(self, quads: Iterator[Quad], named: dict[Quad, bool] | None, *, present: bool) -> Iterator[None]:
        """Set the goal of quads. `named` collects the quads, too."""
        while piece := list(islice(quads, _PIECE)):
            wanted = dict.fromkeys(piece, present)
            if named is None:
                self._set_ledger_quads(wanted)
            self._take(wanted)
            if named is not None:
                named.update(wanted)
            yield

    def _set_ledger_quads(self, wanted: dict[Quad, bool]) -> None:
        """Move the quads of the ledger's graph from `wanted` to the ledger. For all other uses that graph is empty."""
        transaction = self._transaction
        for quad in [quad for quad in wanted if transaction.is_ledger(quad[3])]:
            transaction.check(quad[3])
            if wanted.pop(quad) and quad not in transaction.ledger_quads:
                self._check((quad,), len(self._wanted))
                transaction.add_to_ledger(quad)
                self._hold(quad)
                self._ledger_quads.append(quad)

    def _follow(self, whole: WholeGraphs) -> Iterator[None]:
        """Determine the goal of operations on whole graphs, and of data before or after them."""
        for name in whole.named:
            self._name(name)
        self._whole = whole
        yield from self._want_effects(iter(list(self._wanted)))
        yield from self._want_effects(whole.walk())

    def _want_effects(self, quads: Iterator[Quad]) -> Iterator[None]:
        while piece := list(islice(quads, _PIECE)):
            self._take(self._effects(piece))
            yield

    def _effects(self, quads: Iterable[Quad]) -> dict[Quad, bool]:
        """Return the goal for the triples of quads, where it differs from the graph or from the previous goal."""
        assert self._whole is not None  # noqa: S101
        graph, wanted = self._graph, self._wanted
        return {
            quad: present
            for quad, present in self._whole.effects(quads)
            if quad in wanted or graph.contains(quad) is not present
        }

    def _settle(self) -> None:
        """Update the goal of triples that other updates have changed."""
        for quad in self._unsettled:  # the ids stay valid until a sweep, and no piece sweeps
            self._let_go(quad)
        effects = self._effects(self._unsettled)
        self._unsettled.clear()
        self._take(effects)
        if self._compared:
            self._stale.update(effects)
            self._turned.update(quad for quad, present in effects.items() if self.net.get(quad, present) is not present)

    def _take(self, wanted: Mapping[Quad, bool]) -> None:
        """Set the goal of quads: present or absent. Raises the errors of the checks."""
        mine = self._wanted
        for quad in wanted:
            if quad not in mine:
                self._graph.dictionary.retain_triple(*quad[:3])
                self._order.append(quad)
        mine.update(wanted)
        added = [quad for quad, present in wanted.items() if present]
        for name in {g for _, _, _, g in wanted}:
            self._name(name)
            self._transaction.check(name)
        for name in {g for _, _, _, g in added}:
            self._named[name] = True
        self._check(added, len(mine))

    def _name(self, name: int) -> None:
        if name not in self._named:
            self._graph.dictionary.retain(name)
            self._named[name] = False
            if self._transaction.is_ledger(name):
                raise NotStaged

    def _hold(self, quad: Quad) -> None:
        s, p, o, g = quad
        self._graph.dictionary.retain_triple(s, p, o)
        self._graph.dictionary.retain(g)

    def _let_go(self, quad: Quad) -> None:
        s, p, o, g = quad
        self._graph.dictionary.release_triple(s, p, o)
        self._graph.dictionary.release(g)

    def _compare(self) -> Iterator[None]:
        """Compare the goal with the graph, and build and encode the difference."""
        if self._compared:
            self._freeing = self._drop(applied=False)
            yield from self._freeing
        self._compared += 1
        self._stale.clear()
        self._unsearched.clear()
        self._turned.clear()
        quads = self._order
        for first in range(0, len(quads), _ENCODED):
            added, removed = len(self._added), len(self._removed)
            for quad in quads[first : first + _ENCODED]:
                present = self._wanted[quad]
                if self._graph.contains(quad) is not present:
                    self._change(quad, present=present)
            self.encoded.add(self._added[added:], self._removed[removed:])
            if (first + _ENCODED) % _COMPARED < _ENCODED:
                yield
        yield from self._join()

    def _join(self) -> Iterator[None]:
        """Merge the new quads with the affected parts of the graphs' indexes."""
        self._joined += 1
        self._disturbed = False
        for name, index in self._added_index.items():
            into = self._graph.graphs.get(name)
            if into is not None:
                yield from into.settle()
                merge = self._merges[name] = TripleMerge(into, index)
                yield from merge.prepare()

    def _join_again(self) -> Iterator[None]:
        yield from self._take_all_back()
        yield from self._join()

    def _take_all_back(self) -> Iterator[None]:
        for merge in self._merges.values():
            yield from merge.take_all_back()
        self._merges.clear()

    def _take_back(self, quad: Quad) -> None:
        """Take a quad out of the prepared merge, because it has changed or changes now."""
        s, p, o, g = quad
        merge = self._merges.get(g)
        if merge is not None:
            merge.take_back(s, p, o)

    def _change(self, quad: Quad, *, present: bool) -> None:
        s, p, o, g = quad
        self.net[quad] = present
        indexes = self._added_index if present else self._removed_index
        index = indexes.get(g)
        if index is None:
            index = indexes[g] = TripleIndex()
        index.add(s, p, o)
        for ids, term_id in zip(self.ids, quad, strict=True):
            ids.add(term_id)
        (self._added if present else self._removed).append(self._statement(quad))

    def _statement(self, quad: Quad) -> Statement:
        terms = self._graph.dictionary.terms
        s, p, o, g = quad
        return (terms[s], terms[p], terms[o], terms[g] if g != DEFAULT_GRAPH else None)  # type: ignore[return-value]

    def _look_again(self) -> None:
        """Compare the quads again that other updates have changed or whose goal was reversed."""
        gone = False
        added, removed = len(self._added), len(self._removed)
        for quad in self._stale:
            self._take_back(quad)
            present, before = self._wanted[quad], self.net.get(quad)
            missing = self._graph.contains(quad) is not present
            if before is not None and (before is not present or not missing):
                s, p, o, g = quad
                del self.net[quad]
                (self._added_index if before else self._removed_index)[g].remove(s, p, o)
                gone = True
            if missing and quad not in self.net:
                self._change(quad, present=present)
        self.encoded.add(self._added[added:], self._removed[removed:])
        if self._turned:
            self._encode_again()
        if gone:
            self._added, self._removed = self._statements(self.net)

    def _encode_again(self) -> None:
        """Encode the groups again whose quads have the opposite goal now: their old lines would have an effect."""
        quads = self._order
        for number in {number // _ENCODED for number, quad in enumerate(quads) if quad in self._turned}:
            piece = quads[number * _ENCODED : (number + 1) * _ENCODED]
            self.encoded.replace(number, *self._statements(quad for quad in piece if quad in self.net))

    def _statements(self, quads: Iterable[Quad]) -> tuple[list[Statement], list[Statement]]:
        """Return the added and the removed quads of the effective change, as terms."""
        added: list[Statement] = []
        removed: list[Statement] = []
        for quad in quads:
            (added if self.net[quad] else removed).append(self._statement(quad))
        return added, removed


def _freed(
    merges: list[TripleMerge],
    indexes: list[TripleIndex],
    statements: list[list[Statement]],
    quads: list[set[Quad]],
    others: list[set[int] | dict[Quad, bool]],
) -> Iterator[None]:
    """Free the parts of a comparison. Yields after each piece. It empties `others`, too."""
    while merges:
        yield from merges.pop().release()
    while indexes:
        yield from indexes.pop().free()
    spare: list[Statement] = []
    while statements:
        each = statements.pop()  # it may have other users, so it must not be changed
        for first in range(0, len(each), _PIECE):
            spare += each[first : first + _PIECE]
            yield
    del each
    while spare:
        del spare[-_PIECE:]
        yield
    while quads:  # those of another large change have no other user
        for _ in range(min(_PIECE, len(quads[-1]))):
            quads[-1].pop()
        if not quads[-1]:
            quads.pop()
        yield
    while others:
        if not (other := others[-1]):
            others.pop()
        elif isinstance(other, set):
            for _ in range(min(_PIECE, len(other))):
                other.pop()
        else:
            for _ in range(min(_PIECE, len(other))):
                other.popitem()
        yield
