"""Bag of rows with signed counts, with which results and their changes are added and subtracted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

R = TypeVar("R", bound=Hashable)


class Bag(dict[R, int]):
    """Rows, each with the number of times that it occurs (a Z-set). No count is zero.

    In a result all counts are positive. In a change a positive count stands for added rows, a negative one for removed
    rows. A result and the changes after it add up to the next result, in any order. Opposite counts cancel out, so a
    merged change has at most the rows of the results before and after it.
    """

    __slots__ = ()

    @classmethod
    def of(cls, added: Iterable[R], removed: Iterable[R] = ()) -> Bag[R]:
        """Return the change that adds and removes these rows. Without removed rows it is the result of these rows."""
        bag = cls(Counter(iter(added)))  # `Counter` counts in C; of a mapping it would take the values
        for row in removed:
            bag.add(row, -1)
        return bag

    def add(self, row: R, count: int = 1) -> int:
        """Add to the count of a row. Return its new count."""
        # On the path of each notification: for a new row, `in` is a sixth faster than `get`.
        if row in self:
            count += self[row]
            if not count:
                del self[row]
                return 0
        elif not count:
            return 0
        self[row] = count
        return count

    def merge(self, change: Mapping[R, int]) -> None:
        """Add all counts of a change."""
        if not self:
            # Copied in C: no count of a change is zero, so nothing needs to be removed.
            self.update(change)
            return
        for row, count in change.items():
            self.add(row, count)

    def since(self, before: Mapping[R, int]) -> Bag[R]:
        """Return the change that leads from `before` to this bag."""
        # A re-evaluation often finds the same result, and dictionaries compare in C.
        if self == before:
            return Bag()
        changed = Bag({row: count - before.get(row, 0) for row, count in self.items() if before.get(row) != count})
        changed.update({row: -count for row, count in before.items() if row not in self})
        return changed

    @property
    def inverse(self) -> Bag[R]:
        """The change that undoes this one."""
        return Bag({row: -count for row, count in self.items()})

    @property
    def added(self) -> tuple[R, ...]:
        """Rows with a positive count, each as often as it counts."""
        return split(self.items())[0]

    @property
    def removed(self) -> tuple[R, ...]:
        """Rows with a negative count, each as often as it counts."""
        return split(self.items())[1]


def split(counted: Iterable[tuple[R, int]]) -> tuple[tuple[R, ...], tuple[R, ...]]:
    """Return the added and the removed ones of rows with signed counts, each as often as it counts."""
    added: list[R] = []
    removed: list[R] = []
    for row, count in counted:
        if count > 0:
            added += (row,) * count
        else:
            removed += (row,) * -count
    return tuple(added), tuple(removed)
