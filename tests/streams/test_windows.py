"""Windows against an oracle: any kind, report and alignment, elements in any order, slides at any time."""

from __future__ import annotations

import random

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_oracle import CLOSES, WindowOracle, numbers

from edge.streams.model import Element, ReportPolicy, WindowDefinition, WindowKind
from edge.streams.windows import affected, make_window

TRIPLE = ox.Triple(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), ox.Literal("o"))
BY_ARRIVAL = (WindowKind.COUNT, WindowKind.TRIPLES)
KINDS_AND_REPORTS = [(kind, report) for kind in WindowKind for report in ReportPolicy]
all_windows = pytest.mark.parametrize(("kind", "report"), KINDS_AND_REPORTS)


def element(time, number, triples=1):
    return Element(time, number, (TRIPLE,) * triples)


def define(kind, report=ReportPolicy.CLOSE, size=10, step=5, start=0, period=0):
    return WindowDefinition("urn:stream", kind, size, step, start, report, period)


def elements_at(*times):
    return [element(time, number) for number, time in enumerate(times, 1)]


def times(elements):
    return [each.time for each in elements]


class Story:
    """Random calls of a window, and its definition."""

    def __init__(self, rng, kind, report, length=25):
        self.definition = define(
            kind, report, rng.randint(1, 12), rng.randint(1, 15), rng.randint(-40, 40), rng.randint(1, 10)
        )
        self.begin = rng.randint(-5, 5)
        # Windows other than sessions do without the lateness, so for these an element may be late by more than that.
        self.lateness = rng.choice([0, 0, 4, 15])
        too_late = 0 if kind is WindowKind.SESSION else rng.choice([0, 30])
        in_order, future = rng.random() < 0.3, rng.choice([0, 2, 10])
        self.calls = []
        """Elements to take, and times of slides."""
        now, number, latest = self.begin, 0, self.begin
        for _ in range(length):
            if rng.random() < 0.35:
                now += rng.choice([0, 0, 1, 2, 5, 20])
                self.calls.append(now)
            else:
                number += 1
                time = rng.randint(now - self.lateness - too_late, now + future)
                latest = max(latest, now, time)
                self.calls.append(element(latest if in_order else time, number, rng.randint(0, 4)))
        self.calls.append(now + rng.choice([0, 15]))

    def window(self):
        return make_window(self.definition, self.begin, self.lateness)


def stories(kind, report, count=500):
    rng = random.Random(f"{kind} {report}")
    return [Story(rng, kind, report) for _ in range(count)]


def observed(window, now, content):
    """Return the slides until `now` as the oracle does. `content`: the numbers inside, which the slides change."""
    found = []
    for slide in window.slides(now):
        entering, leaving = numbers(slide.entering), numbers(slide.leaving)
        assert not content.intersection(entering), "an element enters twice"
        assert content.issuperset(leaving), "an element leaves that is not inside"
        assert len({*entering, *leaving}) == len(entering) + len(leaving)
        if window.definition.kind not in BY_ARRIVAL:
            assert list(slide.entering) == sorted(slide.entering)
        content.difference_update(leaving)
        content.update(entering)
        assert content == {each.number for each in window.content}
        assert len(window.content) == len(content)
        found.append((slide.time, tuple(sorted(content)), slide.report))
    return found


def check(story):
    """Compare all slides of a window with those of the oracle."""
    window, oracle = story.window(), WindowOracle(story.definition, story.begin)
    content: set[int] = set()
    assert window.definition == story.definition
    for call in story.calls:
        if isinstance(call, Element):
            window.take(call)
            oracle.take(call)
            continue
        due, expected = window.due(), oracle.slides(call)
        if expected:
            assert due is not None
            assert due <= expected[0][0]
        if story.definition.report is not ReportPolicy.NON_EMPTY:
            assert due == expected[0][0] if expected else due is None or due > call
        assert observed(window, call, content) == expected
        if story.definition.report is not ReportPolicy.NON_EMPTY:
            assert window.due() is None or window.due() > call


@all_windows
def test_slides_are_those_of_the_oracle(kind, report):
    for story in stories(kind, report):
        check(story)


@given(st.randoms(use_true_random=False), st.sampled_from(KINDS_AND_REPORTS), st.integers(1, 12))
def test_slides_of_invented_stories_are_those_of_the_oracle(rng, kind_and_report, length):
    check(Story(rng, *kind_and_report, length))


@all_windows
def test_slides_can_be_taken_in_parts(kind, report):
    """A caller may stop after any slide, and elements may arrive in between."""
    for story in stories(kind, report, 100):
        rng = random.Random(str(story.calls))
        whole, parts = story.window(), story.window()
        expected, found = [], []
        for call in story.calls:
            if isinstance(call, Element):
                whole.take(call)
                parts.take(call)
                continue
            expected += whole.slides(call)
            while (due := parts.due()) is not None and due <= call:
                for slide in parts.slides(call):
                    found.append(slide)
                    if rng.random() < 0.5:
                        break
            found += parts.slides(call)
        assert found == expected


@all_windows
def test_skipped_slides_are_empty_and_counted(kind, report):
    for story in stories(kind, report, 200):
        window, oracle, left_out = story.window(), WindowOracle(story.definition, story.begin), 0
        expected, found = [], []
        for call in story.calls:
            if isinstance(call, Element):
                window.take(call)
                oracle.take(call)
                continue
            expected += oracle.slides(call)
            left_out += window.skip_to(call)
            for slide in window.slides(call):
                found.append((slide.time, numbers(window.content), slide.report))
                left_out += window.skip_to(call)
        assert [slide for slide in found if slide[1]] == [slide for slide in expected if slide[1]]
        missing = [slide for slide in expected if slide not in found]
        assert len(missing) == left_out == len(expected) - len(found)
        assert all(not content and is_report for _, content, is_report in missing)


@pytest.mark.parametrize(
    ("kind", "report"), [each for each in KINDS_AND_REPORTS if each[0] not in BY_ARRIVAL or each[1] not in CLOSES]
)
def test_a_window_goes_on_from_the_elements_that_it_needs(kind, report):
    """A window with a history goes on as the one before it, without the elements that are not needed.

    Windows that count for their reports begin to count, so they have a test of their own.
    """
    for story in stories(kind, report, 200):
        window, taken, renewed = story.window(), [], None
        for position, call in enumerate(story.calls):
            if isinstance(call, Element):
                window.take(call)
                taken.append(call)
                if renewed:
                    renewed.take(call)
                continue
            # Late elements are in the new window at once, in the old one with its next slide: so contents are compared.
            old = [(slide.time, numbers(window.content)) for slide in window.slides(call) if slide.report]
            if renewed:
                assert [(slide.time, numbers(renewed.content)) for slide in renewed.slides(call) if slide.report] == old
            elif position > len(story.calls) // 3:
                earliest = window.needed_from()
                needed = [each for each in taken if earliest is not None and each.time >= earliest]
                renewed = make_window(story.definition, call, story.lateness, needed)
                if report is ReportPolicy.CHANGE:
                    assert numbers(renewed.content) == numbers(window.content)


@pytest.mark.parametrize("report", [ReportPolicy.CLOSE, ReportPolicy.NON_EMPTY, ReportPolicy.PERIODIC])
@pytest.mark.parametrize("kind", [WindowKind.TIME, WindowKind.LANDMARK])
def test_affected_reports_are_those_whose_content_has_the_element(kind, report):
    for story in stories(kind, report, 100):
        for each in (call for call in story.calls if isinstance(call, Element)):
            window = story.window()
            window.take(each)
            expected = [slide.time for slide in window.slides(40) if slide.report and each in window.content]
            assert list(affected(story.definition, each, story.begin, 40)) == expected


class CountedElement(Element):
    """An element that counts how often elements are read or compared."""

    operations = 0

    def _read(self, index):
        CountedElement.operations += 1
        return self[index]

    time = property(lambda self: self._read(0))
    number = property(lambda self: self._read(1))
    triples = property(lambda self: self._read(2))

    def __lt__(self, other):
        CountedElement.operations += 1
        return tuple.__lt__(self, other)

    def __hash__(self):
        CountedElement.operations += 1
        return tuple.__hash__(self)

    def __eq__(self, other):
        CountedElement.operations += 1
        return tuple.__eq__(self, other)


def operations_of_slides(kind, report, count, out_of_order):
    """Return the operations of each slide of a window with `count` elements, and the elements that it moves."""
    window = make_window(define(kind, report, 2 if kind is WindowKind.SESSION else count, 5, period=5), 0)
    slides, number, rng = [], 0, random.Random(count)
    for now in range(2 * count):
        arriving = [now, now, now, now + 3, now - 1] if out_of_order else [now]
        rng.shuffle(arriving)
        for time in arriving:
            number += 1
            window.take(CountedElement(time, number, (TRIPLE,)))
        CountedElement.operations = 0
        for slide in window.slides(now):
            slides.append((CountedElement.operations, len(slide.entering) + len(slide.leaving)))
            CountedElement.operations = 0
    return slides


@all_windows
@pytest.mark.parametrize("order", ["in order", "out of order"])
def test_a_slide_costs_the_entering_and_leaving_elements(kind, report, order):
    for count in (20, 400):
        for operations, moved in operations_of_slides(kind, report, count, order == "out of order"):
            assert operations <= 12 * moved + 12
