"""Count windows: the content is the last elements, or the last triples, in the order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from edge.streams.model import Element, WindowDefinition, WindowKind
from edge.streams.slide import Slide


class LastElements:
    """The shortest sequence of last elements that counts at least `size`, or all if they count less."""

    def __init__(self, kind: WindowKind, size: int) -> None:
        """`kind`: COUNT counts elements, TRIPLES counts their triples. An element without triples counts 0."""
        self._counts_triples = kind is WindowKind.TRIPLES
        self._size = size
        self._sum = 0
        self.elements: deque[Element] = deque()

    def count(self, element: Element) -> int:
        """Return how much an element counts."""
        return len(element.triples) if self._counts_triples else 1

    def append(self, batch: Iterable[Element]) -> tuple[list[Element], list[Element]]:
        """Append elements, and return those of them that stay, and the earlier ones that leave."""
        before = len(self.elements)
        entering: list[Element] = []
        removed: list[Element] = []
        for element in batch:
            entering.append(element)
            self.elements.append(element)
            self._sum += self.count(element)
            while self._sum - self.count(self.elements[0]) >= self._size:
                removed.append(self.elements.popleft())
                self._sum -= self.count(removed[-1])
        return entering[max(0, len(removed) - before) :], removed[:before]


class Arrivals:
    """Times of arrivals: an element arrives at the greatest time seen so far, that of elements and of slides."""

    def __init__(self, begin: int) -> None:
        self.latest = begin

    def time(self, element: Element) -> int:
        """Return the time of arrival of the next element."""
        self.advance(element.time)
        return self.latest

    def advance(self, time: int) -> None:
        """Let time pass."""
        self.latest = max(self.latest, time)


class CountContent:
    """The last elements of those that arrived before the end."""

    def __init__(self, definition: WindowDefinition, end: int) -> None:
        """`end`: the first end, to which the first move is made."""
        self._last = LastElements(definition.kind, definition.size)
        self._arrivals = Arrivals(end - 1)
        self._pending: deque[tuple[int, Element]] = deque()

    @property
    def elements(self) -> Collection[Element]:
        """Elements in the content, in the order of arrival."""
        return self._last.elements

    def take(self, element: Element) -> None:
        """Take an element. One that counts nothing takes no part."""
        if self._last.count(element):
            self._pending.append((self._arrivals.time(element), element))

    def move(self, end: int) -> tuple[Sequence[Element], Sequence[Element]]:
        """Let elements enter that arrived before `end`, and return those that enter and those that leave."""
        batch: list[Element] = []
        while self._pending and self._pending[0][0] < end:
            batch.append(self._pending.popleft()[1])
        self._arrivals.advance(end - 1)
        return self._last.append(batch)

    def next_change(self) -> int | None:
        """Return the time of the next arrival."""
        return self._pending[0][0] if self._pending else None

    def needed_from(self) -> int | None:
        """Return the least time of the elements inside and of those that have yet to enter."""
        return min((element.time for element in (*self.elements, *(each for _, each in self._pending))), default=None)


class CountWindow:
    """The last elements, as of the last report: one is made when `step` further elements or triples have arrived.

    An element is not split: the triples of an element that exceed `step` do not count for the next report.
    """

    def __init__(self, definition: WindowDefinition, begin: int, history: Iterable[Element]) -> None:
        """`history`: elements that arrived until `begin`, in the order of arrival. They do not count for the first
        report.
        """
        self.definition = definition
        self._last = LastElements(definition.kind, definition.size)
        self._arrivals = Arrivals(begin)
        self._reports: deque[tuple[int, Collection[Element]]] = deque()
        self._start_batch()
        for element in history:
            if self._arrivals.latest == begin and element.time <= begin:
                self._last.append([element] if self._last.count(element) else [])
            else:
                self.take(element)

    def _start_batch(self) -> None:
        """Begin to count for the next report. Of many elements, only those are held that will be in the content."""
        self._batch = LastElements(self.definition.kind, self.definition.size)
        self._counted = 0

    @property
    def content(self) -> Collection[Element]:
        """Elements in the content, in the order of arrival."""
        return self._last.elements

    def due(self) -> int | None:
        """Return the time of arrival that made the next report due."""
        return self._reports[0][0] if self._reports else None

    def take(self, element: Element) -> None:
        """Count an element. One without triples takes no part in a window of triples."""
        if count := self._last.count(element):
            time = self._arrivals.time(element)
            self._batch.append([element])
            self._counted += count
            if self._counted >= self.definition.step:
                self._reports.append((time, self._batch.elements))
                self._start_batch()

    def slides(self, now: int) -> Iterator[Slide]:
        """Yield the reports that are due up to and including `now`."""
        while self._reports and self._reports[0][0] <= now:
            time, batch = self._reports.popleft()
            yield Slide(time, *self._last.append(batch), True)
        self._arrivals.advance(now)

    def enter_late(self, begin: int) -> tuple[Sequence[Element], Sequence[Element]]:
        """Return nothing: no element is late."""
        return (), ()

    def skip_to(self, time: int) -> int:
        """Return 0: a report of this window has an element."""
        return 0

    def needed_from(self) -> int | None:
        """Return the least time of the elements inside and of those that have yet to enter."""
        waiting = (element for _, batch in self._reports for element in batch)
        return min((element.time for element in (*self.content, *waiting, *self._batch.elements)), default=None)
