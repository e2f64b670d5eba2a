"""Which elements are late: reports that were made would have contained them, or would be others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge

from edge.streams.model import Element, ReportPolicy, WindowKind
from edge.streams.stored_rows import TO_CORRECT
from edge.streams.stream import Stream
from edge.streams.window_graph import WindowGraph
from edge.streams.windows import affected


class SessionEnds:
    """When sessions of a stream end, for elements that come together: each kept element is visited once.

    One after the other, many late elements of one session would each pass over the whole session.
    """

    def __init__(self, stream: Stream, time: int, added: Iterable[Element] = ()) -> None:
        """`time`: no later element extends a session. `added`: elements that come together and extend sessions."""
        self._stream = stream
        self._time = time
        self._added = sorted(each.time for each in added if each.time <= time)
        self._ends: dict[int, dict[int, int]] = {}
        """Ends of the sessions of the visited times, by pause and time."""

    def of(self, begin: int, pause: int) -> int:
        """Return when a session ends that has an element at `begin`."""
        ends = self._ends.setdefault(pause, {})
        end, visited = begin + pause, []
        for moment in self._times(begin):
            if moment >= end:
                break
            if moment in ends:
                end = ends[moment]
                break
            visited.append(moment)
            end = moment + pause
        ends.update(dict.fromkeys(visited, end))
        return end

    def _times(self, begin: int) -> Iterator[int]:
        """Yield the times of elements from `begin` on, in order."""
        added = self._added
        together = (added[place] for place in range(bisect_left(added, begin), len(added)))
        return merge((each.time for each in self._stream.between(begin, self._time + 1)), together)


def missing(stream: Stream, element: Element, time: int, arrival: int, ends: SessionEnds) -> int:
    """Return `StoredElement.missing` of a new element. `time`: that up to which all windows have reported.

    `arrival`: when the element came. It may have waited since then, and is not later for that. `ends`: without the
    elements that come together.
    """
    if element.time >= time or not any(_lacks(stream, window, element, time, ends) for window in stream.windows):
        return 0
    return TO_CORRECT if element.time >= min(time, arrival) - stream.lateness else time


def is_lost(stream: Stream, element: Element, time: int, ends: SessionEnds) -> bool:
    """Return whether a window on change may lack a new element that it would have contained in time.

    Such windows get late elements at once, and their reports are not corrected. `time`: that of `missing`. `ends`: with
    the elements that come together. Only the next ones could still extend the session of an element that is called
    lost.
    """
    return element.time < time and any(
        window.begin < end <= time
        for window in stream.windows
        if window.definition.report is ReportPolicy.CHANGE and (end := _leaves(window, element, ends)) is not None
    )


def _leaves(window: WindowGraph, element: Element, ends: SessionEnds) -> int | None:
    """Return when a late element leaves a window; None: it stays, or the order of arrival decides."""
    definition = window.definition
    if definition.kind is WindowKind.TIME:
        return element.time + definition.size
    if definition.kind is not WindowKind.SESSION:
        return None
    return ends.of(element.time, definition.size)


def _lacks(stream: Stream, window: WindowGraph, element: Element, time: int, ends: SessionEnds) -> bool:
    """Return whether a report of a window that was made would have contained an element, or would be another."""
    definition = window.definition
    if definition.kind is WindowKind.SESSION and definition.report is ReportPolicy.CHANGE:
        # It enters at once, unless the sessions are forgotten that it could extend.
        return element.time <= time - stream.lateness - definition.size
    if definition.kind is not WindowKind.SESSION:
        return bool(affected(definition, element, window.begin, time))
    if definition.report is ReportPolicy.PERIODIC or element.time + definition.size <= time:
        return True
    # Its session is open. It may extend one that has ended.
    earlier = stream.last_between(element.time - definition.size + 1, element.time)
    return earlier is not None and ends.of(earlier.time, definition.size) <= time
