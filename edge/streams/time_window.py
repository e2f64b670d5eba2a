"""Time and landmark windows: the content is the elements of a span of time."""

from __future__ import annotations

from collections.abc import Collection

from edge.streams.element_queue import ElementQueue
from edge.streams.model import Element


class TimeContent:
    """Elements with a time in [end - size, end)."""

    def __init__(self, size: int, end: int) -> None:
        """`size`: microseconds. `end`: the first end, to which the first move is made."""
        self._size = size
        self._end = end
        self._inside: dict[int, Element] = {}
        self._pending = ElementQueue()
        self._leaving = ElementQueue()

    @property
    def elements(self) -> Collection[Element]:
        """Elements in the content, in the order in which they entered."""
        return self._inside.values()

    def take(self, element: Element) -> None:
        """Take an element, unless it is too old for all contents to come."""
        if element.time >= self._end - self._size:
            self._pending.push(element)

    def move(self, end: int) -> tuple[list[Element], list[Element]]:
        """Move the end of the span, and return the elements that enter and those that leave."""
        self._end = end
        begin = end - self._size
        leaving = self._leaving.pop_before(begin)
        for element in leaving:
            del self._inside[element.number]
        # An element may come and go within one long move, for example after a pause of the process.
        entering = [element for element in self._pending.pop_before(end) if element.time >= begin]
        for element in entering:
            self._inside[element.number] = element
            self._leaving.push(element)
        return entering, leaving

    def next_change(self) -> int | None:
        """Return the time at which the next element enters or leaves."""
        pending, leaving = self._pending.first(), self._leaving.first()
        times = [max(pending.time, self._end - 1)] if pending else []
        if leaving:
            times.append(leaving.time + self._size)
        return min(times, default=None)

    def needed_from(self) -> int | None:
        """Return the begin of the span."""
        return self._end - self._size


class LandmarkContent:
    """Elements with a time in [start, end)."""

    def __init__(self, start: int) -> None:
        self._start = self._end = start
        self._inside: list[Element] = []
        self._pending = ElementQueue()

    @property
    def elements(self) -> Collection[Element]:
        """Elements in the content, in the order in which they entered."""
        return self._inside

    def take(self, element: Element) -> None:
        """Take an element, unless it is before the landmark."""
        if element.time >= self._start:
            self._pending.push(element)

    def move(self, end: int) -> tuple[list[Element], list[Element]]:
        """Move the end of the span, and return the elements that enter. None leaves."""
        self._end = end
        entering = self._pending.pop_before(end)
        self._inside += entering
        return entering, []

    def next_change(self) -> int | None:
        """Return the time at which the next element enters."""
        pending = self._pending.first()
        return max(pending.time, self._end - 1) if pending else None

    def needed_from(self) -> int | None:
        """Return the landmark."""
        return self._start
