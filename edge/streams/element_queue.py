"""Queue of the elements of a stream in the order of their times."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from edge.streams.model import Element


class ElementQueue:
    """Elements in the order of time and number.

    An element that arrives in order costs constant time. One that arrives out of order costs the logarithm of the
    number of such elements.
    """

    def __init__(self) -> None:
        self._ordered: deque[Element] = deque()
        self._out_of_order: list[Element] = []

    def push(self, element: Element) -> None:
        """Insert an element."""
        if self._ordered and element < self._ordered[-1]:
            heappush(self._out_of_order, element)
        else:
            self._ordered.append(element)

    def first(self) -> Element | None:
        """Return the earliest element. None: the queue is empty."""
        if self._out_of_order and not (self._ordered and self._ordered[0] < self._out_of_order[0]):
            return self._out_of_order[0]
        return self._ordered[0] if self._ordered else None

    def pop_before(self, limit: int) -> list[Element]:
        """Remove the elements with a time before `limit` (microseconds), and return them in order."""
        elements: list[Element] = []
        while (element := self.first()) is not None and element.time < limit:
            elements.append(element)
            if self._out_of_order and element is self._out_of_order[0]:
                heappop(self._out_of_order)
            else:
                self._ordered.popleft()
        return elements
