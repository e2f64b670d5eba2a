"""Merging an index into a larger one, prepared in pieces while the larger one changes.

To merge two nested dictionaries is fast where they have no key in common: it is done by `dict.update`, in C. So the
parts that both have are joined ahead of time, as copies, and put in place of the larger one's parts when it is time.
Whoever changes the larger index before that says so, and what was joined there is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

Leaf = int | set[int]
Branch = dict[int, Leaf]
Index = dict[int, Branch]

_SMALL: Final = 64
"""Entries of a part that is copied. Those that have more are few, and are joined when it is time."""
_PIECE: Final = 250
"""Parts that are joined at a time: less than a millisecond."""


class IndexMerge:
    """Of one index into another that has none of its entries. One caller at a time."""

    def __init__(self, index: Index, other: Index) -> None:
        """`other` must not be used any more, but for entries of which `take_back` was told."""
        self._index = index
        self._other = other
        self._branches: Index = {}
        """Joined branches."""
        self._own_branches: Index = {}
        """What the other index has of them."""
        self._leaves: Index = {}
        """Joined leaves of branches that are too large to be copied."""
        self._own_leaves: Index = {}
        """What the other index has of them."""
        self._prepared = False
        self._common: dict[int, set[int] | None] = {}
        """Once it is prepared: all that is left for `merge` of what both have. None: it is not known which parts."""
        self._met: dict[int, int] = {}
        """By second, the pairs of first and second that both have, as far as they are joined."""
        self._replaced: list[Branch | set[int]] = []
        """Parts that are no longer used when it is done: they are freed by `release`, and not in one go."""

    def prepare(self) -> Iterator[None]:
        """Join what is to be joined, piece by piece."""
        for number, first in enumerate(list(self._other), 1):
            branch = self._index.get(first)
            if branch is not None and first in self._other:
                if len(branch) <= _SMALL and sum(map(_size, branch.values())) <= _SMALL:
                    self._join_branch(first, branch)
                else:
                    yield from self._join_leaves(first)
            if number % _PIECE == 0:
                yield
        self._prepared = True

    def take_back(self, first: int, second: int) -> None:
        """Take back what was joined of a pair: it changes in either index, or has changed."""
        own = self._own_branches.pop(first, None)
        if own is None:
            self._leave(first, second)
        else:
            self._common[first] = None
            joined = self._branches.pop(first)
            for each, leaf in own.items():
                if joined[each] is not leaf:
                    self._met[each] -= 1
            self._other[first] = own
        leaves = self._leaves.get(first)
        if leaves is not None and leaves.pop(second, None) is not None:
            self._met[second] -= 1
            self._other.setdefault(first, {})[second] = self._own_leaves[first].pop(second)

    def take_all_back(self) -> Iterator[None]:
        """Take everything back, piece by piece."""
        self._prepared = False
        for number, first in enumerate(list(self._own_branches), 1):
            self.take_back(first, 0)
            if number % _PIECE == 0:
                yield
        for first, own in self._own_leaves.items():
            for number, second in enumerate(list(own), 1):
                self.take_back(first, second)
                if number % _PIECE == 0:
                    yield

    def merge(self) -> dict[int, int]:
        """Merge. Returns, by second, the pairs of first and second that both had."""
        met = {second: count for second, count in self._met.items() if count}
        for first, leaves in self._leaves.items():
            if leaves:
                self._index[first].update(leaves)
        self._index.update(self._branches)
        index, other = self._index, self._other
        common = self._common if self._prepared else dict.fromkeys(index.keys() & other.keys())
        for first, seconds in common.items():
            branch, more = index.get(first), other.get(first)
            if branch is not None and more is not None:
                del other[first]
                for second in branch.keys() & (more.keys() if seconds is None else seconds):
                    if second in more:
                        leaf, further = branch[second], more.pop(second)
                        if isinstance(leaf, int):
                            branch[second] = _union(leaf, further)
                        else:
                            leaf |= _set(further)
                        met[second] = met.get(second, 0) + 1
                branch.update(more)
        index.update(other)
        return met

    def release(self) -> Iterator[None]:
        """Free what is no longer used, piece by piece."""
        while self._replaced:
            del self._replaced[-_PIECE:]
            yield
        for index in (self._branches, self._own_branches, self._leaves, self._own_leaves):
            while index:
                index.popitem()
                if len(index) % _PIECE == 0:
                    yield

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
        for number, second in enumerate(list(self._other[first]), 1):  # another index may change between two pieces
            before, own = self._index.get(first, {}).get(second), self._other.get(first, {}).get(second)
            if before is not None and own is not None and _size(before) <= _SMALL:
                del self._other[first][second]
                self._leaves.setdefault(first, {})[second] = _union(before, own)
                self._own_leaves.setdefault(first, {})[second] = own
                self._met[second] = self._met.get(second, 0) + 1
                if isinstance(before, set):
                    self._replaced.append(before)
            elif before is not None:
                self._leave(first, second)
            if number % _PIECE == 0:
                yield


def _size(leaf: Leaf) -> int:
    return 1 if isinstance(leaf, int) else len(leaf)


def _union(leaf: Leaf, other: Leaf) -> set[int]:
    return {leaf} | _set(other) if isinstance(leaf, int) else leaf | _set(other)


def _set(leaf: Leaf) -> set[int]:
    return {leaf} if isinstance(leaf, int) else leaf
