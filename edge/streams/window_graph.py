"""The content of a window as a named graph: the triples of its elements, each of them once."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Final

import pyoxigraph as ox

from edge.streams.model import Element, ReportPolicy, WindowDefinition, WindowKind
from edge.streams.slide import Slide, Window

GRAPHS: Final = "urn:edge:window:"
"""Prefix of the graphs of windows."""


def window_key(each: WindowDefinition) -> str:
    """Return a text that identifies a window."""
    return json.dumps(
        [each.stream, each.kind, each.size, each.step, each.start, each.report, each.period], ensure_ascii=False
    )


class ElementGraph:
    """A named graph with the triples of elements, each of them once."""

    def __init__(self, graph: str) -> None:
        self.graph = ox.NamedNode(graph)
        self._counts: dict[ox.Triple, int] = {}

    def move(self, entering: Iterable[Element], leaving: Iterable[Element]) -> tuple[list[ox.Quad], list[ox.Quad]]:
        """Let elements enter and leave. Returns the quads that are added to the graph, and those that are removed."""
        before: dict[ox.Triple, int] = {}
        counts = self._counts
        for elements, step in ((entering, 1), (leaving, -1)):
            for element in elements:
                # An element is a graph: a triple that it has twice counts once.
                for triple in element.triples:
                    count = counts.get(triple, 0)
                    before.setdefault(triple, count)
                    counts[triple] = count + step
        added = [self._quad(triple) for triple, count in before.items() if not count and counts[triple]]
        removed = [self._quad(triple) for triple, count in before.items() if count and not counts[triple]]
        for triple in before:
            if not counts[triple]:
                del counts[triple]
        return added, removed

    def quads(self) -> list[ox.Quad]:
        """Return all quads of the graph."""
        return [self._quad(triple) for triple in self._counts]

    def empty(self) -> list[ox.Quad]:
        """Return all quads of the graph, which is then empty."""
        quads = self.quads()
        self._counts.clear()
        return quads

    def _quad(self, triple: ox.Triple) -> ox.Quad:
        return ox.Quad(triple.subject, triple.predicate, triple.object, self.graph)


class WindowGraph(ElementGraph):
    """A window that one query or several use."""

    def __init__(self, window: Window, number: int, begin: int, first: int, lateness: int = 0) -> None:
        """`number`: a unique number, for the name of the graph. `begin`: time from which it reports. `first`: number of
        the first element that it takes. `lateness`: that of the stream, in microseconds.
        """
        super().__init__(f"{GRAPHS}{number}")
        self.definition: WindowDefinition = window.definition
        self.begin = begin
        self.first = first
        self.lateness = lateness
        self.window = window
        self.scheduled: int | None = None
        """Time of its next slide, as the engine of the windows knows it."""
        self._batches: deque[int] = deque([first])
        """Numbers of the elements with which a count for a report began."""

    @property
    def key(self) -> str:
        """Text that identifies the definition, for the store."""
        return window_key(self.definition)

    def take(self, element: Element, missing: int = 0) -> None:
        """Take an element, if the window counts it. `missing`: time up to which reports lack it; 0: none."""
        if element.number >= self.first and not self.refuses(element, missing):
            self.window.take(element)

    def refuses(self, element: Element, missing: int) -> bool:
        """Return whether an element came so late that the sessions that it could extend are forgotten."""
        if self.definition.kind is not WindowKind.SESSION or not missing:
            return False
        return element.time <= missing - self.lateness - self.definition.size

    def slide(self, time: int) -> Slide | None:
        """Return the next slide that is due at `time`; None: none is. `move` with its elements changes the graph.

        A count window can have several at one time, each with a report.
        """
        slide = next(self.window.slides(time), None)
        if slide is not None and self._counts_elements and slide.report and slide.entering:
            self._batches.append(slide.entering[-1].number + 1)
        return slide

    def enter_late(self) -> tuple[list[ox.Quad], list[ox.Quad]]:
        """Let late elements enter the content of the last slide. Returns the quads that come and go."""
        return self.move(*self.window.enter_late(self.begin))

    def pass_time(self, time: int) -> None:
        """Let the window know the time, so that it knows which elements are late. Nothing may be due."""
        for _ in self.window.slides(time):
            raise AssertionError("a slide was due")  # pragma: no cover - `advance` came before

    def needed_from(self) -> int | None:
        """Return the earliest time that it needs; None if it needs none, or counts elements."""
        return None if self._counts_elements else self.window.needed_from()

    def needed_number(self) -> int | None:
        """Return the number of the first element that it needs; None if it does not count elements.

        After a restart, a count for a report has to begin where one began.
        """
        if not self._counts_elements:
            return None
        oldest = min((element.number for element in self.window.content), default=self._batches[-1])
        while len(self._batches) > 1 and self._batches[1] <= oldest:
            self._batches.popleft()
        return self._batches[0]

    @property
    def _counts_elements(self) -> bool:
        return self.definition.kind in (WindowKind.COUNT, WindowKind.TRIPLES)


def ends_sessions(definition: WindowDefinition) -> bool:
    """Return whether a window reports the sessions that have ended."""
    return definition.kind is WindowKind.SESSION and definition.report in (ReportPolicy.CLOSE, ReportPolicy.NON_EMPTY)


def is_aligned(definition: WindowDefinition) -> bool:
    """Return whether a window reports at times of equal distance."""
    if definition.report is ReportPolicy.PERIODIC:
        return True
    return definition.kind in (WindowKind.TIME, WindowKind.LANDMARK) and definition.report is not ReportPolicy.CHANGE


def distance(definition: WindowDefinition) -> int:
    """Return the distance of the reports of such a window, in microseconds."""
    return definition.period if definition.report is ReportPolicy.PERIODIC else definition.step


def has_slid(definition: WindowDefinition, begin: int, time: int) -> bool:
    """Return whether a window has had a slide until `time`. Before the first one after its begin it has no content."""
    if not is_aligned(definition):
        return time >= begin
    return (time - definition.start) // distance(definition) * distance(definition) + definition.start > begin
