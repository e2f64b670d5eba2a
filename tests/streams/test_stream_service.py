"""The service of streams with a clock of the test: permissions that end, and streams that observe queries."""

from __future__ import annotations

import json
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.requests import ActiveSubscription, Delta, SubscriberNotification
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.access import Access
from edge.protocol.errors import Forbidden, InvalidClient, InvalidRequest, NotFound, NotReady
from edge.protocol.report_position import ReportPosition
from edge.streams.processor import NewElement, Processor
from edge.streams.recent_reports import RecentReports
from edge.streams.service import StreamService
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
ELEMENT = (ox.Triple(ox.NamedNode("urn:a"), ox.NamedNode("urn:p"), ox.Literal("x")),)
OWNER = Access("owner", frozenset({"query", "update"}), registration="1")
ROOMS, TARGET, MADE = (f"urn:edge:stream:{name}" for name in ("rooms", "target", "made"))


class Clock:
    """The wall clock as the test sets it."""

    boot = "boot"

    def __init__(self) -> None:
        self.now = START
        self._set = 0

    def wall(self) -> int:
        return self.now

    def steady(self) -> int:
        return self.now - self._set

    def set_by(self, change: int) -> None:
        """Set the wall clock."""
        self.now += change
        self._set += change

    def trusted(self) -> bool:
        return True


class Rights:
    """Current permissions by the registration of a client."""

    def __init__(self) -> None:
        self.now: dict[str, Access] = {}

    def __call__(self, given: Access) -> Access:
        found = self.now.get(given.registration, given)
        if not found.actions:
            raise InvalidClient(f'The client "{given.client}" was revoked')
        return found.narrowed(given)


class Service:
    """A service, and short forms of its calls."""

    def __init__(self, live: Any, directory: Path | None = None) -> None:
        self.clock, self.rights = Clock(), Rights()
        self._live, self._directory = live, directory
        self.open()

    def open(self) -> None:
        self.service = StreamService(
            self._directory,
            StreamSettings(),
            EngineSettings(),
            self._live,
            self.clock,
            self.rights,
            own_stream=lambda url: url.removeprefix("/streams/") if url.startswith("/streams/") else None,
        )

    def close(self) -> None:
        assert self.service.close(20)

    def call(self, action: Any) -> Any:
        return self.service.call(action).result(20)

    def stream(self, name: str) -> None:
        self.call(lambda processor, _now: processor.put_stream(name, None, OWNER))

    def register(self, name: str, form: str = "SELECT ?o", stream: str = "rooms", access: Access = OWNER) -> None:
        text = (
            f"REGISTER QUERY {name} AS {form} FROM STREAM <urn:edge:stream:{stream}> [RANGE 10s STEP 10s] "
            "{ ?s <urn:p> ?o }"
        )
        self.call(lambda processor, now: processor.register(name, text, access, now))

    def add(self, name: str) -> None:
        self.call(lambda processor, now: processor.add(name, [NewElement(ELEMENT)], OWNER, now))

    def elements(self, name: str) -> int:
        return self.call(lambda processor, _now: processor.stream(name, OWNER).number)

    def state(self, name: str) -> str:
        return self.call(lambda processor, _now: processor.query(name, OWNER).state)

    def wait(self, seconds: float) -> None:
        """Let time pass; the next turn of the thread is with this call."""
        self.clock.now += round(seconds * SECOND)
        self.call(lambda processor, _now: None)
        self.call(
            lambda processor, _now: None
        )  # elements that the first turn fed to streams are accepted in the second


@pytest.fixture(scope="module")
def live():
    engine = open_engine(None, EngineSettings())
    yield engine
    engine.close()


@pytest.fixture
def service(live):
    service = Service(live)
    for stream in ("rooms", "target"):
        service.stream(stream)
    yield service
    service.close()


REVOKED = Access("owner", frozenset())


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (REVOKED, "was revoked"),
        (replace(OWNER, read=frozenset({ROOMS})), "have changed"),
        (replace(OWNER, read=frozenset()), "have changed"),
        (replace(OWNER, write=frozenset()), "have changed"),
        (replace(OWNER, actions=frozenset({"query"})), "have changed"),
    ],
    ids=["revoked", "reads less", "reads nothing", "writes nothing", "may not update"],
)
def test_the_queries_of_a_client_fail_within_a_minute_after_its_permissions_end(service, now, reason):
    service.register("made", "CONSTRUCT { ?s <urn:p> ?o }")
    service.register("other", access=replace(OWNER, client="other", registration="2"))
    service.wait(61)
    service.rights.now["1"] = now
    service.wait(61)
    assert service.state("made") == "failed"
    assert service.state("other") == "running"
    failure = service.call(lambda processor, _now: processor.query("made", OWNER).failure)
    assert reason in failure
    reports = service.call(lambda processor, _now: processor.query("made", OWNER).number)
    service.add("rooms")
    service.wait(30)
    assert service.call(lambda processor, _now: processor.query("made", OWNER).number) == reports


def test_a_query_without_a_stream_needs_no_permission_to_write(service):
    service.register("q")
    service.rights.now["1"] = replace(OWNER, actions=frozenset({"query"}), write=frozenset())
    service.wait(61)
    service.wait(61)
    assert service.state("q") == "running"


def test_subscriptions_of_clients_without_the_action_query_go_on(service):
    """The gates watch their permissions."""
    text = "REGISTER QUERY q AS SELECT ?o FROM STREAM <urn:edge:stream:rooms> [RANGE 10s STEP 10s] { ?s <urn:p> ?o }"
    service.rights.now["1"] = REVOKED
    query, _ = service.call(lambda processor, now: processor.subscribe(text, OWNER, now))
    service.wait(61)
    service.wait(61)
    assert query.state == "running"


def test_a_client_with_the_name_of_a_revoked_one_does_not_own_its_queries(service):
    service.register("q")
    again = replace(OWNER, registration="2")
    for action in (
        lambda processor, _now: processor.unregister("q", again),
        lambda processor, _now: processor.pause("q", again, paused=True),
        lambda processor, _now: processor.owned("q", again),
    ):
        with pytest.raises(Forbidden, match="another client"):
            service.call(action)
    limited = replace(again, read=frozenset({ROOMS}))
    with pytest.raises(NotFound):
        service.call(lambda processor, _now: processor.query("q", limited))
    service.call(lambda processor, _now: processor.unregister("q", OWNER))


def test_reports_are_elements_of_a_stream_as_long_as_the_client_may_write_it(service):
    service.register("made", "CONSTRUCT { ?s <urn:p> ?o }")
    service.service.observe("made", "/streams/target", OWNER).result(20)
    service.add("rooms")
    service.wait(10)
    assert service.elements("target") == 1
    # Before the next review of the query, too.
    service.rights.now["1"] = replace(OWNER, write=frozenset({MADE, ROOMS}))
    service.add("rooms")
    service.wait(10)
    assert service.elements("target") == 1
    service.rights.now.clear()
    service.add("rooms")
    service.wait(10)
    assert service.elements("target") == 2


@pytest.mark.parametrize(
    "access",
    [replace(OWNER, write=frozenset({MADE})), replace(OWNER, actions=frozenset({"query"}))],
    ids=["another graph", "another action"],
)
def test_a_stream_observes_only_queries_of_clients_that_may_write_it(service, access):
    if "update" in access.actions:
        service.register("made", "CONSTRUCT { ?s <urn:p> ?o }", access=access)
        with pytest.raises(Forbidden, match="may not write"):
            service.service.observe("made", "/streams/target", access).result(20)
    else:
        with pytest.raises(Forbidden, match="may not write"):
            service.register("made", "CONSTRUCT { ?s <urn:p> ?o }", access=access)


@pytest.mark.parametrize(
    ("clauses", "where"),
    [
        ("", "GRAPH <urn:edge:window:1> { ?s ?p ?o }"),
        ("", "GRAPH w:1 { ?s ?p ?o }"),
        ("", "GRAPH <urn:edge:window:1> {}"),
        ("", "GRAPH ?g {}"),
        ("", "GRAPH ?g { ?s ?p ?o }"),
        ("", "FILTER EXISTS { GRAPH <urn:edge:window:past:1:0> { ?s <urn:p>+ ?o } }"),
        ("", "{ SELECT ?s { GRAPH <urn:edge:window:1> { ?s ?p ?o } } }"),
        ("FROM <urn:edge:window:1>", "?s ?p ?o"),
        ("FROM NAMED <urn:edge:window:1>", "GRAPH ?g { ?s ?p ?o }"),
        ("FROM NAMED w:1", "GRAPH ?g {}"),
    ],
)
def test_a_query_cannot_name_the_windows_of_others(service, clauses, where):
    service.register("hidden", stream="target")
    text = (
        f"PREFIX w: <urn:edge:window:> REGISTER RSTREAM <urn:q> AS SELECT * {clauses} "
        f"FROM NAMED WINDOW <urn:w> ON <{ROOMS}> [RANGE PT10S] WHERE {{ WINDOW <urn:w> {{ ?a ?b ?c }} {where} }}"
    )
    with pytest.raises(InvalidRequest, match=r"reserved for windows|range over"):
        service.call(lambda processor, now: processor.register("urn:q", text, OWNER, now))


def test_a_window_may_have_any_name(service):
    text = (
        f"REGISTER RSTREAM <urn:q> AS SELECT * FROM NAMED WINDOW <urn:edge:window:1> ON <{ROOMS}> [RANGE PT10S] "
        "WHERE { WINDOW <urn:edge:window:1> { ?a ?b ?c } }"
    )
    service.call(lambda processor, now: processor.register("urn:q", text, OWNER, now))


def test_cycles_are_refused_after_a_restart_and_after_the_end_of_others(live, tmp_path):
    service = Service(live, tmp_path)
    for stream in ("rooms", "target"):
        service.stream(stream)
    service.register("first", "CONSTRUCT { ?s <urn:p> ?o }")
    service.register("second", "CONSTRUCT { ?s <urn:p> ?o }", "target")
    observer = service.service.observe("first", "/streams/target", OWNER).result(20)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="its own results"):
            service.service.observe("second", "/streams/rooms", OWNER).result(20)
        service.close()
        service.open()
    service.service.end_observer("first", observer.id, OWNER).result(20)
    service.service.observe("second", "/streams/rooms", OWNER).result(20)
    with pytest.raises(InvalidRequest, match="its own results"):
        service.service.observe("first", "/streams/target", OWNER).result(20)
    service.close()


def test_a_query_of_a_client_that_was_revoked_meanwhile_does_not_start_again(live, tmp_path):
    service = Service(live, tmp_path)
    service.stream("rooms")
    service.register("q")
    service.add("rooms")
    service.close()
    service.rights.now["1"] = REVOKED
    service.clock.now += 30 * SECOND
    service.open()
    found = service.call(lambda processor, _now: processor.query("q", OWNER))
    assert (found.state, found.number) == ("failed", 0)
    service.close()


class Followed:
    """A follower of the query "q" in the process."""

    def __init__(
        self, service: Service, after: int | None = None, of: str | None = None, quota: ByteQuota | None = None
    ) -> None:
        charge = (quota or ByteQuota()).charge("owner")
        position = None if after is None else ReportPosition(after, of)
        self.future = service.service.follow("q", OWNER, charge, lambda: None, after=position)

    def close(self) -> None:
        self.future.result(20).close()

    def numbers(self) -> list[int]:
        reports = self.future.result(20)
        return [json.loads(text)["report"]["number"] for text in iter(reports.take, None)]


def test_a_follower_does_not_get_the_report_whose_number_it_got_at_the_begin(service):
    """The window closes in the turn in which the follower begins, before its report is durable."""
    service.register("q")
    service.clock.now += 60 * SECOND
    follower = Followed(service)
    assert follower.future.result(20).number > 0
    service.wait(0)
    assert follower.numbers() == []
    last = follower.future.result(20).number
    service.wait(10)
    assert follower.numbers() == [last + 1]


def test_the_number_that_a_follower_gets_is_durable(live, tmp_path, monkeypatch):
    service = Service(live, tmp_path)
    service.stream("rooms")
    service.register("q")
    service.clock.now += 30 * SECOND
    monkeypatch.setattr(service.service, "_store_reports", lambda _retry: None)  # the process ends before
    number = Followed(service).future.result(20).number
    with closing(StreamStore(tmp_path)) as store:
        assert store.queries()[0].number == number > 0
    service.close()


def followed(service: Service, after: int | None = None) -> int:
    """Follow the query "q" for one report. Returns its number."""
    follower = Followed(service, after=after)
    service.wait(10)
    (number,) = follower.numbers()
    follower.close()
    return number


def test_a_follower_that_comes_back_gets_the_reports_that_it_has_missed(service):
    service.register("q")
    last = followed(service)
    for _ in range(3):
        service.wait(10)
    follower = Followed(service, after=last)
    assert follower.future.result(20).number == last
    service.wait(10)
    assert follower.numbers() == [last + 1, last + 2, last + 3, last + 4]
    # Each follower gets those after its own number.
    assert Followed(service, after=last + 3).numbers() == [last + 4]
    assert Followed(service).numbers() == []


def test_a_report_that_is_not_durable_yet_comes_once_to_a_follower_that_comes_back(service):
    service.register("q")
    last = followed(service)
    service.clock.now += 10 * SECOND  # the window closes in the turn in which the follower begins
    follower = Followed(service, after=last)
    service.wait(0)
    assert follower.numbers() == [last + 1]


def test_a_follower_of_an_earlier_query_gets_all_reports_that_are_kept(service):
    service.register("q")
    follower = Followed(service)
    service.wait(10)
    of = follower.future.result(20).of
    follower.close()
    service.service.unregister("q", OWNER).result(20)
    service.register("q")
    assert Followed(service, after=100).future.result(20).number == 0
    for _ in range(3):
        service.wait(10)
    assert Followed(service, after=100).numbers() == [1, 2, 3]
    # Its number is one of the new query by now.
    again = Followed(service, after=2, of=of)
    assert (again.future.result(20).number, again.numbers()) == (0, [1, 2, 3])
    assert Followed(service, after=2, of=again.future.result(20).of).numbers() == [3]


def test_a_query_that_is_registered_again_while_the_clock_is_behind_has_another_identifier(service):
    """The time of windows stands still then, so both registrations have the same."""
    found = []
    service.clock.set_by(-3600 * SECOND)
    for _ in range(2):
        service.register("q")
        found.append(Followed(service).future.result(20).of)
        service.service.unregister("q", OWNER).result(20)
    assert len(set(found)) == 2


@pytest.mark.parametrize("clock", [-3600, 0, 30])
def test_a_follower_that_comes_back_after_a_restart_gets_the_reports_that_it_has_missed(live, tmp_path, clock):
    """The clock may be set meanwhile: the time since the boot counts, and the windows do not go back."""
    service = Service(live, tmp_path)
    service.stream("rooms")
    service.register("q")
    last = followed(service)
    service.wait(10)
    service.wait(10)
    of = Followed(service).future.result(20).of
    service.close()
    service.clock.set_by(clock * SECOND)
    service.open()
    follower = Followed(service, after=last, of=of)
    assert (follower.future.result(20).of, follower.future.result(20).number) == (of, last)
    service.clock.now += max(0, -clock) * SECOND
    service.wait(10)
    numbers = follower.numbers()
    assert len(numbers) >= 3
    assert numbers == list(range(last + 1, last + 1 + len(numbers)))
    service.close()


def test_a_query_has_the_same_identifier_after_a_restart(live, tmp_path):
    service = Service(live, tmp_path)
    service.stream("rooms")
    service.register("q")
    of = Followed(service).future.result(20).of
    service.close()
    service.open()
    assert Followed(service).future.result(20).of == of
    service.close()


def test_a_follower_whose_quota_is_less_than_what_it_has_missed_gets_the_newest_reports(service):
    service.register("q")
    last = followed(service)
    last = followed(service, last)  # it has come back once, so the reports of ten minutes are kept
    for _ in range(20):
        service.wait(10)
    quota = ByteQuota(max_client=4_000)
    follower = Followed(service, after=last, quota=quota)
    assert follower.future.result(20).error is None
    service.wait(10)
    numbers = follower.numbers()
    assert numbers[-1] == last + 21
    assert 2 <= len(numbers) < 20
    assert numbers == list(range(numbers[0], last + 22))
    assert not quota.total


def test_kept_reports_last_while_the_wall_clock_is_set(service):
    service.register("q")
    last = followed(service)
    service.wait(10)
    service.clock.set_by(3600 * SECOND)
    service.wait(10)
    follower = Followed(service, after=last)
    assert last + 1 in follower.numbers()
    follower.close()
    service.wait(0)
    service.clock.now += 3600 * SECOND
    service.wait(0)
    service.wait(10)  # a report that is not kept any more
    assert Followed(service, after=last).numbers() == []


def test_a_fault_while_a_report_is_kept_does_not_stop_the_streams(service, monkeypatch):
    service.register("q")
    follower = Followed(service)
    service.wait(10)

    def broken(*_):
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(RecentReports, "keep", broken)
        service.wait(10)
    service.wait(10)
    assert follower.numbers() == [1, 2, 3]
    assert Followed(service, after=0).numbers() == [3]
    assert not service.service.fault()


def test_a_query_that_was_registered_again_has_no_reports_of_the_earlier_one(service):
    service.register("q")
    followed(service)
    service.wait(10)
    service.service.unregister("q", OWNER).result(20)
    service.register("q")
    assert Followed(service, after=0).numbers() == []


def test_a_query_without_followers_keeps_no_reports(service):
    service.register("q")
    service.wait(10)
    follower = Followed(service, after=0)
    service.wait(10)
    assert follower.numbers() == [2]


def test_reports_that_are_made_up_for_after_a_start_are_kept_for_followers(live, tmp_path):
    service = Service(live, tmp_path)
    service.stream("rooms")
    service.register("q")
    last = followed(service)
    service.close()
    service.clock.now += 30 * SECOND
    service.open()
    service.wait(0)
    assert Followed(service, after=last).numbers() == [last + 1, last + 2, last + 3]
    service.close()


def test_a_follower_of_a_query_that_is_replaced_ends(service):
    service.register("q")
    follower = Followed(service)
    service.service.unregister("q", OWNER).result(20)
    service.register("q")
    service.wait(60)
    assert follower.numbers() == []
    assert "has been ended" in str(follower.future.result(20).error)
    follower.future.result(20).close()
    service.wait(0)


def test_a_query_that_has_failed_cannot_be_followed(service):
    service.register("q")
    service.rights.now["1"] = REVOKED
    service.wait(120)
    with pytest.raises(InvalidRequest, match="has failed"):
        Followed(service).future.result(20)


def test_followers_are_notified_when_the_streams_have_stopped(live, monkeypatch):
    service = Service(live)
    service.stream("rooms")
    service.register("q")
    follower = Followed(service)
    service.wait(10)

    def broken(*_):
        raise RuntimeError("a fault")

    monkeypatch.setattr(Processor, "advance", broken)
    service.service.call(lambda _processor, _now: None)
    with pytest.raises(NotReady):
        service.wait(0)
    assert follower.numbers() == [1]
    error = follower.future.result(20).error
    assert isinstance(error, NotReady)
    assert "have stopped: RuntimeError: a fault" in error.description
    service.close()


class BusyGraph:
    """An empty live graph that can be busy."""

    busy = False

    def subscribe(self, query, sink):
        if self.busy:
            raise NotReady("The live graph is busy; try again later")
        future = Future()
        sink(SubscriberNotification("live", None, 0, Delta(("o",), (), ())))
        future.set_result(ActiveSubscription("live", None))
        return future

    def unsubscribe(self, spuid):
        return Future()


def test_a_query_that_begins_late_can_be_followed_when_it_has_begun(tmp_path):
    graph = BusyGraph()
    service = Service(graph, tmp_path)
    service.stream("rooms")
    service.register("q", "SELECT ?o FROM <urn:live>")
    service.close()
    graph.busy = True
    service.open()
    service.clock.now += SECOND
    with pytest.raises(NotReady, match="has not begun yet"):
        Followed(service).future.result(20)
    graph.busy = False
    service.wait(120)
    follower = Followed(service)
    last = follower.future.result(20).number
    service.wait(10)
    assert follower.numbers() == [last + 1]
    service.close()
