"""Merge an index into a larger one that changes meanwhile, with preparation in small pieces.

The parts that both indexes have are joined ahead of time, as copies, and `merge` then replaces the parts of the larger
index. A caller that changes the larger index before the merge must call `take_back`, which discards the joined copy.

All other parts have no common keys, so they can stay where they are: a reader looks into both dictionaries. `move`
moves them afterwards, in pieces, because adding 100,000 keys to a dictionary takes 20 ms.

Copies of keys are tuples: the garbage collector visits the items of a new tuple of ints once, those of a list twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

Leaf = int | set[int]
Branch = dict[int, Leaf]
Index = dict[int, Branch]

_SMALL: Final = 64
"""Entries up to which a part is copied. Larger parts are rare; `merge` joins them in place."""
_PIECE: Final = 250
"""Parts that are joined in one piece: less than a millisecond."""
_MOST: Final = 4
"""A branch is replaced as a whole if it has this many joined leaves for each other leaf."""


class IndexMerge:
    """Merge of one index into another that has none of its entries. Not thread-safe."""

    def __init__(self, index: Index, other: Index) -> None:
        """`other` must not be used before `merge`, except for entries passed to `take_back`."""
        self._index = index
        self._other = other
        self._branches: Index = {}
        """Joined branches."""
        self._own_branches: Index = {}
        """The branches of `other` that were joined."""
        self._leaves: Index = {}
        """Joined leaves, of branches that are too large to copy."""
        self._own_leaves: Index = {}
        """The leaves of `other` that were joined."""
        self._others: dict[int, set[int]] = {}
        """By first with joined leaves: all seconds of the branch that may be without a joined leaf. Unknown if missing.
        """
        self._incomplete: set[int] = set()
        """Firsts whose seconds have not all been joined or noted in `_others` yet."""
        self._prepared = False
        self._common: dict[int, set[int] | None] = {}
        """First -> seconds in both indexes that are left for `merge`, complete after `prepare`. None: seconds unknown.
        """
        self._met: dict[int, int] = {}
        """By second: number of pairs (first, second) in both indexes, as far as they are joined."""
        self._replaced: list[Branch | set[int]] = []
        """Parts that the merge replaces. `release` frees them in pieces, because freeing all of them at once takes
        long.
        """

    def prepare(self) -> Iterator[None]:
        """Join the common parts. Yields after each piece."""
        for number, first in enumerate(tuple(self._other), 1):
            branch = self._index.get(first)
            if branch is not None and first in self._other:
                if _is_small(branch) and len(self._other[first]) <= _SMALL:
                    self._join_branch(first, branch)
                else:
                    yield from self._join_leaves(first)
            if number % _PIECE == 0:
                yield
        self._prepared = True

    def take_back(self, first: int, second: int) -> None:
        """Discard the joined copy of a pair that changes, or has changed, in either index."""
        own = self._own_branches.pop(first, None)
        if own is None:
            self._leave(first, second)
        else:
            # The whole branch of `other` goes back, so `merge` has to find its common seconds itself.
            self._common[first] = None
            joined = self._branches.pop(first)
            for each, leaf in own.items():
                if joined[each] is not leaf:
                    self._met[each] -= 1
            self._other[first] = own
        others = self._others.get(first)
        if others is not None:
            others.add(second)
        leaves = self._leaves.get(first)
        if leaves is not None and leaves.pop(second, None) is not None:
            self._met[second] -= 1
            self._other.setdefault(first, {})[second] = self._own_leaves[first].pop(second)

    def take_all_back(self) -> Iterator[None]:
        """Discard all joined copies. Yields after each piece."""
        self._prepared = False
        for number, first in enumerate(tuple(self._own_branches), 1):
            self.take_back(first, 0)
            if number % _PIECE == 0:
                yield
        for first, own in self._own_leaves.items():
            for number, second in enumerate(tuple(own), 1):
                self.take_back(first, second)
                if number % _PIECE == 0:
                    yield

    def merge(self) -> None:
        """Merge. `other` keeps the pairs that `move` moves."""
        for first, leaves in self._leaves.items():
            if leaves:
                self._put(first, leaves)
        self._index.update(self._branches)
        index, other = self._index, self._other
        # Without complete preparation every common key must be checked.
        common = self._common if self._prepared else dict.fromkeys(index.keys() & other.keys())
        for first, seconds in common.items():
            branch, more = index.get(first), other.get(first)
            if branch is not None and more is not None:
                for second in branch.keys() & (more.keys() if seconds is None else seconds):
                    if second in more:
                        leaf, further = branch[second], more.pop(second)
                        if isinstance(leaf, int):
                            branch[second] = _union(leaf, further)
                        else:
                            leaf |= _set(further)
                        self._met[second] = self._met.get(second, 0) + 1
                # The smaller one is moved into the larger one: that takes less time, and the larger one seldom grows.
                if len(branch) < len(more):
                    index[first], other[first] = more, branch
        move(index, other, _PIECE)

    def met(self) -> dict[int, int]:
        """Return, by second, the number of pairs (first, second) that both indexes had before the merge."""
        return {second: count for second, count in self._met.items() if count}

    def release(self) -> Iterator[None]:
        """Free the replaced parts. Yields after each piece."""
        while self._replaced:
            del self._replaced[-_PIECE:]
            yield
        for index in (self._branches, self._own_branches):
            while index:
                index.popitem()
                if len(index) % _PIECE == 0:
                    yield
        for branches in (self._leaves, self._own_leaves):
            for branch in branches.values():
                while branch:
                    branch.popitem()
                    if len(branch) % _PIECE == 0:
                        yield
        while self._met:
            self._met.popitem()
            if len(self._met) % _PIECE == 0:
                yield
        for seconds in (*self._others.values(), *filter(None, self._common.values())):
            while seconds:
                seconds.pop()
                if len(seconds) % _PIECE == 0:
                    yield

    def _put(self, first: int, leaves: Branch) -> None:
        """Replace the leaves of a branch by the joined ones."""
        branch = self._index[first]
        # A merge may come before the end of the preparation.
        others = None if first in self._incomplete else self._others.get(first)
        if others is None or _MOST * len(others) > len(leaves):
            branch.update(leaves)
            return
        # Most of the branch is replaced, so the joined leaves become the branch: 80,000 replacements take 4 ms.
        self._leaves[first], self._index[first] = branch, leaves
        for second in others:
            leaf = branch.get(second)
            if leaf is not None:
                leaves.setdefault(second, leaf)  # it may have been joined later

    def _leave(self, first: int, second: int) -> None:
        """Leave a pair to `merge`."""
        seconds = self._common.setdefault(first, set())
        if seconds is not None:
            seconds.add(second)

    def _join_branch(self, first: int, branch: Branch) -> None:
        own = self._other.pop(first)
        joined = {second: leaf if isinstance(leaf, int) else leaf.copy() for second, leaf in branch.items()}
        for second, leaf in own.items():
            before = joined.get(second)
            if before is None:
                joined[second] = leaf
            else:
                joined[second] = _union(before, leaf)
                self._met[second] = self._met.get(second, 0) + 1
        self._branches[first], self._own_branches[first] = joined, own
        self._replaced.append(branch)

    def _join_leaves(self, first: int) -> Iterator[None]:
        self._common.setdefault(first, set())
        branch, more = self._index[first], self._other[first]
        others: set[int] = set()
        if len(branch) < 2 * len(more):
            self._others[first] = others
            self._incomplete.add(first)
        # A copy, because the indexes may change between two pieces. `take_back` notes the seconds that become common.
        for number, second in enumerate(tuple(branch if first in self._others else more), 1):
            before, own = self._index.get(first, {}).get(second), self._other.get(first, {}).get(second)
            if before is not None and own is not None and _size(before) <= _SMALL:
                del self._other[first][second]
                self._leaves.setdefault(first, {})[second] = _union(before, own)
                self._own_leaves.setdefault(first, {})[second] = own
                self._met[second] = self._met.get(second, 0) + 1
                if isinstance(before, set):
                    self._replaced.append(before)
            else:
                others.add(second)
                if before is not None and own is not None:
                    self._leave(first, second)
            if number % _PIECE == 0:
                yield
        self._incomplete.discard(first)


def move(index: Index, other: Index, most: int) -> int:
    """Move up to `most` parts of `other` into `index`. They have no pairs in common. Returns how many more it may."""
    while other and most > 0:
        first, more = other.popitem()
        branch = index.get(first)
        if branch is None:
            if more:
                index[first] = more
            most -= 1
            continue
        for second in tuple(islice(more, most)):
            branch[second] = more.pop(second)
            most -= 1
        if more:
            other[first] = more
    return most


def _is_small(branch: Branch) -> bool:
    return len(branch) <= _SMALL and sum(map(_size, branch.values())) <= _SMALL


def _size(leaf: Leaf) -> int:
    return 1 if isinstance(leaf, int) else len(leaf)


def _union(leaf: Leaf, other: Leaf) -> set[int]:
    return {leaf} | _set(other) if isinstance(leaf, int) else leaf | _set(other)


def _set(leaf: Leaf) -> set[int]:
    return {leaf} if isinstance(leaf, int) else leaf
