"""Naive reports of continuous queries: each instant is visited, and each query is evaluated on a new store.

Shares no code with the product except the dataclasses of the model. Times are small numbers of seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pyoxigraph as ox
from window_oracle import WindowOracle

from edge.streams.model import Element, NamedWindow, ReportPolicy, StreamOperator, WindowKind


class Arrival(NamedTuple):
    """An element of a stream, and when it came."""

    stream: str
    element: Element
    now: int
    made: int | None = None
    """When the windows made a slide again that was in progress at the arrival; None: they did not."""

    @property
    def taken(self) -> int:
        """When the windows got it."""
        return self.now if self.made is None else self.made


class Question(NamedTuple):
    """A continuous query. `sparql`: with `GRAPH <name>` for named windows."""

    sparql: str
    operator: StreamOperator
    windows: tuple[NamedWindow, ...]
    begun: int
    live_default: bool
    """Whether the default graph is that of the live data."""


class Content:
    """A window that gets all elements that came within the lateness in time.

    Windows of counts and windows that report on change get the elements when they come.
    """

    def __init__(self, window, begin, lateness):
        self.window = window
        self.lateness = lateness
        self.is_by_arrival = (
            window.kind in (WindowKind.COUNT, WindowKind.TRIPLES) or window.report is ReportPolicy.CHANGE
        )
        self.oracle = WindowOracle(window, begin)
        self.elements = {}

    def comes_at_last(self, arrival):
        return self.is_by_arrival or arrival.element.time < arrival.now - self.lateness

    def take(self, arrival):
        element, lateness = arrival.element, self.lateness
        # The session is forgotten that it could extend.
        forgotten = element.time <= arrival.now - lateness - self.window.size and element.time < arrival.now - lateness
        if arrival.stream == self.window.stream and not (self.window.kind is WindowKind.SESSION and forgotten):
            self.elements[element.number] = element
            self.oracle.take(element)

    def slides(self, now):
        for time, numbers, reports in self.oracle.slides(now):
            yield time, [self.elements[number] for number in numbers], reports


def reports_of(question, arrivals, lateness, live, end):
    """Return (time, rows) of the reports until `end`. `live(time, turn)`: the live triples then."""
    windows = [Content(in_seconds(each.definition), question.begun, lateness) for each in question.windows]
    slides: dict[tuple[int, int, int], list] = {}
    """(place of the window, content, whether it reports), by time, turn and order."""
    for window in windows:
        for arrival in arrivals:
            if not window.comes_at_last(arrival):
                window.take(arrival)
    for turn, arrival in enumerate([*arrivals, None]):
        now = end if arrival is None else arrival.taken
        for place, window in enumerate(windows):
            order = Counter()
            for time, content, reports in window.slides(now):
                slides.setdefault((time, turn, order[time]), []).append((place, content, reports))
                order[time] += 1
            if arrival is not None and window.comes_at_last(arrival):
                window.take(arrival)
    contents: list[list[Element]] = [[] for _ in windows]
    before, found = evaluate(question, contents, live(question.begun, 0)), []
    for time, turn, order in sorted(slides):
        for place, content, _ in slides[time, turn, order]:
            contents[place] = content
        if any(reports for _, _, reports in slides[time, turn, order]):
            result = evaluate(question, contents, live(time, turn))
            found.append((time, selected(question, before, result)))
            before = result
    whole = question.operator is StreamOperator.RSTREAM or question.sparql.startswith("ASK")
    return [(time, rows) for time, rows in found if whole or rows]


def selected(question, before, result):
    if question.operator is StreamOperator.RSTREAM or question.sparql.startswith("ASK"):
        return result
    return result - before if question.operator is StreamOperator.ISTREAM else before - result


def evaluate(question, contents, live):
    """Return the rows of a query on the contents of its windows."""
    store = ox.Store()
    if question.live_default:
        store.extend(ox.Quad(*triple, ox.DefaultGraph()) for triple in live)
    for (name, _), elements in zip(((w.name, w.definition) for w in question.windows), contents, strict=True):
        graph = ox.NamedNode(name) if name else ox.DefaultGraph()
        store.extend(ox.Quad(*triple, graph) for element in elements for triple in element.triples)
    answer = store.query(question.sparql)
    if isinstance(answer, ox.QueryBoolean):
        return Counter([(str(bool(answer)).lower(),)])
    if isinstance(answer, ox.QueryTriples):
        return Counter({tuple(map(str, triple)) for triple in answer})
    return Counter(tuple(None if term is None else str(term) for term in row) for row in answer)


def in_seconds(window):
    """Return a definition whose microseconds are seconds."""
    second = 1_000_000
    counts = window.kind in (WindowKind.COUNT, WindowKind.TRIPLES)
    return replace(
        window,
        size=window.size if counts else window.size // second,
        step=window.step if counts else window.step // second,
        start=window.start // second,
        period=window.period // second,
    )
