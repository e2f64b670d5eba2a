"""Naive slides of windows: each instant is visited, and each content is computed from all elements.

Shares no code with the product except the dataclasses of the model.
"""

from __future__ import annotations

from edge.streams.model import ReportPolicy, WindowKind

CLOSES = (ReportPolicy.CLOSE, ReportPolicy.NON_EMPTY)


class WindowOracle:
    """Gets the same calls as a window. Times are small numbers."""

    def __init__(self, definition, begin):
        self.definition = definition
        self.now = begin
        self.elements = []
        """In the order of arrival."""
        self.arrivals = []
        """The greatest time seen so far, at the arrival of each element."""
        self.content = ()
        self.counted = 0
        self.reported = 0

    def take(self, element):
        if self.definition.kind is WindowKind.TRIPLES and not element.triples:
            return
        self.elements.append(element)
        self.arrivals.append(max(element.time, self.now, *self.arrivals[-1:]))

    def slides(self, now):
        """Return (time, numbers of the elements in the content, whether it reports) of each slide until `now`."""
        found = []
        for time in range(self.now, now + 1):
            for content in self._contents(time):
                changed = content != self.content
                report = changed if self.definition.report is ReportPolicy.CHANGE else True
                if self.definition.report is ReportPolicy.NON_EMPTY and not content:
                    report = False
                self.content = content
                if report or changed:
                    found.append((time, content, report))
        self.now = max(self.now, now)
        return found

    def _contents(self, time):
        """Yield the contents that the window gets at an instant. The first of a call has been visited before."""
        kind, report, is_new = self.definition.kind, self.definition.report, time > self.now
        if report is ReportPolicy.CHANGE:
            yield self.just_before(time + 1)
        elif report is ReportPolicy.PERIODIC:
            if is_new and self.is_end(time, self.definition.period):
                yield self.just_before(time)
        elif kind in (WindowKind.COUNT, WindowKind.TRIPLES):
            yield from self._count_reports(time)
        elif kind is WindowKind.SESSION:
            for session in self.sessions(self.elements):
                if is_new and session[-1].time + self.definition.size == time:
                    yield numbers(session)
        elif is_new and self.is_end(time, self.definition.step):
            yield self.just_before(time)

    def is_end(self, time, distance):
        span = time - self.definition.start
        return span % distance == 0 and (span > 0 or self.definition.kind is not WindowKind.LANDMARK)

    def _count_reports(self, time):
        for position in range(self.reported, len(self.elements)):
            if self.arrivals[position] > time:
                return
            self.reported = position + 1
            self.counted += self.weight(self.elements[position])
            if self.counted >= self.definition.step:
                self.counted = 0
                yield self.last(self.elements[: position + 1])

    def just_before(self, end):
        """Return the content of the elements before `end`."""
        kind, size, start = self.definition.kind, self.definition.size, self.definition.start
        if kind is WindowKind.TIME:
            return numbers(element for element in self.elements if end - size <= element.time < end)
        if kind is WindowKind.LANDMARK:
            return numbers(element for element in self.elements if start <= element.time < end)
        if kind is WindowKind.SESSION:
            sessions = self.sessions(element for element in self.elements if element.time < end)
            return numbers(sessions[-1]) if sessions and sessions[-1][-1].time + size >= end else ()
        return self.last(
            [element for element, arrival in zip(self.elements, self.arrivals, strict=True) if arrival < end]
        )

    def last(self, elements):
        """Return the shortest end of the elements that counts enough, or all."""
        position, count = len(elements), 0
        while position and count < self.definition.size:
            position -= 1
            count += self.weight(elements[position])
        return numbers(elements[position:])

    def weight(self, element):
        return len(element.triples) if self.definition.kind is WindowKind.TRIPLES else 1

    def sessions(self, elements):
        """Return the elements, divided at each pause."""
        ordered = sorted(elements, key=lambda element: element.time)
        pauses = [
            position
            for position in range(1, len(ordered))
            if ordered[position].time - ordered[position - 1].time >= self.definition.size
        ]
        return [
            ordered[begin:end] for begin, end in zip([0, *pauses], [*pauses, len(ordered)], strict=True) if begin < end
        ]


def numbers(elements):
    return tuple(sorted(element.number for element in elements))
