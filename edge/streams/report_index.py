"""Where the reports of each query are in the store: numbers, rows and sizes in memory.

The rows of reports are in the order of their insertion, so that those of a turn are next to each other in the file. In
the order of their queries, each of them changed a page of its own: ten times as many bytes were written.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from edge.protocol.errors import StorageFailed
from edge.streams.settings import FILE_NAME


class StoredPlace(NamedTuple):
    """A stored report."""

    number: int
    row: int
    """Key of its row."""
    size: int
    """Bytes of its content."""


class _Places(NamedTuple):
    """The reports of a query in the order of their numbers, as columns: an entry takes 24 to 26 bytes."""

    numbers: array[int]
    rows: array[int]
    sizes: array[int]

    def append(self, place: StoredPlace) -> None:
        for column, value in zip(self, place, strict=True):
            column.append(value)

    def pop(self) -> None:
        for column in self:
            column.pop()

    def in_order(self) -> _Places:
        order = sorted(range(len(self.numbers)), key=self.numbers.__getitem__)
        return _Places(*(array("q", map(column.__getitem__, order)) for column in self))


def _places(places: Iterable[StoredPlace] = ()) -> _Places:
    found = _Places(array("q"), array("q"), array("q"))
    for place in places:
        found.append(place)
    return found


_NONE: Final = _places()


class ReportIndex:
    """The reports of all queries. A transaction that fails undoes the changes with `undo_with`."""

    def __init__(
        self, places: Iterable[tuple[str, StoredPlace]], undo_with: Callable[[Callable[[], object]], None]
    ) -> None:
        """`places`: query and place of each report, in any order."""
        self._of: dict[str, _Places] = {}
        self._undo_with = undo_with
        unordered = set()
        for query, place in places:
            found = self._of.get(query)
            if found is None:
                found = self._of[query] = _places()
            elif place.number < found.numbers[-1]:
                unordered.add(query)
            found.append(place)
        for query in unordered:
            self._of[query] = self._of[query].in_order()

    def add(self, query: str, place: StoredPlace) -> None:
        """Add the newest report of a query. Raises `StorageFailed` if its number is not above those of the others."""
        found = self._of.setdefault(query, _places())
        if found.numbers and place.number <= found.numbers[-1]:
            raise StorageFailed(
                f"{FILE_NAME} has report {found.numbers[-1]} of {query}, and cannot store {place.number} after it."
                " Restart the gateway; if this does not help, end the query and register it again"
            )
        found.append(place)
        self._undo_with(found.pop)

    def rows(self, query: str, after: int, before: int) -> array[int]:
        """Return the rows of the reports of a query with numbers above `after` and below `before`, in order."""
        numbers, rows, _ = self._of.get(query, _NONE)
        return rows[bisect_right(numbers, after) : bisect_left(numbers, before)]

    def size(self, query: str, overhead: int) -> int:
        """Return the bytes of the reports of a query. `overhead`: bytes of each in addition to its content."""
        sizes = self._of.get(query, _NONE).sizes
        return sum(sizes) + overhead * len(sizes)

    def remove(self, query: str, before: int) -> array[int]:
        """Remove the reports of a query with numbers below `before`. Returns their rows."""
        found = self._of.get(query, _NONE)
        end = bisect_left(found.numbers, before)
        if end:
            self._set(query, _Places(*(column[end:] for column in found)))
        return found.rows[:end]

    def put_first(self, query: str, places: Iterable[StoredPlace]) -> None:
        """Add reports of a query with numbers below those of its other reports."""
        first, others = _places(places), self._of.get(query, _NONE)
        self._set(query, _Places(*(begin + rest for begin, rest in zip(first, others, strict=True))))

    def _set(self, query: str, places: _Places) -> None:
        # The columns before stay unchanged, for the undo.
        earlier = self._of.pop(query, None)
        if places.numbers:
            self._of[query] = places
        self._undo_with(lambda: self._restore(query, earlier))

    def _restore(self, query: str, places: _Places | None) -> None:
        if places is None:
            self._of.pop(query, None)
        else:
            self._of[query] = places
