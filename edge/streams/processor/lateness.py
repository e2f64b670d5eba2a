"""Which elements are late: reports that were made would have contained them, or would be others."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge

from edge.streams.model import Element, ReportPolicy, WindowKind
from edge.streams.stored_rows import TO_CORRECT
from edge.streams.stream import Stream
from edge.streams.window_graph import WindowGraph
from edge.streams.windows import affected


def missing(stream: Stream, element: Element, time: int, arrival: int) -> int:
    """Return `StoredElement.missing` of a new element. `time`: that up to which all windows have reported.

    `arrival`: when the element came. It may have waited since then, and is not later for that.
    """
    if element.time >= time or not any(_lacks(stream, window, element, time) for window in stream.windows):
        return 0
    return TO_CORRECT if element.time >= min(time, arrival) - stream.lateness else time


def is_lost(stream: Stream, element: Element, time: int, added: Iterable[Element]) -> bool:
    """Return whether a window on change may lack a new element that it would have contained in time.

    Such windows get late elements at once, and their reports are not corrected. `time`: that of `missing`. `added`: the
    elements that come together. Only the next ones could still extend the session of an element that is called lost.
    """
    return element.time < time and any(
        window.begin < end <= time
        for window in stream.windows
        if window.definition.report is ReportPolicy.CHANGE
        and (end := _leaves(stream, window, element, time, added)) is not None
    )


def _leaves(stream: Stream, window: WindowGraph, element: Element, time: int, added: Iterable[Element]) -> int | None:
    """Return when a late element leaves a window, if up to `time`; None: it stays, or the order of arrival decides."""
    definition = window.definition
    if definition.kind is WindowKind.TIME:
        return element.time + definition.size
    if definition.kind is not WindowKind.SESSION:
        return None
    return _session_end(stream, element, definition.size, time, added)


def _session_end(stream: Stream, first: Element, pause: int, time: int, added: Iterable[Element] = ()) -> int:
    """Return when the session of an element ends, as the elements from it up to `time` extend it."""
    end = first.time + pause
    together = sorted(each.time for each in added if first.time <= each.time <= time)
    for moment in merge((each.time for each in stream.between(first.time, time + 1)), together):
        if moment >= end:
            break
        end = moment + pause
    return end


def _lacks(stream: Stream, window: WindowGraph, element: Element, time: int) -> bool:
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
    earlier = list(stream.between(element.time - definition.size + 1, element.time))
    return bool(earlier) and _session_end(stream, earlier[-1], definition.size, time) <= time
