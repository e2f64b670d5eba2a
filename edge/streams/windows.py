"""Windows over RDF streams: their contents, their reports, and the reports that a late element changes.

Intervals are half-open. A time window that ends at T contains the elements with T - size <= time < T, where T is
`start + k * step` for any integer k. This follows RSP-QL (Dell'Aglio et al., IJSWIS 10(4), 2014) and the reporting
strategies of SECRET (Botan et al., PVLDB 3(1), 2010).

| kind | CLOSE, NON_EMPTY | CHANGE at t | PERIODIC at P |
|---|---|---|---|
| TIME | [T - size, T) at each T | (t - size, t] | [P - size, P) |
| LANDMARK | [start, T) at each T > start | [start, t] | [start, P) |
| COUNT, TRIPLES | the last at each step of arrivals | the last of those that arrived until t | ... before P |
| SESSION | the session that ends, at its end | the session that is open at t | ... just before P |

NON_EMPTY leaves out the reports without elements. P is `start + k * period`; `step` has no effect on PERIODIC and
CHANGE. An element arrives at the greatest time seen so far, that of elements and of slides. A late element has a time
before the last `now`. With CHANGE it enters at once, with all others at the next slide, if it is inside at that time.
"""

from __future__ import annotations

from collections.abc import Iterable

from edge.streams.count_window import CountContent, CountWindow
from edge.streams.model import Element, ReportPolicy, WindowDefinition, WindowKind
from edge.streams.session_window import SessionContent, SessionWindow
from edge.streams.slide import Slide, Window, WindowContent
from edge.streams.time_window import LandmarkContent, TimeContent
from edge.streams.timed_windows import AlignedWindow, ChangingWindow

__all__ = ["Slide", "Window", "affected", "make_window"]

_BY_ARRIVAL = (WindowKind.COUNT, WindowKind.TRIPLES)


def make_window(definition: WindowDefinition, begin: int, lateness: int = 0, history: Iterable[Element] = ()) -> Window:
    """Return a window that reports after `begin` (with CHANGE: from `begin`; times in microseconds).

    `lateness`: greatest span by which the time of an element that arrives is before the last `now`. Only sessions need
    it: they keep ended sessions for so long, because a late element may connect them with the next one.
    `history`: elements that arrived until `begin`, in the order of arrival; their times may be later. The window has
    the content of `begin`, as if it had existed before. A count window counts its first step from `begin`.

    Raises ValueError if a span of the definition is not positive.
    """
    _check(definition)
    if definition.report in (ReportPolicy.CLOSE, ReportPolicy.NON_EMPTY):
        if definition.kind in _BY_ARRIVAL:
            return CountWindow(definition, begin, history)
        if definition.kind is WindowKind.SESSION:
            return SessionWindow(definition, begin, lateness, history)
    if definition.report is ReportPolicy.CHANGE:
        return ChangingWindow(definition, _content(definition, begin + 1, lateness, history), begin)
    last, step = _last_end(definition, begin), _distance(definition)
    first = max(last, definition.start) + step if definition.kind is WindowKind.LANDMARK else last + step
    return AlignedWindow(definition, _content(definition, last, lateness, history), first, step)


def _check(definition: WindowDefinition) -> None:
    """Raise ValueError if a span that the window needs is not positive."""
    needs_step = definition.kind is not WindowKind.SESSION and definition.report in (
        ReportPolicy.CLOSE,
        ReportPolicy.NON_EMPTY,
    )
    needed = {
        "size": definition.kind is not WindowKind.LANDMARK,
        "step": needs_step,
        "period": definition.report is ReportPolicy.PERIODIC,
    }
    for name, is_needed in needed.items():
        if is_needed and (value := getattr(definition, name)) < 1:
            raise ValueError(f"`{name}` of a {definition.kind} window is {value}. Set it to 1 or more.")


def _distance(definition: WindowDefinition) -> int:
    """Return the distance of the reports of a window that reports at aligned times."""
    return definition.period if definition.report is ReportPolicy.PERIODIC else definition.step


def _last_end(definition: WindowDefinition, time: int) -> int:
    """Return the last aligned time at or before `time`."""
    step = _distance(definition)
    return definition.start + (time - definition.start) // step * step


def _content(definition: WindowDefinition, end: int, lateness: int, history: Iterable[Element]) -> WindowContent:
    """Return the content of a window just before `end`."""
    content: WindowContent
    if definition.kind is WindowKind.TIME:
        content = TimeContent(definition.size, end)
    elif definition.kind is WindowKind.LANDMARK:
        content = LandmarkContent(definition.start)
    elif definition.kind is WindowKind.SESSION:
        content = SessionContent(definition.size, end, lateness)
    else:
        content = CountContent(definition, end)
    for element in history:
        content.take(element)
    content.move(end)
    return content


def affected(definition: WindowDefinition, element: Element, begin: int, until: int) -> range:
    """Return the times in (begin, until] of reports of a time or landmark window whose content contains an element.

    Empty for other windows: for those that count by arrival no element is late, and the reports of sessions depend on
    other elements. Empty for CHANGE: a late element enters at once, and past reports stay as they are.
    """
    if definition.kind not in (WindowKind.TIME, WindowKind.LANDMARK) or definition.report is ReportPolicy.CHANGE:
        return range(0)
    if definition.kind is WindowKind.LANDMARK and element.time < definition.start:
        return range(0)
    last = until if definition.kind is WindowKind.LANDMARK else min(until, element.time + definition.size)
    step = _distance(definition)
    return range(_last_end(definition, max(begin, element.time)) + step, last + 1, step)
