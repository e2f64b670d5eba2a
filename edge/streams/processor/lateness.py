"""Which elements are late: reports that were made would have contained them, or would be others."""

from __future__ import annotations

from edge.streams.model import Element, ReportPolicy, WindowKind
from edge.streams.stored_rows import TO_CORRECT
from edge.streams.stream import Stream
from edge.streams.window_graph import WindowGraph
from edge.streams.windows import affected


def missing(stream: Stream, element: Element, time: int) -> int:
    """Return `StoredElement.missing` of a new element. `time`: that up to which all windows have reported."""
    if element.time >= time or not any(_lacks(stream, window, element, time) for window in stream.windows):
        return 0
    return TO_CORRECT if element.time >= time - stream.lateness else time


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
    earlier = [each.time for each in stream.between(element.time - definition.size + 1, element.time)]
    if not earlier:
        return False
    end = earlier[-1] + definition.size
    for each in stream.between(earlier[-1], time + 1):
        if each.time >= end:
            break
        end = each.time + definition.size
    return end <= time
