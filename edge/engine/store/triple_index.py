"""The triples of one graph: two nested indexes over interned terms, and the merge of two of them.

The indexes are by subject and predicate, and by predicate and object. A look-up by object alone probes every predicate,
since a graph has few predicates. A third index would slow down every update and take half as much memory again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from edge.engine.store.index_merge import Branch, Index, IndexMerge, Leaf, move

Quad = tuple[int, int, int, int]
"""Subject, predicate, object, graph: ids of the dictionary."""

SOME: Final = -1
"""Placeholder for the id of a term that is given but not known (`TripleIndex.most`)."""

_EMPTY: Final[Branch] = {}

_MOVED: Final = 2_000
"""Parts of a merged index that are moved in a piece: less than a millisecond."""


def _insert(index: Index, first: int, second: int, third: int) -> int:
    """Insert an entry.

    Returns 0 if it existed, 1 if it is the only one with this first and second, and 2 if there are others.
    """
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
    """Delete an entry.

    Returns 0 if it did not exist, 1 if no other has the same first and second, and 2 if others remain.
    """
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
        # A leaf with one entry is stored as a plain int: most pairs of subject and predicate have one object.
        return 0
    leaf.remove(third)
    if len(leaf) == 1:
        branch[second] = leaf.pop()
    return 2


def _subtract(index: Index, other: Index, left: dict[int, int]) -> None:
    """Remove the entries of `other`, all of which exist in `index`.

    Adds to `left`, for each second, the number of its pairs (first, second) in `other` that still have entries in
    `index`.
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
            assert isinstance(rest, set)  # noqa: S101  `leaf` is a part of it
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


class PendingTriples(NamedTuple):
    """Triples that a merge has added, before they are moved into `TripleIndex.spo` and `pos`."""

    spo: Index
    pos: Index


class TripleIndex:
    """The triples of one graph."""

    __slots__ = ("_further", "_predicates", "pending", "pos", "size", "spo")

    def __init__(self) -> None:
        # Only this class changes them. Generated code reads them directly, because it runs for every reading.
        self.spo: Index = {}
        """Subject -> predicate -> objects."""
        self.pos: Index = {}
        """Predicate -> object -> subjects."""
        self.pending: PendingTriples | None = None
        """Other triples of the graph. No pair of subject and predicate, or predicate and object, is in both."""
        self._predicates: dict[int, int] = {}
        self._further: dict[int, int] = {}
        """By predicate: its triples beyond the first of each subject."""
        self.size = 0

    def contains(self, s: int, p: int, o: int) -> bool:
        """Return whether the index has the triple."""
        leaf = self.objects(s, p)
        return leaf == o if isinstance(leaf, int) else leaf is not None and o in leaf

    def add(self, s: int, p: int, o: int) -> bool:
        """Add a triple. Returns False if it existed."""
        if self.pending is not None:
            self._fetch(s, p, o)
        inserted = _insert(self.spo, s, p, o)
        if not inserted:
            return False
        # `most` needs this count to bound the matches of an unknown subject.
        if inserted == 2:
            self._further[p] = self._further.get(p, 0) + 1
        _insert(self.pos, p, o, s)
        self._predicates[p] = self._predicates.get(p, 0) + 1
        self.size += 1
        return True

    def add_all(self, quads: Iterable[Quad]) -> Iterator[Quad]:
        """Add the triples of quads, whatever their graph. Yields the quads whose triple did not exist.

        The same as `add` for each, without its calls: they take half of the time when a journal is restored.
        """
        spo, pos, counts, further = self.spo, self.pos, self._predicates, self._further
        for quad in quads:
            s, p, o, _ = quad
            if self.pending is not None:
                self._fetch(s, p, o)
            branch = spo.get(s)
            if branch is None:
                spo[s] = {p: o}
            else:
                leaf = branch.get(p)
                if leaf is None:
                    branch[p] = o
                elif isinstance(leaf, int):
                    if leaf == o:
                        continue
                    branch[p] = {leaf, o}
                    further[p] = further.get(p, 0) + 1
                elif o in leaf:
                    continue
                else:
                    leaf.add(o)
                    further[p] = further.get(p, 0) + 1
            branch = pos.get(p)
            if branch is None:
                pos[p] = {o: s}
            else:
                leaf = branch.get(o)
                if leaf is None:
                    branch[o] = s
                elif isinstance(leaf, int):
                    branch[o] = {leaf, s}
                else:
                    leaf.add(s)
            counts[p] = counts.get(p, 0) + 1
            self.size += 1
            yield quad

    def remove(self, s: int, p: int, o: int) -> bool:
        """Remove a triple. Returns False if it did not exist."""
        if self.pending is not None:
            self._fetch(s, p, o)
        deleted = _delete(self.spo, s, p, o)
        if not deleted:
            return False
        if deleted == 2:
            self._further[p] -= 1
        _delete(self.pos, p, o, s)
        left = self._predicates[p] - 1
        if left:
            self._predicates[p] = left
        else:
            del self._predicates[p]
            self._further.pop(p, None)
        self.size -= 1
        return True

    def replace(self, s: int, p: int, old: int, new: int) -> bool:
        """Replace the only object of a subject and predicate. Returns False, without a change, if `old` is not that.

        A new value of a sensor is such a change. It takes half the time of `remove` and `add`.
        """
        if self.pending is not None:
            self._fetch(s, p, old)
            self._fetch(s, p, new)
        branch = self.spo.get(s)
        if branch is None or branch.get(p) != old:
            return False
        if old == new:
            return True
        branch[p] = new
        branch = self.pos[p]
        leaf = branch[old]
        if isinstance(leaf, int):
            del branch[old]
        else:
            leaf.remove(s)
            if len(leaf) == 1:
                branch[old] = leaf.pop()
        there = branch.get(new)
        if there is None:
            branch[new] = s
        elif isinstance(there, int):
            branch[new] = {there, s}
        else:
            there.add(s)
        return True

    def absorb(self, other: TripleIndex) -> None:
        """Add the triples of another index, which must be disjoint and must not be used afterwards."""
        TripleMerge(self, other).apply()

    def take_in(self, other: TripleIndex, met: Mapping[int, int]) -> None:
        """Take the rest of a merged index. `met`: by predicate, the number of subjects that have it in both indexes."""
        for p, count in other._predicates.items():
            self._predicates[p] = self._predicates.get(p, 0) + count
            further = other._further.get(p, 0) + met.get(p, 0)
            if further:
                self._further[p] = self._further.get(p, 0) + further
        self.size += other.size
        if other.spo or other.pos:
            self.pending = PendingTriples(other.spo, other.pos)

    def merges(self, other: TripleIndex) -> tuple[IndexMerge, IndexMerge]:
        """Return the merges of another index into this one: by subject, and by predicate. Call `settle` before."""
        return IndexMerge(self.spo, other.spo), IndexMerge(self.pos, other.pos)

    def subtract(self, other: TripleIndex) -> None:
        """Remove the triples of another index, all of which are in this one."""
        self.settle_at_once()
        left: dict[int, int] = {}
        _subtract(self.spo, other.spo, left)
        _subtract(self.pos, other.pos, {})
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
        """Return the ids of all subjects, predicates and objects."""
        subjects, predicates = self.all_subjects(), self._all_predicates()
        return subjects, predicates, {o for p in predicates for branch in self._of_predicate(p) for o in branch}

    def objects(self, s: int, p: int) -> Leaf | None:
        """Return the objects for a subject and a predicate: None, one id, or a set that must not be changed."""
        branch = self.spo.get(s)
        leaf = None if branch is None else branch.get(p)
        if leaf is None and (pending := self.pending) is not None:
            return pending.spo.get(s, _EMPTY).get(p)
        return leaf

    def subjects(self, p: int, o: int) -> Leaf | None:
        """Return the subjects for a predicate and an object, in the same form as `objects`."""
        branch = self.pos.get(p)
        leaf = None if branch is None else branch.get(o)
        if leaf is None and (pending := self.pending) is not None:
            return pending.pos.get(p, _EMPTY).get(o)
        return leaf

    def settle(self) -> Iterator[None]:
        """Move the triples that the last merge has added. Yields after each piece, and the graph may change then."""
        while self.pending is not None:
            left = _MOVED
            for index, other in zip((self.spo, self.pos), self.pending, strict=True):
                left = move(index, other, left)
            if not any(self.pending):
                self.pending = None
            yield

    def free(self) -> Iterator[None]:
        """Free an index that is not used any more. Yields after each piece: 100,000 triples at once take 30 ms."""
        left = _MOVED
        for index in (self.spo, self.pos):
            while index:
                _, branch = index.popitem()
                while branch:
                    branch.popitem()
                    left -= 1
                    if not left:
                        left = _MOVED
                        yield

    def settle_at_once(self) -> None:
        """Move all these triples."""
        for _ in self.settle():
            pass

    def _fetch(self, s: int, p: int, o: int) -> None:
        """Move the parts that a triple belongs to, before it changes."""
        assert self.pending is not None  # noqa: S101
        for index, other, first, second in ((self.spo, self.pending.spo, s, p), (self.pos, self.pending.pos, p, o)):
            branch = other.get(first)
            leaf = None if branch is None else branch.pop(second, None)
            if leaf is not None:
                index.setdefault(first, {})[second] = leaf
                if not branch:
                    del other[first]

    def _of_subject(self, s: int) -> list[Branch]:
        """Return the branches of a subject."""
        return [branch for index in self._by_subject() if (branch := index.get(s)) is not None]

    def _of_predicate(self, p: int) -> list[Branch]:
        """Return the branches of a predicate."""
        return [branch for index in self._by_predicate() if (branch := index.get(p)) is not None]

    def _by_subject(self) -> Sequence[Index]:
        return (self.spo,) if (pending := self.pending) is None else (self.spo, pending.spo)

    def _by_predicate(self) -> Sequence[Index]:
        return (self.pos,) if (pending := self.pending) is None else (self.pos, pending.pos)

    def match(self, s: int | None, p: int | None, o: int | None) -> Iterator[tuple[int, int, int]]:
        """Yield the triples that match; None matches anything. The graph must not change during the iteration."""
        if s is not None:
            if p is None:
                for branch in self._of_subject(s):
                    for predicate, leaf in branch.items():
                        if o is None:
                            for third in members(leaf):
                                yield s, predicate, third
                        elif leaf == o or (isinstance(leaf, set) and o in leaf):
                            yield s, predicate, o
            elif o is None:
                for third in members(self.objects(s, p)):
                    yield s, p, third
            elif self.contains(s, p, o):
                yield s, p, o
        elif p is not None:
            if o is not None:
                for subject in members(self.subjects(p, o)):
                    yield subject, p, o
            else:
                for branch in self._of_predicate(p):
                    for third, leaf in branch.items():
                        for subject in members(leaf):
                            yield subject, p, third
        elif o is not None:
            for predicate in self._all_predicates():
                for subject in members(self.subjects(predicate, o)):
                    yield subject, predicate, o
        else:
            for index in self._by_subject():
                for subject, branch in index.items():
                    for predicate, leaf in branch.items():
                        for third in members(leaf):
                            yield subject, predicate, third

    def all_subjects(self) -> list[int]:
        """Return all subjects."""
        return _firsts(self.spo, () if self.pending is None else self.pending.spo)

    def _all_predicates(self) -> list[int]:
        return _firsts(self.pos, () if self.pending is None else self.pending.pos)

    def predicates_of(self, s: int) -> list[int]:
        """Return the predicates of a subject."""
        return [p for branch in self._of_subject(s) for p in branch]

    def estimate(self, s: int | None, p: int | None, o: int | None) -> int:
        """Return approximately how many triples `match` would yield, without iterating over them."""
        if s is not None:
            if p is None:
                return sum(map(len, self._of_subject(s)))
            leaf = self.objects(s, p)
            return 0 if leaf is None else 1 if o is not None or isinstance(leaf, int) else len(leaf)
        if p is not None:
            return self._predicates.get(p, 0) if o is None else _length(self.subjects(p, o))
        if o is None:
            return self.size
        return sum([_length(self.subjects(predicate, o)) for predicate in self._all_predicates()])

    def most(self, s: int | None, p: int | None, o: int | None) -> int:
        """Return an upper bound of the triples that `match` yields. An id may be `SOME`: that of a term not known yet.

        Any thread may call it. While another thread changes the graph, the result is approximate.
        """
        predicates = self._predicates
        if p is None or p == SOME:
            # A copy of the predicates, because another thread may add some.
            return min(self.size, sum([self.most(s, each, o) for each in list(predicates)]))
        # The index has the exact number for known terms. For `SOME` the bound is the largest group that the counts
        # allow.
        count = predicates.get(p, 0)
        if s is None and o is None:
            return count
        if s is not None and o is not None:
            return min(1, count)
        if o is None:
            if s == SOME:
                return min(count, self._further.get(p, 0) + 1)
            return _length(self.objects(s, p))  # type: ignore[arg-type]  # s is an id here
        if o == SOME:
            return min(count, max(0, count - sum(map(len, self._of_predicate(p)))) + 1)
        return _length(self.subjects(p, o))


def _firsts(index: Index, pending: Collection[int]) -> list[int]:
    return [*index, *(each for each in pending if each not in index)]


def _length(leaf: Leaf | None) -> int:
    return 0 if leaf is None else 1 if isinstance(leaf, int) else len(leaf)


class TripleMerge:
    """Merge of the triples of one index into another that has none of them, prepared in pieces (see `index_merge`)."""

    def __init__(self, into: TripleIndex, other: TripleIndex) -> None:
        """Until `apply`, `other` must not be used, except for triples passed to `take_back`."""
        self.into = into
        self._other = other
        self._by_subject, self._by_predicate = into.merges(other)

    def prepare(self) -> Iterator[None]:
        """Prepare the merge. Yields after each piece."""
        yield from self._by_subject.prepare()
        yield from self._by_predicate.prepare()

    def take_back(self, s: int, p: int, o: int) -> None:
        """Undo the preparation for a triple that changes, or has changed, in either index."""
        self._by_subject.take_back(s, p)
        self._by_predicate.take_back(p, o)

    def take_all_back(self) -> Iterator[None]:
        """Undo all preparation. Yields after each piece."""
        yield from self._by_subject.take_all_back()
        yield from self._by_predicate.take_all_back()

    def apply(self) -> None:
        """Merge. `other` must not be used afterwards. The caller calls `TripleIndex.settle` in pieces next."""
        self.into.settle_at_once()
        self._by_predicate.merge()
        self._by_subject.merge()
        self.into.take_in(self._other, self._by_subject.met())

    def release(self) -> Iterator[None]:
        """Free the replaced parts. Yields after each piece."""
        yield from self._by_subject.release()
        yield from self._by_predicate.release()
