"""Rules of windows, each with an example, and the cost of long idle spans."""

from __future__ import annotations

from itertools import islice

import pyoxigraph as ox
import pytest

from edge.streams.model import Element, ReportPolicy, WindowDefinition, WindowKind
from edge.streams.windows import affected, make_window

TRIPLE = ox.Triple(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), ox.Literal("o"))
DAY = 86_400_000_000


def define(kind, report=ReportPolicy.CLOSE, size=10, step=5, start=0, period=0):
    return WindowDefinition("urn:stream", kind, size, step, start, report, period)


def elements_at(*times):
    return [Element(time, number, (TRIPLE,)) for number, time in enumerate(times, 1)]


def elements_of(*triples):
    """One element at each second, with so many triples."""
    return [Element(time, time, (TRIPLE,) * count) for time, count in enumerate(triples, 1)]


def contents(window, now):
    """Return the time of each slide until `now`, and the times of the elements inside."""
    return [(slide.time, sorted(each.time for each in window.content)) for slide in window.slides(now)]


def filled(definition, elements, begin=0, **more):
    window = make_window(definition, begin, **more)
    for each in elements:
        window.take(each)
    return window


def test_an_element_at_the_end_of_a_time_window_belongs_to_the_next():
    window = filled(define(WindowKind.TIME, size=10, step=10), elements_at(0, 9, 10))
    assert contents(window, 20) == [(10, [0, 9]), (20, [10])]


def test_ends_of_windows_are_aligned_to_a_start_in_the_future():
    assert contents(filled(define(WindowKind.TIME, step=10, start=103), elements_at(5, 12)), 25) == [
        (3, []),
        (13, [5, 12]),
        (23, []),
    ]


def test_ends_of_windows_are_aligned_to_a_start_in_the_past():
    assert [time for time, _ in contents(make_window(define(WindowKind.TIME, step=10, start=-7), 0), 25)] == [3, 13, 23]


def test_no_report_is_at_the_begin():
    assert [time for time, _ in contents(make_window(define(WindowKind.TIME), 5), 10)] == [10]


def test_elements_between_windows_with_gaps_are_in_none():
    window = filled(define(WindowKind.TIME, size=3, step=10), elements_at(5, 6, 7, 9, 10))
    assert contents(window, 20) == [(10, [7, 9]), (20, [])]


def test_a_changing_window_reports_all_changes_of_an_instant_at_once():
    window = filled(define(WindowKind.TIME, ReportPolicy.CHANGE, size=5), elements_at(1, 6, 6))
    slides = list(window.slides(11))
    assert [(slide.time, len(slide.entering), len(slide.leaving)) for slide in slides] == [
        (1, 1, 0),
        (6, 2, 1),
        (11, 0, 2),
    ]


def test_a_late_element_enters_a_changing_window_at_once_and_leaves_in_time():
    window = filled(define(WindowKind.TIME, ReportPolicy.CHANGE, size=5), elements_at(4, 6))
    assert contents(window, 7) == [(4, [4]), (6, [4, 6])]
    window.take(Element(3, 3, ()))
    window.take(Element(2, 4, ()))
    assert window.due() == 7
    assert contents(window, 8) == [(7, [3, 4, 6]), (8, [4, 6])]


@pytest.mark.parametrize("report", list(ReportPolicy))
@pytest.mark.parametrize("kind", list(WindowKind))
def test_an_earlier_time_does_not_take_a_window_back(kind, report):
    window = filled(define(kind, report, 5, 1, period=1), elements_at(1, 2, 8, 9))
    stopped = next(window.slides(20))
    inside = list(window.content)
    assert list(window.slides(stopped.time - 2)) == []
    assert list(window.content) == inside
    window.take(Element(0, 5, (TRIPLE,)))
    assert all(slide.time >= stopped.time for slide in window.slides(20))


def test_a_landmark_window_has_no_report_before_its_first_step():
    window = filled(define(WindowKind.LANDMARK, size=0, step=10, start=20), elements_at(19, 20, 35))
    assert contents(window, 40) == [(30, [20]), (40, [20, 35])]


def test_a_count_window_reports_each_step_and_holds_less_at_first():
    window = filled(define(WindowKind.COUNT, size=3, step=2), elements_at(1, 2, 3, 4, 5))
    assert contents(window, 9) == [(2, [1, 2]), (4, [2, 3, 4])]
    assert window.due() is None


def test_a_count_window_reports_at_the_greatest_time_seen():
    window = filled(define(WindowKind.COUNT, size=2, step=1), elements_at(5, 3, 9))
    assert contents(window, 8) == [(5, [5]), (5, [3, 5])]
    assert window.due() == 9
    window.take(Element(1, 4, ()))
    assert contents(window, 20) == [(9, [3, 9]), (9, [1, 9])]
    window.take(Element(2, 5, ()))
    assert contents(window, 20) == [(20, [1, 2])]


def test_a_window_of_triples_does_not_split_elements():
    window = filled(define(WindowKind.TRIPLES, size=4, step=3), elements_of(2, 1, 0, 5, 1, 1, 3))
    assert contents(window, 9) == [(2, [1, 2]), (4, [4]), (7, [6, 7])]


def test_elements_without_triples_do_not_fill_a_window_of_triples():
    window = filled(define(WindowKind.TRIPLES, ReportPolicy.CHANGE, size=4), elements_of(0, 0, 1, 0, 0))
    assert contents(window, 9) == [(3, [3])]


def test_history_is_in_a_count_window_but_not_in_its_first_step():
    history = elements_at(1, 2, 3)
    window = make_window(define(WindowKind.COUNT, size=2, step=2), 3, history=history)
    assert list(window.content) == history[1:]
    window.take(Element(11, 4, ()))
    assert window.due() is None
    window.take(Element(12, 5, ()))
    assert contents(window, 12) == [(12, [11, 12])]


def test_history_of_sessions_is_the_last_one_that_has_ended():
    window = make_window(define(WindowKind.SESSION, size=5, step=0), 12, history=elements_at(1, 4, 10))
    assert [each.time for each in window.content] == [1, 4]
    assert contents(window, 15) == [(15, [10])]


def test_elements_of_the_history_that_arrive_after_the_begin_count():
    window = make_window(define(WindowKind.COUNT, size=3, step=2), 2, history=elements_at(1, 5, 1))
    assert [each.time for each in window.content] == [1]
    assert contents(window, 9) == [(5, [1, 1, 5])]


def test_a_pause_of_the_size_ends_a_session():
    window = filled(define(WindowKind.SESSION, size=5, step=0), elements_at(1, 5, 10))
    assert contents(window, 20) == [(10, [1, 5]), (15, [10])]


def test_a_session_that_an_element_extends_ends_later():
    window = filled(define(WindowKind.SESSION, size=5, step=0), elements_at(1))
    assert contents(window, 5) == []
    window.take(Element(4, 2, ()))
    assert (window.due(), contents(window, 9)) == (9, [(9, [1, 4])])


def test_a_late_element_makes_two_sessions_one():
    """Also if the earlier one has ended, within the lateness."""
    window = filled(define(WindowKind.SESSION, size=5, step=0), elements_at(1, 8, 20), lateness=10)
    assert contents(window, 14) == [(6, [1]), (13, [8])]
    window.take(Element(4, 4, ()))
    window.take(Element(12, 5, ()))
    slides = list(window.slides(30))
    assert [(slide.time, len(slide.entering), len(slide.leaving)) for slide in slides] == [(17, 3, 0), (25, 1, 4)]


def test_a_changing_session_grows_and_becomes_empty_at_its_end():
    window = filled(define(WindowKind.SESSION, ReportPolicy.CHANGE, size=5, step=0), elements_at(1, 4, 9))
    assert contents(window, 20) == [(1, [1]), (4, [1, 4]), (9, [9]), (14, [])]


def test_periodic_reports_have_the_content_of_their_time():
    assert contents(
        filled(define(WindowKind.TIME, ReportPolicy.PERIODIC, size=4, step=100, period=3), elements_at(1, 5)), 9
    ) == [
        (3, [1]),
        (6, [5]),
        (9, [5]),
    ]
    assert contents(
        filled(define(WindowKind.SESSION, ReportPolicy.PERIODIC, size=4, step=0, period=3), elements_at(1, 5)), 12
    ) == [
        (3, [1]),
        (6, [5]),
        (9, [5]),
        (12, []),
    ]


@pytest.mark.parametrize("report", list(ReportPolicy))
@pytest.mark.parametrize("kind", list(WindowKind))
def test_a_long_idle_span_costs_little(kind, report):
    """After an element, a thousand years pass with a window that slides each microsecond."""
    now = 365_000 * DAY
    window = filled(define(kind, report, 10, 1, period=1), elements_at(3))
    slides, left_out = [], window.skip_to(now)
    for slide in islice(window.slides(now), 100):
        slides.append(slide)
        left_out += window.skip_to(now)
    if len(slides) == 100:
        # The content keeps its element, so all reports have it. No report is left out, but the caller may stop.
        assert (slides[-1].time, len(window.content)) == (103, 1)
        return
    assert len(slides) <= 12
    assert window.due() is None or window.due() > now
    assert left_out in (0, now - len(slides))


def test_many_reports_that_a_late_element_affects_cost_little():
    landmark = define(WindowKind.LANDMARK, size=0, step=1, start=0)
    assert len(affected(landmark, Element(5, 1, ()), 0, 365_000 * DAY)) == 365_000 * DAY - 5
    assert not affected(landmark, Element(-1, 1, ()), -10, 10)


def test_a_changing_window_has_no_past_reports_to_correct():
    assert not affected(define(WindowKind.TIME, ReportPolicy.CHANGE), Element(5, 1, ()), 0, 100)


def test_a_window_without_an_element_knows_the_time():
    """An element before the last time that was passed is not in a report of the past: that needs a correction."""
    for kind in (WindowKind.TIME, WindowKind.SESSION):
        window = make_window(define(kind, ReportPolicy.NON_EMPTY), 0)
        assert list(window.slides(30)) == []
        window.take(Element(19, 1, ()))
        assert list(window.slides(100)) == []
        window.take(Element(99, 2, ()))
        assert window.due() == (105 if kind is WindowKind.TIME else 109)


def test_elements_that_no_later_report_needs_are_named():
    assert make_window(define(WindowKind.TIME, size=10, step=5), 7).needed_from() == -5
    window = filled(define(WindowKind.TIME, size=10, step=5), elements_at(3))
    list(window.slides(26))
    assert window.needed_from() == 15
    assert (window.skip_to(101), window.needed_from()) == (15, 90)
    session = filled(define(WindowKind.SESSION, size=5, step=0), elements_at(3, 30))
    list(session.slides(20))
    assert session.needed_from() == 3
    list(session.slides(40))
    assert session.needed_from() == 30
    assert make_window(define(WindowKind.SESSION, size=5, step=0), 0).needed_from() is None


def test_a_count_window_with_a_long_step_holds_only_its_size():
    window = filled(define(WindowKind.COUNT, size=2, step=1000), elements_at(*range(999)))
    assert window.needed_from() == 997
    window.take(Element(999, 1000, ()))
    assert contents(window, 999) == [(999, [998, 999])]


def test_ended_sessions_are_kept_for_the_lateness_only():
    window = make_window(define(WindowKind.SESSION, size=1, step=0), 0, lateness=20)
    for each in elements_at(*range(0, 1000, 2)):
        window.take(each)
        list(window.slides(each.time))
    assert window.needed_from() == 978


@pytest.mark.parametrize(
    ("definition", "name"),
    [
        (define(WindowKind.TIME, size=0), "size"),
        (define(WindowKind.TIME, step=0), "step"),
        (define(WindowKind.LANDMARK, size=0, step=-1), "step"),
        (define(WindowKind.COUNT, size=-3), "size"),
        (define(WindowKind.TRIPLES, step=0), "step"),
        (define(WindowKind.SESSION, size=0, step=0), "size"),
        (define(WindowKind.TIME, ReportPolicy.PERIODIC), "period"),
    ],
    ids=range(7),
)
def test_a_span_that_is_not_positive_is_refused(definition, name):
    with pytest.raises(ValueError, match=f"`{name}` of a {definition.kind} window is .*Set it to 1 or more"):
        make_window(definition, 0)
