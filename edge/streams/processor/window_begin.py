"""The begin of a window: new, or with the elements that it had in an earlier process."""

from __future__ import annotations

from collections.abc import Mapping

from edge.streams.model import ReportPolicy, WindowDefinition, WindowKind
from edge.streams.stream import Stream
from edge.streams.window_graph import WindowGraph, ends_sessions, has_slid
from edge.streams.windows import make_window


def begin_window(
    definition: WindowDefinition, stream: Stream, number: int, begins: Mapping[str, tuple[int, int]], now: int
) -> WindowGraph:
    """Make a window that begins now, or with the elements that it had in an earlier process."""
    lateness = stream.lateness
    # For a pause longer than the lateness, sessions that elements can extend are known. See `WindowGraph.refuses`.
    kept = lateness + definition.size if definition.kind is WindowKind.SESSION else lateness
    probe = WindowGraph(make_window(definition, now, kept), number, now, stream.number + 1, lateness)
    earlier = begins.get(probe.key)
    if earlier is None:
        return probe
    begin, first = earlier
    now = max(now, begin)  # it began during a slide that is made again, in which it takes no part
    elements = [
        element
        for element in stream.elements
        if element.number >= first and not probe.refuses(element, stream.missing.get(element.number, 0))
    ]
    taken = [element for element in elements if element.number <= stream.taken]
    counts = definition.kind in (WindowKind.COUNT, WindowKind.TRIPLES) and definition.report in (
        ReportPolicy.CLOSE,
        ReportPolicy.NON_EMPTY,
    )
    if counts or ends_sessions(definition):
        # From an element with which a count began, so that the next report comes when it would have come.
        window = make_window(definition, begin, kept)
        for element in taken:
            window.take(element)
        for _ in window.slides(now):
            pass
    else:
        if not has_slid(definition, begin, now):
            taken = []
        window = make_window(definition, now, kept, taken)
    for element in elements[len(taken) :]:
        window.take(element)
    return WindowGraph(window, number, begin, first, lateness)
