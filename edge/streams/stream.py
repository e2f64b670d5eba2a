"""One stream: the elements that its windows still need, in memory as in the store."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from edge.streams.model import Element
from edge.streams.observations import OBSERVATIONS
from edge.streams.stored_rows import TO_CORRECT, StoredElement, StoredStream
from edge.streams.window_graph import WindowGraph


class Stream:
    """A registered stream."""

    def __init__(self, stored: StoredStream) -> None:
        self.id = stored.id
        self.iri = stored.iri
        self.owner = stored.owner
        self.lateness = stored.lateness
        """Microseconds for which a late element corrects earlier reports."""
        self.query = stored.query
        self.source = f"the query {stored.query}" if stored.query else ""
        """What makes its elements; empty if clients post them."""
        if stored.iri == OBSERVATIONS:
            self.source = "the observations of the gateway"
        self.number = stored.number
        self.taken = stored.taken
        """Number of the last element that the windows had when they slid last."""
        self.held = 0
        """Number of the first element that windows get after the slide or corrections in progress; 0: they have all."""
        self.too_late = stored.too_late
        """Elements that came too late for a report: see `Accepted`."""
        self.size = 0
        """Bytes of the kept elements, as N-Triples."""
        self.windows: dict[WindowGraph, None] = {}
        self.missing: dict[int, int] = {}
        """Times up to which reports lack elements that came too late, by their numbers."""
        self.uncorrected: set[int] = set()
        """Late elements whose corrections are not stored."""
        self._kept: dict[int, tuple[Element, int]] = {}
        self._by_time: list[tuple[int, int]] = []
        self._old: list[int] = []
        """Numbers of elements that only windows of counts may need."""
        self._skipping: Mapping[int, Collection[str]] = {}

    @property
    def elements(self) -> Iterator[Element]:
        """Kept elements in the order of arrival."""
        return (element for element, _ in self._kept.values())

    def element(self, number: int) -> Element:
        """Return a kept element."""
        return self._kept[number][0]

    def between(self, begin: int | None, end: int) -> Iterator[Element]:
        """Yield the kept elements with begin <= time < end in the order of time; None: from the first.

        No element may be kept or forgotten meanwhile.
        """
        for place in range(*self._places(begin, end)):
            yield self._kept[self._by_time[place][1]][0]

    def last_between(self, begin: int, end: int) -> Element | None:
        """Return the last kept element with begin <= time < end, if any."""
        first, last = self._places(begin, end)
        return self._kept[self._by_time[last - 1][1]][0] if first < last else None

    def number_between(self, begin: int | None, end: int) -> int:
        """Return the number of the elements that `between` yields."""
        first, last = self._places(begin, end)
        return max(last - first, 0)

    def _places(self, begin: int | None, end: int) -> tuple[int, int]:
        first = 0 if begin is None else bisect_left(self._by_time, (begin,))
        return first, bisect_left(self._by_time, (end,))

    def keep(self, stored: StoredElement) -> None:
        """Keep an element."""
        element, graph, missing = stored
        self._kept[element.number] = (element, len(graph))
        insort(self._by_time, (element.time, element.number))
        self.size += len(graph)
        if missing == TO_CORRECT:
            self.uncorrected.add(element.number)
        elif missing:
            self.missing[element.number] = missing

    def unneeded(self, earliest: int | None) -> list[int]:
        """Return the numbers of the elements that no window needs any more.

        `earliest`: time of the first element that windows of time and sessions, and corrections, need; None: no element
        that has arrived. Windows of counts need those from a number on.
        """
        numbers = [number for each in self.windows if (number := each.needed_number()) is not None]
        end = len(self._by_time) if earliest is None else bisect_left(self._by_time, (earliest,))
        if end:
            self._old += (number for _, number in self._by_time[:end])
            self._old.sort()
            del self._by_time[:end]
        return self._old[: bisect_left(self._old, min(numbers))] if numbers else list(self._old)

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget elements that `unneeded` has returned, and that are not in the store any more."""
        for number in numbers:
            self.size -= self._kept.pop(number)[1]
            self.missing.pop(number, None)
            self.uncorrected.discard(number)
        self._old = [number for number in self._old if number in self._kept]

    def has(self, number: int) -> bool:
        """Return whether an element is kept."""
        return number in self._kept

    def replace(self, numbers: Iterable[int]) -> None:
        """Forget elements that others have replaced, and that are not in the store any more."""
        gone = set(numbers)
        self._by_time = [each for each in self._by_time if each[1] not in gone]
        self.forget(gone)

    @contextmanager
    def skipping(self, windows: Mapping[int, Collection[str]]) -> Iterator[None]:
        """Let windows not take new elements meanwhile: their keys, by the number of the element."""
        self._skipping = windows
        try:
            yield
        finally:
            self._skipping = {}

    def needed_again(self) -> None:
        """Let a new window need elements that so far only windows of counts needed."""
        for number in self._old:
            insort(self._by_time, (self._kept[number][0].time, number))
        self._old.clear()

    def take(self, elements: Iterable[Element]) -> None:
        """Give elements to the windows."""
        for element in elements:
            skipping = self._skipping.get(element.number, ())
            for window in self.windows:
                if skipping and window.key in skipping:
                    continue
                window.take(element, self.missing.get(element.number, 0))
