"""Readings that are events, in the graph: each is a change that subscribers see, in one commit with its receipt."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from adapter_parts import PREFIXES, update, value_of

from edge.adapters.ingest import Ingest
from edge.adapters.observations import Observations
from edge.adapters.planner import Arrival, Planner
from edge.adapters.settings import ObservationsSettings
from edge.adapters.updates import ADD_OBSERVATION, DESCRIBE_THING
from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification
from edge.engine.scheduling.scheduler import Scheduler
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.mapping.reading import XSD_STRING, Event, Reading
from edge.mapping.store import StoreRules
from edge.protocol.errors import NotReady

BELL = "http://example.org/bell"
RING = Reading(BELL, "ring", XSD_STRING, label="Bell", topic="bell", event=Event())
STATE = RING._replace(event=None)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
BELL_MAPPING = f"""
[[mapping]]
topic = "bell"
observation = "{BELL}"
path = "a"
time = "t"
label = "Bell"
datatype = "string"
event = {{ id = "n" }}
"""
ONCE = ["+ring"]
TWICE = ["+ring", "-ring", "+ring"]


class Changes:
    """A subscriber to the value of the bell, which records its changes in order."""

    def __init__(self, engine: Scheduler) -> None:
        self.seen: list[str] = []
        query = f"{PREFIXES} SELECT ?v {{ <{BELL}> sosa:hasResult ?q . ?q qudt:numericValue ?v }}"
        engine.subscribe(QueryRequest(query), self._note).result(10)

    def _note(self, event: SubscriberNotification | SubscribeFailed) -> None:
        assert isinstance(event, SubscriberNotification)
        self.seen += [f"-{row[0].value}" for row in event.delta.removed]
        self.seen += [f"+{row[0].value}" for row in event.delta.added]


def write(observations: Observations, *readings: Reading) -> None:
    observations.write([Arrival(reading, NOON) for reading in readings]).result(10)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("reading", "seen"), [(RING, TWICE), (STATE, ONCE)])
def test_only_an_event_of_the_same_value_is_a_change(engine, observations, reading, seen, together):
    changes = Changes(engine)
    for readings in ([reading, reading],) if together else ([reading], [reading]):
        write(observations, *readings)
    assert changes.seen == seen
    assert value_of(engine, BELL) == "ring"


def rings(observations: Observations, *events: str, received: datetime = NOON) -> None:
    for event in events:
        observations.write([Arrival(RING._replace(event=Event(event)), received)]).result(10)


def test_messages_with_the_same_id_are_one_event(engine, observations):
    changes = Changes(engine)
    rings(observations, "1", "1", "2", "1", "2")
    assert changes.seen == TWICE


def test_an_id_counts_again_after_sixteen_others(engine, observations):
    changes = Changes(engine)
    rings(observations, *map(str, range(17)), "0")
    assert changes.seen.count("+ring") == 18


def test_an_id_counts_again_after_a_minute_unless_it_is_the_last_one(engine, observations):
    changes = Changes(engine)
    rings(observations, "1", "2")
    rings(observations, "2", received=NOON + timedelta(hours=1))
    assert changes.seen == TWICE
    rings(observations, "1", received=NOON + timedelta(hours=1))
    assert changes.seen.count("+ring") == 3


def test_another_value_with_the_same_id_is_another_event(engine, observations):
    changes = Changes(engine)
    for value in ("down", "up", "down"):
        write(observations, RING._replace(value=value, event=Event("1")))
    assert changes.seen == ["+down", "-down", "+up"]


def test_the_event_before_a_restart_is_not_repeated(engine, observations):
    rings(observations, "7")
    again = Observations(engine)
    again.start()
    changes = Changes(engine)
    rings(again, "7", "8")
    assert changes.seen == TWICE
    again.close()


def test_retained_messages_are_no_events(engine, observations):
    rings(observations, "7")
    changes = Changes(engine)
    mapper = Mapper([load_pack(BELL_MAPPING, "own")])
    ingest = Ingest(lambda: mapper, observations)
    for payload in (b'{"a": "ring", "n": 8}', b'{"a": "ring", "n": 9, "t": 1714564800}'):
        ingest.write(ingest.news(ingest.read("bell", payload, NOON, retained=True)))
    assert changes.seen == ONCE
    ingest.write(ingest.read("bell", b'{"a": "ring", "n": 8}', NOON))
    assert changes.seen == TWICE


def test_an_event_whose_update_failed_counts_when_it_is_tried_again(engine, observations, monkeypatch):
    changes = Changes(engine)
    event = RING._replace(event=Event("1"))
    write(observations, RING._replace(event=Event("0")))

    def refuse(*_: object) -> None:
        raise NotReady("busy")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "write", refuse)
        with pytest.raises(NotReady):
            write(observations, event)
    assert changes.seen == ONCE
    write(observations, event)
    assert changes.seen == TWICE


def test_an_event_that_is_no_rdf_leaves_the_value_before(engine, observations):
    write(observations, RING)
    outcome: Future[object] = Future()
    bad = RING._replace(value="other", datatype="no iri")
    observations.submit([Arrival(bad, NOON)], b"", partial(Future.set_result, outcome))
    assert [reason for _, reason in outcome.result(10).refused] != []
    assert value_of(engine, BELL) == "ring"


def test_an_event_reaches_an_observation_whose_description_changes(engine, observations):
    changes = Changes(engine)
    write(observations, RING)
    write(observations, RING._replace(label="Front door"))
    assert changes.seen == TWICE


def test_a_value_that_a_client_deleted_is_written(engine, observations):
    write(observations, RING)
    update(engine, f"DELETE WHERE {{ <{BELL}> sosa:hasResult ?q . ?q qudt:numericValue ?v }}")
    changes = Changes(engine)
    write(observations, RING)
    assert changes.seen == ONCE


PRESS = RING._replace(event=Event(within=2))


def presses(observations: Observations, *times: float, reading: Reading = PRESS) -> None:
    """Write a reading at these seconds."""
    for seconds in times:
        observations.write([Arrival(reading, NOON + timedelta(seconds=seconds))]).result(10)


@pytest.mark.parametrize(
    ("times", "count"),
    [
        ((0, 0.5, 1.9), 1),
        ((0, 2), 2),
        ((0, 1.5, 3, 4.5), 2),  # the time counts from the first report, so that a held button does not stay one event
        ((0, -1), 1),  # a clock that is set back
        ((0, -7200, -7199, -7197), 3),
        ((0, 10_000_000, 0), 3),
    ],
)
def test_a_press_that_several_gateways_report_counts_once(engine, observations, times, count):
    changes = Changes(engine)
    presses(observations, *times)
    assert changes.seen.count("+ring") == count


def test_reports_of_one_press_in_one_block_count_once(engine, observations):
    changes = Changes(engine)
    write(observations, PRESS, PRESS._replace(topic="other gateway"), PRESS)
    assert changes.seen == ONCE


def test_another_value_within_the_time_is_another_event(engine, observations):
    changes = Changes(engine)
    for value in ("down", "up", "down"):
        presses(observations, 0.1, reading=PRESS._replace(value=value))
    assert changes.seen == ["+down", "-down", "+up"]


def test_the_first_press_after_a_restart_counts(engine, observations):
    presses(observations, 0)
    again = Observations(engine)
    again.start()
    changes = Changes(engine)
    presses(again, 60, 61)
    assert changes.seen == TWICE
    again.close()


def test_an_id_counts_again_after_its_time(engine, observations):
    changes = Changes(engine)
    event = RING._replace(event=Event("7", 2))
    presses(observations, 0, 1, 3, reading=event)
    assert changes.seen == TWICE


def test_events_take_a_bounded_memory():
    planner = Planner(ObservationsSettings(), iter(map(str, range(10**6))).__next__, None)
    for number in range(50):
        for topic in range(20):
            reading = PRESS._replace(observation=f"{BELL}{topic}", topic=f"bell/{topic}")
            reading = reading._replace(value=str(number))
            planner.plan([Arrival(reading, NOON + timedelta(seconds=number / 100))])
    kept = [planner.known.get(f"{BELL}{topic}").events for topic in range(20)]
    assert {len(events) for events in kept} == {16}
    planner.plan([Arrival(PRESS._replace(observation=f"{BELL}0"), NOON + timedelta(hours=1))])
    assert len(kept[0]) == 16
    assert len(planner.known.get(f"{BELL}0").events) == 1


def test_a_press_whose_update_failed_counts_when_it_is_tried_again():
    planner = Planner(ObservationsSettings(), iter("abcdef").__next__, None)
    plan = planner.plan([Arrival(PRESS, NOON)])
    planner.give_up(plan)
    assert planner.plan([Arrival(PRESS, NOON)]).requests
    assert not planner.plan([Arrival(PRESS, NOON)]).requests


class Refusing:
    """A history that refuses readings with a certain value."""

    def note(self, reading: Reading, time: datetime) -> object | None:
        if reading.value == "refused":
            raise ValueError("not valid")
        return reading

    def give_up(self, note: object) -> None:
        raise AssertionError(note)


def test_a_refused_event_leaves_nothing_behind():
    planner = Planner(ObservationsSettings(), map(str, range(100)).__next__, Refusing())
    good = PRESS._replace(event=Event("1"), store=StoreRules(), sensor="urn:sensor")
    planner.plan([Arrival(good, NOON)])
    before = planner.known.get(BELL).events
    bad = [good._replace(event=Event(str(number)), datatype="no iri") for number in range(2, 40)]
    plan = planner.plan([Arrival(reading, NOON) for reading in bad])
    assert len(plan.refused) == len(bad)
    assert (plan.requests, plan.given, plan.events, plan.described) == ([], [], [], set())
    assert planner.known.get(BELL).events == before
    assert planner.plan([Arrival(bad[0]._replace(datatype=good.datatype), NOON)]).requests


def test_an_observation_whose_first_reading_was_refused_is_added_with_the_next_one():
    planner = Planner(ObservationsSettings(), map(str, range(100)).__next__, Refusing())
    good = PRESS._replace(event=None, store=StoreRules(), sensor="urn:sensor")
    plan = planner.plan([Arrival(good._replace(value="refused"), NOON), Arrival(good, NOON)])
    assert [request.sparql for request in plan.requests] == [DESCRIBE_THING, ADD_OBSERVATION]
    assert len(plan.given) == len(plan.refused) == 1
