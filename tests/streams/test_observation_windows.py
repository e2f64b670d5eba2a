"""Windows on the stream of observations: several values at once, equal values, and values that wait for the thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import pyoxigraph as ox
import pytest

from edge.engine.requests import ActiveSubscription, Delta, SubscriberNotification
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY
from edge.streams.language import parse
from edge.streams.live_data import live_patterns
from edge.streams.observations import OBSERVATIONS, Elements, element
from edge.streams.processor import NewElement, Processor
from edge.streams.running_query import Follower
from edge.streams.service import StreamService
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
RESULT = "http://www.w3.org/ns/sosa/hasResult"
VALUE = "http://qudt.org/1.1/schema/qudt#numericValue"
TIME = "<http://www.w3.org/2006/time#hasTime>/<http://www.w3.org/2006/time#inXSDDateTimeStamp>"
DATE_TIME = ox.NamedNode("http://www.w3.org/2001/XMLSchema#dateTimeStamp")
KITCHEN = ox.NamedNode("urn:kitchen")
TRIPLE = element(KITCHEN, ox.Literal(1), ox.Literal("2026-11-28T12:00:00Z", datatype=DATE_TIME))


class Values:
    """Observations that the test adds."""

    def __init__(self) -> None:
        self.added: Callable[[Elements], None] = lambda _: None
        self.failed: Callable[[str], None] = lambda _: None
        self.recorded: list[tuple[tuple[ox.Triple, ...], int | None]] = []
        """What the recent history has."""

    def follow(self, added: Callable[[Elements], None], failed: Callable[[str], None]) -> Callable[[], None]:
        self.added, self.failed = added, failed
        return lambda: None

    def past(self, begin: int, end: int) -> Elements:
        return [each for each in self.recorded if each[1] is not None and begin <= each[1] < end]

    def add(self, value: int, second: int = 0) -> None:
        stamp = ox.Literal(f"2026-11-28T12:00:{second:02}Z", datatype=DATE_TIME)
        self.added([(element(KITCHEN, ox.Literal(value), stamp), None)])


class NoLiveData:
    """A live graph without triples."""

    def follow(self, *_: Any) -> Any:
        return (), lambda: None


def rspql(select: str, window: str, stream: str = OBSERVATIONS) -> str:
    return (
        f"REGISTER RSTREAM <urn:edge:stream:q> AS SELECT {select} FROM NAMED WINDOW <urn:w> ON <{stream}> {window} "
        f"WHERE {{ WINDOW <urn:w> {{ ?s <{RESULT}> ?r . ?r <{VALUE}> ?value ; {TIME} ?time }} }}"
    )


def made(values: Values, store: StreamStore | None = None) -> Processor:
    processor = Processor(
        StreamSettings(),
        store or StreamStore(None),
        lambda: make_engine(EngineSettings()),
        NoLiveData(),
        lambda access: access,
        observations=values,
    )
    processor.restore(START)
    return processor


def rows(processor: Processor, seconds: int) -> list[dict[str, str]]:
    """Return the rows of the last report until some seconds after the start."""
    processor.advance(START + seconds * SECOND)
    report = processor.store_reports()[-1]
    found = json.loads(report.body())["results"]["bindings"]
    return [{name: term["value"] for name, term in row.items()} for row in found]


class Clock:
    boot = "boot"

    def __init__(self) -> None:
        self.now = START

    def wall(self) -> int:
        return self.now

    steady = wall

    def trusted(self) -> bool:
        return True


class Live:
    """The engine of the live graph, whose notifications the test sends."""

    def __init__(self) -> None:
        self.sinks: list[Any] = []

    def subscribe(self, _query: Any, sink: Any) -> Future[ActiveSubscription]:
        spuid = f"sepa://{len(self.sinks)}"
        self.sinks.append(sink)
        sink(SubscriberNotification(spuid, None, 0, Delta((), (), ())))
        future: Future[ActiveSubscription] = Future()
        future.set_result(ActiveSubscription(spuid, None))
        return future

    def unsubscribe(self, _spuid: str) -> Future[None]:
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def notify(self, *row: Any) -> None:
        self.sinks[-1](SubscriberNotification("sepa://0", None, 1, Delta((), (row,), ())))


class Service:
    """A service whose thread the test can stop."""

    def __init__(self) -> None:
        self.clock, self.live = Clock(), Live()
        self.service = StreamService(
            None, StreamSettings(), EngineSettings(), self.live, self.clock, lambda access: access
        )
        self.reports: list[Any] = []

    def call(self, action: Any) -> Any:
        return self.service.call(action).result(20)

    def register(self, text: str) -> None:
        def register(processor: Processor, now: int) -> None:
            query = processor.register("q", text, ANYBODY, now)
            query.followers[self] = Follower(self.reports.append, lambda reason: None)

        self.call(register)

    def hold(self) -> Callable[[], None]:
        """Stop the thread within a request. Returns how to let it go on."""
        inside, release = threading.Event(), threading.Event()
        held = self.service.call(lambda _processor, _now: (inside.set(), release.wait(20)))
        assert inside.wait(20)

        def go_on() -> None:
            release.set()
            held.result(20)

        return go_on


@pytest.fixture
def service():
    service = Service()
    yield service
    assert service.service.close(20)


@pytest.mark.parametrize("window", ["[ELEMENTS 2]", "[TRIPLES 8]", "[RANGE PT10S STEP PT1S] ON CHANGE"])
def test_several_observations_can_arrive_in_one_turn_of_the_thread(service, window):
    service.register(rspql("?value", window))
    service.clock.now = START + SECOND
    go_on = service.hold()
    for second, value in enumerate((20, 21)):
        stamp = ox.Literal(f"2026-11-28T12:00:0{second}Z", datatype=DATE_TIME)
        service.live.notify(KITCHEN, ox.Literal(value), stamp)
    go_on()
    service.call(lambda _processor, _now: None)
    assert not service.service.fault()
    assert [[str(row[0].value) for row in report.rows] for report in service.reports][-1] == ["20", "21"]


@pytest.mark.parametrize("window", ["[ELEMENTS 2]", "[RANGE PT10S STEP PT1S] ON CHANGE"])
def test_clients_can_add_elements_at_once_after_the_clock_was_set_back(service, window):
    service.call(lambda processor, _now: processor.put_stream("s", None, ANYBODY))
    service.register(rspql("?value", window, "urn:edge:stream:s"))
    service.clock.now = START + 100 * SECOND
    service.call(lambda _processor, _now: None)
    service.clock.now = START
    go_on = service.hold()
    added = [
        service.service.call(lambda processor, now: processor.add("s", [NewElement(TRIPLE)], ANYBODY, now))
        for _ in range(2)
    ]
    go_on()
    assert [each.result(20).elements for each in added] == [1, 1]
    assert "set back" in service.service.fault()
    assert service.call(lambda processor, _now: processor.stream("s", ANYBODY).number) == 2


def test_an_observation_has_the_time_of_its_arrival_when_the_thread_is_busy(service):
    service.register(rspql("?value", "[RANGE PT1S STEP PT1S]"))
    go_on = service.hold()
    service.clock.now = START + SECOND // 2
    service.live.notify(KITCHEN, ox.Literal(20), ox.Literal("2026-11-28T12:00:00Z", datatype=DATE_TIME))
    service.clock.now = START + 3 * SECOND + SECOND // 2
    go_on()
    service.clock.now = START + 5 * SECOND
    service.call(lambda _processor, _now: None)
    service.call(lambda _processor, _now: None)
    assert [report.time - START for report in service.reports if report.rows] == [SECOND]


def test_the_average_of_a_window_counts_each_observation():
    values = Values()
    processor = made(values)
    processor.register("q", rspql("(AVG(?value) AS ?mean)", "[RANGE PT10S STEP PT10S]"), ANYBODY, START)
    for second, value in enumerate((20, 20, 20, 24)):
        processor.advance(START + second * SECOND + 1)
        values.add(value, second)
    assert [float(row["mean"]) for row in rows(processor, 10)] == [21.0]
    processor.close()


def test_the_values_of_a_window_have_their_own_times():
    values = Values()
    processor = made(values)
    processor.register("q", rspql("?value ?time", "[RANGE PT10S STEP PT10S]"), ANYBODY, START)
    for second, value in enumerate((20, 24)):
        processor.advance(START + second * SECOND + 1)
        values.add(value, second)
    assert sorted(row["value"] for row in rows(processor, 10)) == ["20", "24"]
    processor.close()


def test_a_query_that_fails_while_it_runs_is_logged(caplog):
    values = Values()
    processor = made(values)
    query = processor.register("q", rspql("?value", "[RANGE PT1S STEP PT1S]"), ANYBODY, START)
    query.fail("More than 5000000 steps")
    assert "q" in [getattr(record, "query", None) for record in caplog.records]
    processor.close()


def test_a_query_in_csparql_without_a_window_in_the_default_graph_reads_the_live_one():
    """As docs/streams.md says of all queries without FROM. Observations are described in the live default graph."""
    text = (
        f"REGISTER QUERY q AS SELECT ?s ?p FROM NAMED STREAM <{OBSERVATIONS}> [RANGE 1s STEP 1s] "
        f"{{ ?s <urn:observedProperty> ?p . GRAPH <{OBSERVATIONS}> {{ ?s <{RESULT}> ?result }} }}"
    )
    patterns = live_patterns(parse(text, now=START))
    assert [(each.predicate, each.graph) for each in patterns] == [("<urn:observedProperty>", None)]


@pytest.mark.parametrize("window", ["[ELEMENTS 1]", "[TRIPLES 2]", "[RANGE PT10S STEP PT1S] ON CHANGE"])
def test_elements_can_be_added_one_after_the_other_at_one_time(window):
    """As from two observers that feed one stream of the gateway."""
    processor = made(Values())
    processor.put_stream("s", None, ANYBODY)
    processor.register("q", rspql("?value", window, "urn:edge:stream:s"), ANYBODY, START)
    for _ in range(3):
        processor.add("s", [NewElement(element(KITCHEN, ox.Literal(1), TRIPLE[-1].object))], ANYBODY, START)
    processor.advance(START)
    assert processor.stream("s", ANYBODY).number == 3
    assert processor.store_reports()
    processor.close()


def test_a_subscription_that_has_ended_adds_nothing():
    """Its last changes, or its failure, can wait for the thread when another one has begun."""
    values = Values()
    processor = made(values)
    processor.register("q", rspql("?value", "[RANGE PT10S STEP PT1S]"), ANYBODY, START)
    late = values.added, values.failed
    processor.unregister("q", ANYBODY)
    processor.register("q", rspql("?value", "[RANGE PT10S STEP PT1S]"), ANYBODY, START)
    late[1]("failed")
    late[0]([(element(KITCHEN, ox.Literal(1), None), None)])
    assert processor.stream(OBSERVATIONS, ANYBODY).number == 0
    values.add(2)
    assert [row["value"] for row in rows(processor, 1)] == ["2"]
    processor.close()


def recorded(time: int, value: int = 1) -> tuple[tuple[ox.Triple, ...], int]:
    """A value as the recent history returns it."""
    stamp = datetime.fromtimestamp(time / SECOND, UTC).isoformat()
    return element(KITCHEN, ox.Literal(value), ox.Literal(stamp, datatype=DATE_TIME)), time


def counted(processor: Processor, name: str, minutes: int, *, timed: bool = True) -> None:
    """Register a query for the number of values in a window of its own."""
    text = rspql("(COUNT(*) AS ?n)", f"[RANGE PT{minutes}M STEP PT10S]").replace("stream:q>", f"stream:{name}>")
    if not timed:
        text = text.replace(f" ; {TIME} ?time", "")
    processor.register(name, text, ANYBODY, processor.time)


def counts(processor: Processor, seconds: int) -> dict[str, str]:
    """Return the numbers of values that the queries report until some seconds after the start."""
    processor.advance(START + seconds * SECOND)
    found = {report.query: json.loads(report.body()) for report in processor.store_reports()}
    return {name: each["results"]["bindings"][0]["n"]["value"] for name, each in found.items()}


def test_a_value_counts_once_in_a_window_that_begins_later():
    values = Values()
    processor = made(values)
    counted(processor, "first", 60)
    processor.advance(START + 1_500_000)
    values.added([(recorded(START + SECOND)[0], None)])  # arrives half a second after its time
    values.recorded = [recorded(START - SECOND), recorded(START + SECOND)]
    processor.advance(START + 2 * SECOND)
    counted(processor, "second", 30)
    counted(processor, "third", 20)
    found = counts(processor, 10)
    assert list(found.values()) == ["1", "2", "2"]
    processor.close()


def test_a_value_that_is_on_the_way_when_a_window_begins_counts_once():
    values = Values()
    processor = made(values)
    processor.advance(START + 2 * SECOND)
    values.recorded = [recorded(START + SECOND)]
    counted(processor, "q", 60)
    values.added([(recorded(START + SECOND)[0], None)])
    values.added([(recorded(START + SECOND, 2)[0], None)])
    assert list(counts(processor, 10).values()) == ["2"]
    processor.close()


def test_a_value_on_the_way_counts_once_in_each_of_two_windows_that_begin():
    values = Values()
    processor = made(values)
    processor.advance(START + 2 * SECOND)
    values.recorded = [recorded(START + SECOND)]
    counted(processor, "first", 60)
    counted(processor, "second", 30)
    values.added([(recorded(START + SECOND)[0], None)])
    assert list(counts(processor, 10).values()) == ["1", "1"]
    processor.close()


def test_a_value_on_the_way_when_a_window_begins_counts_in_those_before_too():
    values = Values()
    processor = made(values)
    counted(processor, "first", 60)
    processor.advance(START + 2 * SECOND)
    values.recorded = [recorded(START + SECOND)]
    counted(processor, "second", 30)
    values.added([(recorded(START + SECOND)[0], None)])
    counted(processor, "third", 20)
    assert list(counts(processor, 10).values()) == ["1", "1", "1"]
    processor.close()


def test_a_value_on_the_way_counts_once_in_each_window_after_a_restart():
    values, store = Values(), StreamStore(None)
    processor = made(values, store)
    counted(processor, "first", 60)
    processor.advance(START + 2 * SECOND)
    values.recorded = [recorded(START + SECOND)]
    counted(processor, "second", 30)
    values.added([(recorded(START + SECOND)[0], None)])
    assert list(counts(processor, 10).values()) == ["1", "1"]
    processor.close()
    again = made(Values(), store)
    assert list(counts(again, 20).values()) == ["1", "1"]
    again.close()


def test_fast_values_without_times_of_their_own_count_once_in_a_window_that_begins_later():
    values, history = Values(), []
    processor = made(values)
    for number in range(80):
        if number == 40:
            counted(processor, "first", 60, timed=False)
        time = START + number * SECOND // 10
        history.append(recorded(time, number))
        processor.advance(time + 5_000)
        if number >= 40:
            values.added([(element(KITCHEN, ox.Literal(number), None), None)])
    values.recorded = history
    counted(processor, "second", 30, timed=False)
    assert list(counts(processor, 10).values()) == ["40", "80"]
    processor.close()
