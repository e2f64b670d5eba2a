"""Corrections: changes by late elements in the reports that were made before they arrived.

The windows of a query pass over the kept elements again, once without and once with the late ones. Both use the live
data of now, so only the late elements make a difference. Windows that count by arrival keep their present content, and
windows that report on change do not get the late elements: their own reports stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyoxigraph as ox

from edge.engine.requests import SubscribeFailed, SubscriberNotification
from edge.protocol.bag import Bag
from edge.protocol.results import Row
from edge.streams.model import Element, ReportPolicy, WindowDefinition, WindowKind
from edge.streams.pattern_constants import can_change
from edge.streams.running_query import RunningQuery
from edge.streams.slide import Window
from edge.streams.stream import Stream
from edge.streams.window_engine import WindowEngine
from edge.streams.window_graph import GRAPHS, ElementGraph, WindowGraph, distance, ends_sessions, has_slid, is_aligned
from edge.streams.windows import affected, make_window

MOST: Final = 1_000
"""Reports of a query that are corrected at once: the latest ones."""
_GRAPHS: Final = f"{GRAPHS}past:"
_BY_ARRIVAL: Final = (WindowKind.COUNT, WindowKind.TRIPLES)


Late = Mapping[str, Mapping[int, Element]]
"""Late elements by the IRIs of their streams and their numbers."""


def affected_span(query: RunningQuery, late: Late, until: int) -> tuple[int, int] | None:
    """Return the times of the first and the last report up to `until` (microseconds) that late elements may change.

    None: they change no report.
    """
    windows = [window.definition for window in query.windows if window.definition.stream in late]
    elements = [element for window in windows for element in late[window.stream].values()]
    return _span(query, late, until) if can_change(query.constants, windows, elements) else None


def corrections(
    query: RunningQuery, engine: WindowEngine, streams: Mapping[str, Stream], late: Late, span: tuple[int, int]
) -> Iterator[tuple[int, Bag[Row]]]:
    """Yield the times of reports that late elements change, and the change of the report.

    `streams`: all streams, which have the late elements already. `span`: see `affected_span`. The query continues as if
    it had reported that.
    """
    first, last = span
    begin = query.base_before(first) if query.compares else first - 1
    before = _Replay(query, engine, streams, begin, late, has_late=False)
    after = _Replay(query, engine, streams, begin, late, has_late=True)
    try:
        reports = before.reports(first, last), after.reports(first, last)
        yield from _differences(*reports)
    finally:
        before.close()
        after.close()
    if query.compares:
        query.shift(after.reported.since(before.reported))


def elements_read(query: RunningQuery, streams: Mapping[str, Stream], span: tuple[int, int]) -> int:
    """Return the number of elements that `corrections` passes over, about."""
    first, last = span
    windows = [window.definition for window in query.windows if window.definition.kind not in _BY_ARRIVAL]
    return sum(streams[each.stream].number_between(_earliest(each, first), last + 1) for each in windows)


def _differences(
    before: Iterator[tuple[int, Bag[Row]]], after: Iterator[tuple[int, Bag[Row]]]
) -> Iterator[tuple[int, Bag[Row]]]:
    """Yield the differences of two sequences of reports, in the order of time."""
    one, other = next(before, None), next(after, None)
    while one is not None or other is not None:
        time = min(each[0] for each in (one, other) if each is not None)
        old: Bag[Row] = Bag()
        new: Bag[Row] = Bag()
        if one is not None and one[0] == time:
            old, one = one[1], next(before, None)
        if other is not None and other[0] == time:
            new, other = other[1], next(after, None)
        if change := new.since(old):
            yield time, change


def _span(query: RunningQuery, late: Late, until: int) -> tuple[int, int] | None:
    begins: list[int] = []
    ends: list[int] = []
    for window in query.windows:
        definition = window.definition
        for element in late.get(definition.stream, {}).values():
            if definition.kind is WindowKind.SESSION and definition.report is not ReportPolicy.CHANGE:
                begins.append(element.time + 1)
                ends.append(until)
            elif times := affected(definition, element, window.begin, until):
                begins.append(times[0])
                ends.append(times[-1])
    if not begins:
        return None
    # The reports of the other windows of a query, and the next report of changes, depend on that of one window.
    last = until if query.compares or len(query.windows) > 1 else max(ends)
    steps = [distance(window.definition) for window in query.windows if is_aligned(window.definition)]
    first = max(min(begins), query.begun + 1, query.marks[0].time + 1, last - MOST * min(steps, default=last))
    return (first, last) if first <= last else None


class _Replay:
    """A query that passes over kept elements again. All windows have graphs of their own."""

    _count = 0

    def __init__(
        self,
        query: RunningQuery,
        engine: WindowEngine,
        streams: Mapping[str, Stream],
        begin: int,
        late: Late,
        *,
        has_late: bool,
    ) -> None:
        """`begin`: time of a report, from which it goes on. `has_late`: whether it gets the late elements."""
        self._query = query
        self._engine = engine
        self._streams = streams
        self._begin = begin
        self._late = late
        self._has_late = has_late
        self.reported: Bag[Row] = Bag()
        """The result at the last report."""
        self._change: Bag[Row] = Bag()
        _Replay._count += 1
        self._graphs = [ElementGraph(f"{_GRAPHS}{_Replay._count}:{place}") for place in range(len(query.windows))]
        self._spuid = query.subscribe(engine, [graph.graph.value for graph in self._graphs], self._sink)

    def close(self) -> None:
        """Remove the contents."""
        self._engine.unsubscribe(self._spuid)
        for graph in self._graphs:
            self._engine.change((), graph.empty())

    def reports(self, first: int, last: int) -> Iterator[tuple[int, Bag[Row]]]:
        """Yield the reports from `first` up to `last`."""
        windows, to_come = self._windows(last)
        self._settle()
        while True:
            due = min((time for window in windows if window and (time := window.due()) is not None), default=last + 1)
            while to_come and to_come[-1][0] < min(due, last + 1):
                time, place, element = to_come.pop()
                if window := windows[place]:
                    for _ in window.slides(time):
                        pass
                    window.take(element)
                    due = min(due, window.due() or due)
            if due > last:
                return
            if self._slide(windows, due):
                output = self._query.output(self._change)
                self._settle()
                if due >= first:
                    yield due, Bag(self.reported) if output is None else output

    def _settle(self) -> None:
        self.reported.merge(self._change)
        self._change = Bag()

    def _slide(self, windows: list[Window | None], time: int) -> bool:
        """Let the windows slide that are due at a time. Returns whether one of them reports."""
        reports = False
        added: list[ox.Quad] = []
        removed: list[ox.Quad] = []
        for graph, window in zip(self._graphs, windows, strict=True):
            if window is None or window.due() != time:
                continue
            entering: list[Element] = []
            leaving: list[Element] = []
            for slide in window.slides(time):
                entering += slide.entering
                leaving += slide.leaving
                reports |= slide.report
            come, gone = graph.move(entering, leaving)
            added += come
            removed += gone
        self._engine.change(added, removed)
        return reports

    def _windows(self, last: int) -> tuple[list[Window | None], list[tuple[int, int, Element]]]:
        """Return the windows as they were at the begin, None for those that stay as they are; and the elements that
        came too late: when and to which window, the last one first.
        """
        windows: list[Window | None] = []
        to_come: list[tuple[int, int, Element]] = []
        for place, (graph, present) in enumerate(zip(self._graphs, self._query.windows, strict=True)):
            window, content = None, list(present.window.content)
            if present.definition.kind not in _BY_ARRIVAL:
                window, late = self._window(present, last)
                content = list(window.content)
                to_come += ((time, place, element) for time, element in late)
            windows.append(window)
            self._engine.change(*graph.move(content, ()))
        return windows, sorted(to_come, reverse=True)

    def _window(self, present: WindowGraph, last: int) -> tuple[Window, list[tuple[int, Element]]]:
        definition, begin = present.definition, self._begin
        stream = self._streams[definition.stream]
        has_history = has_slid(definition, present.begin, begin)
        history: list[Element] = []
        later: list[Element] = []
        too_late: list[tuple[int, Element]] = []
        for element in stream.between(_earliest(definition, begin), last + 1):
            missing = stream.missing.get(element.number, 0)
            if element.number < present.first or present.refuses(element, missing) or self._lacks(definition, element):
                continue
            if missing > begin:
                too_late.append((missing, element))
            elif element.time < begin and has_history:
                history.append(element)
            else:
                later.append(element)
        kept = last - begin + stream.lateness + 2 * definition.size
        if ends_sessions(definition):
            # Sessions that ended before the window began are not in its content.
            window = make_window(definition, present.begin, kept)
            for element in history:
                window.take(element)
            for _ in window.slides(begin):
                pass
        else:
            window = make_window(definition, begin, kept, history)
        for element in later:
            window.take(element)
        return window, too_late

    def _lacks(self, definition: WindowDefinition, element: Element) -> bool:
        """Return whether a window does not get an element."""
        if element.number not in self._late.get(definition.stream, ()):
            return False
        return not self._has_late or definition.report is ReportPolicy.CHANGE

    def _sink(self, notification: SubscriberNotification | SubscribeFailed) -> None:
        if isinstance(notification, SubscriberNotification):
            delta = notification.delta
            self._change.merge(Bag.of(delta.added, delta.removed))


def _earliest(definition: WindowDefinition, begin: int) -> int | None:
    """Return the time of the first element that a window needs from `begin` on; None: all that are kept."""
    if definition.kind is WindowKind.LANDMARK:
        return definition.start
    if definition.kind is WindowKind.SESSION:
        return None
    step = 0 if definition.report is ReportPolicy.CHANGE else distance(definition)
    return begin - step - definition.size
