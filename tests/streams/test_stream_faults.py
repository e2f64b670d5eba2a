"""Faults around streams: hostile documents, a processor that fails, a busy live graph, results that are too large."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest

from edge.backoff import Backoff
from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.clock import SystemClock
from edge.engine.requests import Delta, SubscriberNotification
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine, open_engine
from edge.gates.http.rdf_body import read_graph
from edge.protocol.access import ANYBODY
from edge.protocol.errors import InvalidRequest, NotReady, StorageFailed
from edge.protocol.report_position import ReportPosition
from edge.streams.followers import Followers
from edge.streams.kept_reports import KeptReports
from edge.streams.live_subscriptions import LiveSubscriptions
from edge.streams.observations import OBSERVATIONS, Elements
from edge.streams.processor import NewElement, Processor
from edge.streams.service import StreamService
from edge.streams.settings import FILE_NAME, StreamSettings
from edge.streams.store import StreamStore
from edge.streams.stored_rows import ReportRow
from edge.streams.waiting import WaitingReports
from tests.support.waiting import wait_for

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
VALUE = ox.NamedNode("urn:value")


class NoLiveData:
    """A live graph without triples."""

    def follow(self, *_: Any) -> Any:
        return (), lambda: None


class Values:
    """Observations that the test adds, and a recent history."""

    def __init__(self) -> None:
        self.history: list[int] = []
        self.added: Callable[[Elements], None] | None = None
        self.failed: Callable[[str], None] | None = None
        self.busy = False

    def follow(self, added: Callable[[Elements], None], failed: Callable[[str], None]) -> Callable[[], None]:
        if self.busy:
            raise NotReady("The live graph is busy")
        self.added, self.failed = added, failed
        return self._end

    def _end(self) -> None:
        self.added = None

    def past(self, begin: int, end: int) -> Elements:
        return [(element(time).triples, time) for time in self.history if begin <= time < end]


def element(value: int, size: int = 0) -> NewElement:
    text = ox.Literal("x" * size if size else str(value))
    return NewElement((ox.Triple(ox.NamedNode(f"urn:s{value}"), VALUE, text),))


def processor(values: Values | None = None, **settings: Any) -> Processor:
    made = Processor(
        StreamSettings(**settings),
        StreamStore(None),
        lambda: make_engine(EngineSettings()),
        NoLiveData(),
        lambda access: access,
        observations=values,
    )
    made.restore(START)
    return made


def query(name: str, stream: str, window: str, form: str = "SELECT ?s ?v") -> str:
    return (
        f"REGISTER RSTREAM <urn:edge:stream:{name}> AS {form} FROM NAMED WINDOW <urn:w> ON <{stream}> {window} "
        "WHERE { WINDOW <urn:w> { ?s <urn:value> ?v } }"
    )


def test_a_follower_of_a_full_disk_gets_the_reports_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def full(_store: StreamStore) -> Iterator[None]:
        raise StorageFailed("The disk is full")
        yield

    made = processor()
    made.put_stream("s", None, ANYBODY)
    made.register("q", query("q", "urn:edge:stream:s", "[RANGE PT1S STEP PT1S]"), ANYBODY, START)
    made.advance(START + SECOND)
    made.store_reports()
    made.advance(START + 3 * SECOND)
    followers = Followers(made, KeptReports(StreamStore(None), 1_000_000), 10_000, lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(StreamStore, "transaction", full)
        charge = ByteQuota().charge("client")
        reports = followers.add("q", ANYBODY, charge, lambda: None, None, None)
        again = followers.add("q", ANYBODY, charge, lambda: None, None, ReportPosition(3))
    assert (reports.number, again.number) == (1, 0)
    for report in made.store_reports():
        for follower in made.owned("q", ANYBODY).followers.values():
            follower.report(report)
    taken = [json.loads(message)["report"]["number"] for message in iter(reports.take, None)]
    assert taken == [2, 3]
    made.close()


DEEP = 20_000
NESTED = {
    "text/turtle": "<urn:a> <urn:b> " + "<<( <urn:a> <urn:b> " * DEEP + "1" + " )>>" * DEEP + " .",
    "application/n-triples": "<urn:a> <urn:b> " + "<<( <urn:a> <urn:b> " * DEEP + "<urn:c>" + " )>>" * DEEP + " .",
    "application/rdf+xml": (
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="urn:" rdf:version="1.2">'
        + '<rdf:Description rdf:about="urn:a"><e:p rdf:parseType="Triple">' * DEEP
        + '<rdf:Description rdf:about="urn:a"><e:p>1</e:p></rdf:Description>'
        + "</e:p></rdf:Description>" * DEEP
        + "</rdf:RDF>"
    ),
}


@pytest.mark.parametrize("media_type", NESTED)
def test_deeply_nested_triple_terms_are_refused_before_they_are_parsed(media_type):
    with pytest.raises(InvalidRequest, match=r"triple terms"):
        read_graph(NESTED[media_type], media_type, "http://localhost/")


def test_results_that_exceed_the_room_of_the_windows_are_dropped():
    made = processor(max_bytes=1024 * 1024, max_element=1024 * 1024)
    made.put_stream("s", None, ANYBODY)
    made.register(
        "all",
        query("all", "urn:edge:stream:s", "[RANGE PT10M STEP PT1S]", "CONSTRUCT { ?s <urn:value> ?v }"),
        ANYBODY,
        START,
    )
    made.register("kept", query("kept", "urn:edge:stream:all", "[RANGE PT10M STEP PT1M]"), ANYBODY, START)
    made.add("s", [element(1, 200_000)], ANYBODY, START)
    for second in range(1, 20):
        made.advance(START + second * SECOND)
        made.store_reports()
    assert sum(stream.size for stream in made.streams(ANYBODY)) <= 1024 * 1024
    made.close()


def test_a_window_of_observations_can_begin_after_the_live_graph_was_busy():
    values = Values()
    made = processor(values)
    values.busy = True
    text = query("q", OBSERVATIONS, "[ELEMENTS 1]")
    with pytest.raises(NotReady):
        made.register("q", text, ANYBODY, START)
    values.busy = False
    made.register("q", text, ANYBODY, START)
    assert values.added is not None
    values.added([(element(7).triples, None)])
    made.advance(START + SECOND)
    assert [len(report.rows) for report in made.store_reports()] == [1]
    made.close()


def test_a_new_window_of_observations_has_the_values_since_the_last_one_ended():
    values = Values()
    made = processor(values)
    text = query("q", OBSERVATIONS, "[RANGE PT1M STEP PT1S]")
    made.register("q", text, ANYBODY, START)
    assert values.added is not None
    values.added([(element(1).triples, None)])
    values.history = [START + SECOND, START + 2 * SECOND, START + 3 * SECOND]
    made.advance(START + SECOND)
    made.unregister("q", ANYBODY)
    made.advance(START + 4 * SECOND)
    made.register("q", text, ANYBODY, START + 4 * SECOND)
    made.advance(START + 5 * SECOND)
    reports = made.store_reports()
    assert len(reports[-1].rows) == 3
    made.close()


class Clock:
    """A clock that stands still."""

    boot = "boot"

    def wall(self) -> int:
        return START

    steady = wall

    def trusted(self) -> bool:
        return True


@pytest.fixture
def live():
    engine = open_engine(None, EngineSettings())
    yield engine
    engine.close()


def test_a_processor_that_fails_leaves_no_request_without_an_answer(live, monkeypatch):
    service = StreamService(None, StreamSettings(), EngineSettings(), live, Clock(), lambda access: access)
    service.call(lambda made, _now: made.put_stream("s", None, ANYBODY)).result(10)

    def fail(*_: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Processor, "advance", fail)
    futures: Sequence[Future[Any]] = [service.call(lambda made, _now: made.streams(ANYBODY)) for _ in range(3)]
    for future in futures:
        with pytest.raises(NotReady, match="a fault"):
            future.result(10)
    assert "a fault" in service.fault()
    assert service.close(10)


def test_acknowledgements_that_cannot_be_stored_are_tried_again_less_and_less_often(live, monkeypatch, caplog):
    """They wait for others only while the disk works: otherwise each failure would count as the first one."""
    monkeypatch.setattr("edge.streams.service._RETRY", Backoff(first=0.01, most=0.02))
    monkeypatch.setattr("edge.streams.service._ACKNOWLEDGED", 1)
    service = StreamService(None, StreamSettings(), EngineSettings(), live, SystemClock(), lambda access: access)
    service.call(lambda made, _now: made.put_stream("s", None, ANYBODY)).result(10)
    tried = []

    def full(_waiting: WaitingReports) -> None:
        tried.append(service.fault())
        raise StorageFailed("The disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(WaitingReports, "is_stored", False)
        patch.setattr(WaitingReports, "flush", full)
        wait_for(lambda: service.call(lambda *_: None).result(10) or len(tried) > 5)
    assert len([record for record in caplog.records if record.message == "streams.not_stored"]) == 1
    assert set(tried[1:]) == {"The disk is full"}
    assert service.close(10)


def test_a_report_that_cannot_become_an_element_is_passed_on_later(live, monkeypatch, caplog):
    """Without another report: it would be the next one that brings it. Other observers do not wait for it."""
    notified: list[str] = []
    monkeypatch.setattr("edge.streams.delivery._RETRY", Backoff(first=0.01, most=0.02))
    service = StreamService(
        None,
        StreamSettings(),
        EngineSettings(),
        live,
        SystemClock(),
        lambda access: access,
        notify=notified.append,
        own_stream={"http://localhost/streams/fed": "fed"}.get,
    )
    text = query("q", "urn:edge:stream:s", "[ELEMENTS 1]", "CONSTRUCT { ?s <urn:hot> ?v }")
    for name in ("s", "fed"):
        service.call(lambda made, _now, name=name: made.put_stream(name, None, ANYBODY)).result(10)
    service.call(lambda made, now: made.register("q", text, ANYBODY, now)).result(10)
    for name in ("fed", *"abcdefgh"):
        service.observe("q", f"http://localhost/streams/{name}", ANYBODY).result(10)
    notified.clear()
    add, faults, others = Processor.add, [], []

    def full(made: Processor, identifier: str, *rest: Any) -> Any:
        if identifier == "fed" and len(faults) < 3:
            faults.append(service.fault())
            others.append(len(set(notified)))
            raise StorageFailed("The disk is full")
        return add(made, identifier, *rest)

    monkeypatch.setattr(Processor, "add", full)
    service.call(lambda made, now: made.add("s", [element(1)], ANYBODY, now)).result(10)
    wait_for(lambda: len(faults) == 3)
    wait_for(lambda: not service.fault())
    assert service.call(lambda made, _now: made.stream("fed", ANYBODY).number).result(10) == 1
    assert faults == ["", "The disk is full", "The disk is full"]
    assert others[1:] == [8, 8]
    assert len([record for record in caplog.records if record.message == "streams.not_delivered"]) == 1
    assert service.close(10)


def damaged(directory: Path, content: bytes) -> None:
    """Store a report, and overwrite the page that contains `content`."""
    with closing(StreamStore(directory)) as store, store.transaction():
        store.report("q", ReportRow(1, 1, "rows", 1, b"x" * 900 + content + b"x" * 3_000))
    file = directory / FILE_NAME
    found = file.read_bytes()
    begin = found.index(content) // 1024 * 1024
    file.write_bytes(found[:begin] + bytes(1024) + found[begin + 1024 :])


def test_a_damaged_report_is_an_error_with_file_and_remedy_and_a_fault_from_then_on(live, tmp_path):
    damaged(tmp_path, b"here")
    service = StreamService(tmp_path, StreamSettings(), EngineSettings(), live, Clock(), lambda access: access)
    service.call(lambda made, _now: made.put_stream("s", None, ANYBODY)).result(10)
    assert not service.fault()
    problem = f"{tmp_path / FILE_NAME} is damaged: .*edge restore.*move the file away"
    with pytest.raises(StorageFailed, match=problem):
        service.call(lambda _made, _now: service._store.reports("q", 0, -1)).result(10)
    service.call(lambda made, _now: made.streams(ANYBODY)).result(10)
    assert re.match(problem, service.fault())
    assert service.close(10)


def test_a_file_that_is_not_a_database_is_named_with_the_remedy(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b"x" * 4096)
    with pytest.raises(StorageFailed, match=f"{FILE_NAME} is damaged: .*edge restore"):
        StreamStore(tmp_path)


def test_a_subscription_to_live_data_that_begins_too_late_is_ended():
    class Busy:
        def __init__(self) -> None:
            self.future: Future[Any] = Future()
            self.future.set_running_or_notify_cancel()
            self.sink: Any = None
            self.ended: list[str] = []

        def subscribe(self, _query: Any, sink: Any) -> Future[Any]:
            self.sink = sink
            return self.future

        def unsubscribe(self, spuid: str) -> None:
            self.ended.append(spuid)

    class Begun:
        spuid = "urn:1"

    engine, changes = Busy(), []
    following = LiveSubscriptions(engine, changes.append, answer=0.01)
    with pytest.raises(NotReady):
        following.follow("SELECT * {}", ANYBODY, lambda *_: None, lambda _: None)
    engine.sink(SubscriberNotification("urn:1", None, 0, Delta((), (), ())))
    engine.future.set_result(Begun())
    engine.sink(SubscriberNotification("urn:1", None, 1, Delta((), (), ())))
    assert engine.ended == ["urn:1"]
    assert not changes
