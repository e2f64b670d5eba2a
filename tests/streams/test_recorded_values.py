"""Values of the recent history that are elements of the stream of observations already."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyoxigraph as ox
import pytest

from edge.recent.series import MICROSECONDS
from edge.recent.value_tracker import _ticks
from edge.streams.model import Element
from edge.streams.observations import LiveObservations, PastValue, element
from edge.streams.recorded_values import FilledValues, recorded_time, unknown

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
DATE_TIME = ox.NamedNode("http://www.w3.org/2001/XMLSchema#dateTimeStamp")


class NoLiveData:
    def follow(self, *_):
        return (), lambda: None


def stamp(time):
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).isoformat()
    return ox.Literal(text, datatype=DATE_TIME)


def arrived(time, delay=0, observation="urn:a", value=1):
    """An element of a value with a time of its own that has arrived later."""
    return Element(time + delay, 1, element(ox.NamedNode(observation), ox.Literal(value), stamp(time)))


def untimed(time, observation="urn:a"):
    return Element(time, 1, element(ox.NamedNode(observation), ox.Literal(1), None))


def left(times, *elements, end=START + 100 * SECOND, observation="urn:a"):
    """Return the times of the values in the history that are not among the elements."""
    values = [PastValue(time, observation, 1) for time in times]
    past = LiveObservations(NoLiveData(), lambda begin, end: values).past(0, end)
    return [time for _, time in unknown(past, elements, end)]


def test_a_value_that_has_arrived_after_its_time_is_known():
    assert left([START, START + SECOND], arrived(START, delay=5_000)) == [START + SECOND]


def test_a_value_stands_for_one_value():
    assert left([START, START, START], arrived(START, delay=5_000)) == [START, START]
    assert left([START, START], arrived(START, delay=1), arrived(START, delay=2)) == []


def test_values_of_other_times_and_observations_are_not_known():
    assert left([START + 10_000, START - 10_000], arrived(START, delay=5_000)) == [START + 10_000, START - 10_000]
    assert left([START], arrived(START, delay=5_000, observation="urn:b")) == [START]


def test_an_element_from_the_history_stands_for_none_before_it():
    assert left([START - 10_000], arrived(START), end=START) == [START - 10_000]


def test_a_value_without_a_time_of_its_own_is_known_by_its_arrival():
    assert left([START - 5 * SECOND, START], untimed(START + 3_000)) == [START - 5 * SECOND]
    times = [START + number * SECOND for number in range(5)]
    assert left(times, untimed(times[3] + 900), untimed(times[4] + 900)) == times[:3]
    assert left(times, untimed(times[4] + 10 * SECOND)) == times


def test_elements_that_cannot_be_in_the_history_are_ignored():
    blank = Element(START + 1, 1, element(ox.BlankNode(), ox.Literal(1), stamp(START)))
    no_literal = Element(START + 1, 1, element(ox.NamedNode("urn:a"), ox.NamedNode("urn:b"), stamp(START)))
    assert left([START], blank, no_literal, Element(START + 1, 1, ())) == [START]


@pytest.mark.parametrize("milliseconds", [0, 1, 9, 10, 289, 290, 999])
@pytest.mark.parametrize("zone", ["Z", "+01:00", "-00:30"])
def test_times_are_rounded_as_in_the_history(milliseconds, zone):
    for second in range(60):
        literal = ox.Literal(f"2026-11-29T12:00:{second:02}.{milliseconds:03}{zone}", datatype=DATE_TIME)
        assert recorded_time(literal) == _ticks(literal, 0) * MICROSECONDS


@pytest.mark.parametrize(
    "text",
    [
        *("soon", "", "2026-11-29T12:00:00", "0001-01-01T00:00:00+23:59", "99999-01-01T00:00:00Z"),
        *("1969-12-31T23:59:59Z", "2100-01-01T00:00:00Z"),
    ],
)
def test_a_value_with_another_text_has_the_time_of_its_commit(text):
    literal = ox.Literal(text, datatype=DATE_TIME)
    assert recorded_time(literal) is None
    assert _ticks(literal, 4711) == 4711


def filled(*values, now=START):
    found = FilledValues()
    note(found, "w", *values, now=now)
    return found


def note(found, window, *values, now=START, begin=0):
    recorded = [PastValue(time, "urn:a", value) for time, value in values]
    past = LiveObservations(NoLiveData(), lambda begin, end: recorded).past(0, now)
    found.note([Element(time, number, triples) for number, (triples, time) in enumerate(past)], window, begin, now)


def test_an_element_with_which_a_window_has_begun_is_taken_once():
    found = filled((START, 1), (START, 2), (START - SECOND, 3))
    taken = [bool(found.take(arrived(START, value=value).triples, START + 1)) for value in (2, 2, 1, 3)]
    assert taken == [True, False, True, False]
    assert found.take(arrived(START - SECOND, value="3.0").triples, START + 1)


def test_elements_that_come_later_are_new():
    found = filled((START, 1))
    assert not found.take(arrived(START).triples, START + 10 * SECOND)
    assert not found.take(arrived(START).triples, START)
    assert not filled((START, 1)).take(untimed(START).triples, START)
    assert not filled((START, 1), now=START + 100 * SECOND).take(arrived(START).triples, START + 100 * SECOND)


def test_a_later_window_keeps_what_is_noted_and_has_it_too():
    found = filled((START, 1))
    note(found, "later", (START - SECOND, 2), now=START + SECOND, begin=START - SECOND)
    note(found, "short", now=START + SECOND, begin=START + 1)
    assert found.take(arrived(START).triples, START + SECOND).windows == {"w", "later"}
    assert found.take(arrived(START - SECOND, value=2).triples, START + 3 * SECOND).windows == {"later"}


def test_each_noted_value_expires_on_its_own():
    found = filled((START, 1))
    note(found, "later", (START - SECOND, 2), now=START + SECOND)
    assert not found.take(arrived(START).triples, START + 2 * SECOND + 1)
    assert found.take(arrived(START - SECOND, value=2).triples, START + 3 * SECOND)


@pytest.mark.parametrize("period", [100_000, 500_000, SECOND, 2 * SECOND, 3 * SECOND])
@pytest.mark.parametrize("delay", [5_000, 250_000])
def test_fast_values_without_times_of_their_own_stand_for_one_value_each(period, delay):
    times = [START + number * period for number in range(40)]
    kept = [time + delay for time in times[20:]]
    assert left(times, *map(untimed, kept), end=kept[0]) == [time for time in times[:20] if time < kept[0]]


def test_values_with_and_without_times_of_their_own_stand_for_different_values():
    elements = [arrived(START + 10_000, delay=5_000), untimed(START + 16_000), arrived(START + 20_000, delay=1)]
    times = [START, START + 10_000, START + 20_000]
    assert left(times, *elements, end=START + 15_000) == []
    assert left(times, *elements[:2], end=START + 15_000) == []
    assert left(times, elements[1], end=START + 15_000) == [START]
