"""Queries that cannot go on at the start because the live graph is busy, or that fail while they begin."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pyoxigraph as ox
import pytest

from edge.config import Settings
from edge.engine.requests import ActiveSubscription, Delta, SubscriberNotification
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.gateway.streams import RunningStreams
from edge.metrics import Metrics
from edge.protocol.access import ANYBODY
from edge.protocol.errors import NotReady, StorageFailed
from edge.streams.observations import OBSERVATIONS
from edge.streams.processor import NewElement, Processor
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore
from edge.streams.stored_rows import StoredObserver

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
STREAM = "urn:edge:stream:s"
NODE, NAME, VALUE = ox.NamedNode("urn:a"), ox.NamedNode("urn:name"), ox.NamedNode("urn:value")
REASON = "The subscription is too large"
BUSY = "The live graph is busy; try again later"
LIVE = " ?s <urn:name> ?n"


class Live:
    """A live graph that can be busy."""

    def __init__(self) -> None:
        self.busy: set[str] | bool = False
        """Predicates whose patterns get no answer; True: all."""
        self.asked: list[str] = []

    def follow(self, sparql: str, *_: Any) -> Any:
        self.asked.append(sparql)
        if self.busy is True or (self.busy and any(each in sparql for each in self.busy)):
            raise NotReady(BUSY)
        return [(NODE, NAME, ox.Literal("a"))], lambda: None


class Observations:
    """Observations that the test adds."""

    def __init__(self) -> None:
        self.followers: list[Any] = []
        self.ended = 0
        self.busy = False

    def follow(self, added: Any, failed: Any) -> Any:
        if self.busy:
            raise NotReady(BUSY)
        self.followers.append((added, failed))
        return self._end

    def _end(self) -> None:
        self.ended += 1

    def past(self, _begin: int, _end: int) -> Any:
        return ()


class Store(StreamStore):
    """A store that can lose the result of a query."""

    lost: tuple[str, ...] = ()
    """Queries whose results cannot be read."""

    def result(self, name: str) -> Any:
        if name in self.lost:
            raise StorageFailed("The disk has failed")
        return super().result(name)


class Run:
    """Processors on the same store, one after the other."""

    def __init__(self) -> None:
        self.live, self.observations, self.store = Live(), Observations(), Store(None)
        self.engines: list[Any] = []
        self.processor = self._make()
        self.processor.restore(START)
        self.processor.put_stream("s", None, ANYBODY)

    def _make(self) -> Processor:
        def engine() -> Any:
            made = make_engine(EngineSettings())
            self.engines.append(made)
            close = made.close

            def closed() -> None:
                self.engines.remove(made)
                close()

            made.close = closed  # type: ignore[method-assign]
            return made

        live, settings = self.live, StreamSettings()
        return Processor(settings, self.store, engine, live, lambda access: access, observations=self.observations)

    def again(self, now: int) -> Processor:
        """Start another processor."""
        self.processor.store_reports()
        self.processor.close()
        self.live.asked.clear()
        self.processor = self._make()
        self.processor.restore(now)
        return self.processor

    def states(self) -> dict[str, str]:
        return {query.name: query.state for query in self.processor.all_queries()}

    def register(self, name: str, window: str = "[RANGE PT1M STEP PT1S]", live: str = LIVE, stream: str = STREAM):
        text = (
            f"REGISTER RSTREAM <urn:edge:stream:{name}> AS SELECT ?v FROM NAMED WINDOW <urn:w> ON <{stream}> {window} "
            f"WHERE {{ WINDOW <urn:w> {{ ?s <urn:value> ?v }}{live} }}"
        )
        self.processor.register(name, text, ANYBODY, self.processor.time)

    def add(self, value: int, now: int, stream: str = "s") -> None:
        self.processor.add(stream, [NewElement(graph(value))], ANYBODY, now)
        self.processor.advance(now)

    def cleaned(self, now: int) -> None:
        """Let unneeded elements be removed."""
        self.processor.advance(now)
        self.processor.store_reports()

    def last(self, now: int) -> dict[str, list[int]]:
        """Return the values in the last report of each query."""
        self.processor.advance(now)
        return {each.query: sorted(int(row[0].value) for row in each.rows) for each in self.processor.store_reports()}


def graph(value: int) -> tuple[ox.Triple, ...]:
    return (ox.Triple(NODE, VALUE, ox.Literal(value)),)


@pytest.fixture
def run():
    run = Run()
    yield run
    run.processor.close()


# Observations that are not followed any more


def test_a_query_that_is_registered_again_lets_the_others_of_its_window_follow_observations_again(run):
    for name in ("one", "two"):
        run.register(name, stream=OBSERVATIONS)
    run.observations.followers[0][1](REASON)
    run.processor.unregister("one", ANYBODY)
    run.register("one", stream=OBSERVATIONS)
    assert [run.processor.live_failures(query) for query in run.processor.all_queries()] == [[], []]
    run.observations.followers[-1][0]([(graph(1), None)])
    assert run.last(START + SECOND) == {"one": [1], "two": [1]}


def test_a_query_that_cannot_follow_observations_changes_no_state_of_the_others(run):
    run.register("one", stream=OBSERVATIONS)
    run.observations.followers[0][1](REASON)
    run.observations.busy = True
    with pytest.raises(NotReady):
        run.register("two", stream=OBSERVATIONS)
    (query,) = run.processor.all_queries()
    assert run.processor.live_failures(query) == [f"{OBSERVATIONS}: {REASON}"]
    run.observations.busy = False
    run.register("two", stream=OBSERVATIONS)
    assert run.processor.live_failures(query) == []
    assert len(run.observations.followers) == 2


# A busy live graph


def test_a_busy_live_graph_is_asked_once_at_the_start(run):
    for number in range(3):
        run.register(f"live{number}", live=f" ?s <urn:name{number}> ?n")
    run.register("observed", live="", stream=OBSERVATIONS)
    run.register("other", live="")
    run.live.busy = True
    made = run.again(START + SECOND)
    assert len(run.live.asked) == 1
    late = dict.fromkeys(("live0", "live1", "live2", "observed"), "failed")
    assert run.states() == {**late, "other": "running"}
    assert {query.failure for query in made.all_queries()} == {BUSY, ""}


def test_a_review_ends_with_a_query_that_has_to_wait_again_and_the_others_take_turns(run):
    for number in range(3):
        run.register(f"live{number}", live=f" ?s <urn:name{number}> ?n")
    run.live.busy = True
    made = run.again(START + SECOND)
    run.live.busy = {"urn:name1"}
    started = []
    for _ in range(4):
        made.review()
        started.append([name for name, state in run.states().items() if state == "running"])
    assert started == [["live0"], ["live0", "live2"], ["live0", "live2"], ["live0", "live2"]]
    run.live.busy = False
    made.review()
    assert set(run.states().values()) == {"running"}
    asked = len(run.live.asked)
    made.review()
    assert len(run.live.asked) == asked


def test_a_review_passes_over_late_queries_that_have_ended(run):
    for name in ("one", "two"):
        run.register(name)
    run.live.busy = True
    made = run.again(START + SECOND)
    made.unregister("one", ANYBODY)
    run.live.busy = False
    made.review()
    assert run.states() == {"two": "running"}


# Elements of queries that begin late


@pytest.mark.parametrize(
    "window", ["[RANGE PT1M STEP PT1S]", "[ELEMENTS 3]", '[LANDMARK "2027-01-15T00:00:00Z" STEP PT1S]']
)
@pytest.mark.parametrize("lateness", [0, 5])
@pytest.mark.parametrize("others", [(), ("[RANGE PT1S STEP PT1S]",)], ids=["alone", "others"])
def test_a_query_that_begins_late_has_its_elements(run, window, lateness, others):
    run.processor.put_stream("s", lateness * SECOND, ANYBODY)
    run.register("late", window)
    for number, other in enumerate(others):
        run.register(f"other{number}", other, live="")
    for second in (1, 2, 3):
        run.add(second, START + second * SECOND)
    run.live.busy = True
    run.again(START + 4 * SECOND)
    for second in (15, 26):
        run.cleaned(START + second * SECOND)
    run.live.busy = False
    run.processor.review()
    if window.startswith("[E"):
        (query,) = (each for each in run.processor.all_queries() if each.name == "late")
        assert sorted(each.number for each in query.windows[0].window.content) == [1, 2, 3]
    else:
        assert run.last(START + 27 * SECOND)["late"] == [1, 2, 3]


@pytest.mark.parametrize("window", ["[RANGE PT1M STEP PT1S]", "[ELEMENTS 2]"])
def test_elements_that_come_before_a_late_query_begins_are_in_its_window(run, window):
    run.register("late", window)
    run.live.busy = True
    run.again(START + SECOND)
    for second in (2, 3):
        run.add(second, START + second * SECOND)
    run.cleaned(START + 15 * SECOND)
    run.live.busy = False
    run.processor.review()
    assert run.states() == {"late": "running"}
    run.add(4, START + 16 * SECOND)
    run.add(5, START + 16 * SECOND)
    assert run.last(START + 17 * SECOND)["late"] == ([4, 5] if window.startswith("[E") else [2, 3, 4, 5])
    (query,) = run.processor.all_queries()
    assert [each.number for each in query.windows[0].window.content] == (
        [3, 4] if window.startswith("[E") else [1, 2, 3, 4]
    )


@pytest.mark.parametrize(
    ("window", "kept"),
    [
        ("[RANGE PT10S STEP PT5S]", [20, 21]),
        ("[RANGE PT10S STEP PT1S] EVERY PT20S", [10, 11, 20, 21]),
        ("[RANGE PT20S STEP PT1S] ON CHANGE", [20, 21]),
    ],
)
def test_elements_that_a_late_query_cannot_need_any_more_leave(run, window, kept):
    run.register("late", window)
    run.register("other", "[RANGE PT1S STEP PT1S]", live="")
    run.live.busy = True
    made = run.again(START)
    for second in (1, 10, 11, 20, 21):
        run.add(second, START + second * SECOND)
    run.cleaned(START + 33 * SECOND)
    assert [int(each.triples[0].object.value) for each in made.stream("s", ANYBODY).elements] == kept


def test_elements_of_a_late_query_that_has_ended_leave(run):
    run.register("late")
    run.add(1, START + SECOND)
    run.live.busy = True
    made = run.again(START + 2 * SECOND)
    run.cleaned(START + 15 * SECOND)
    assert made.stream("s", ANYBODY).size
    made.unregister("late", ANYBODY)
    run.cleaned(START + 30 * SECOND)
    assert not made.stream("s", ANYBODY).size


@pytest.mark.parametrize("other", ["before", "other"])
def test_observations_of_a_late_query_stay_when_another_query_ends(run, other):
    for name in sorted(("late", other)):
        run.register(name, live=LIVE if name == "late" else " ?s <urn:other> ?n", stream=OBSERVATIONS)
    run.observations.followers[0][0]([(graph(1), None)])
    run.processor.advance(START + SECOND)
    run.live.busy = {"urn:name"}
    made = run.again(START + 2 * SECOND)
    if other == "other":  # begun after the first one, so both are late
        made.review()
        made.review()
    assert run.states() == {"late": "failed", other: "running"}
    made.unregister(other, ANYBODY)
    run.cleaned(START + 15 * SECOND)
    run.live.busy = False
    made.review()
    assert run.last(START + 16 * SECOND) == {"late": [1]}


def test_observations_stay_when_a_query_before_fails_at_the_start(run):
    for name in ("one", "two"):
        run.register(name, live="", stream=OBSERVATIONS)
    run.observations.followers[0][0]([(graph(1), None)])
    run.processor.advance(START + SECOND)
    run.store.lost = ("one",)
    run.again(START + 2 * SECOND)
    assert run.states() == {"one": "failed", "two": "running"}
    assert run.last(START + 3 * SECOND) == {"two": [1]}


@pytest.mark.parametrize("is_late", [False, True], ids=["at-the-start", "late"])
def test_a_query_on_observations_that_fails_for_good_does_not_follow_them(run, is_late):
    run.register("q", stream=OBSERVATIONS)
    run.observations.followers[0][0]([(graph(1), None)])
    run.processor.advance(START + SECOND)
    run.live.busy, run.store.lost = is_late, ("q",)
    made = run.again(START + 2 * SECOND)
    run.live.busy = False
    made.review()
    (query,) = made.all_queries()
    assert (query.failure, query.is_late) == ("The disk has failed", False)
    assert (len(run.observations.followers), run.observations.ended) == (2, 1)
    assert not made.stream(OBSERVATIONS, ANYBODY).size


# Queries that fail while they begin, or later


def test_a_query_that_fails_after_its_subscription_leaves_none(run):
    run.register("q", live="")
    run.store.lost = ("q",)
    made = run.again(START + SECOND)
    assert run.states() == {"q": "failed"}
    assert run.engines == []
    made.unregister("q", ANYBODY)
    assert run.engines == []


def test_a_query_that_has_failed_leaves_no_engine(run):
    run.register("q", live="")
    (query,) = run.processor.all_queries()
    query.fail(REASON)
    run.processor.unregister("q", ANYBODY)
    assert run.engines == []


# The gateway


class SlowEngine:
    """A live graph that answers when the test says so."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.future: Future[ActiveSubscription] = Future()

    def subscribe(self, _query: Any, sink: Any) -> Future[ActiveSubscription]:
        self.sink = sink
        self.asked.set()
        return self.future

    def answer(self) -> None:
        self.sink(SubscriberNotification("urn:1", None, 0, Delta((), (), ())))
        self.future.set_result(ActiveSubscription("urn:1", None))

    def unsubscribe(self, _spuid: str) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(None)
        return done


def prepared(tmp_path) -> tuple[Settings, SlowEngine]:
    """Store a query with live data and an observer, as an earlier process would."""
    run = Run.__new__(Run)
    run.live, run.observations, run.store, run.engines = Live(), Observations(), Store(tmp_path), []
    run.processor = run._make()
    run.processor.restore(START)
    run.processor.put_stream("s", None, ANYBODY)
    run.register("q")
    run.processor.store_reports()
    with run.store.transaction():
        run.store.put_observer(StoredObserver("urn:observer", "q", "http://127.0.0.1:9/", ANYBODY.client, 0))
    run.processor.close()
    run.store.close()
    return Settings(data_dir=tmp_path), SlowEngine()


@pytest.mark.parametrize("answers", [False, True], ids=["stops", "answers"])
def test_a_slow_restore_does_not_delay_the_gateway(tmp_path, caplog, answers):
    settings, engine = prepared(tmp_path)

    async def restored() -> None:
        streams = RunningStreams(settings, engine, Metrics(), lambda access: access, dict, None)
        await streams.restore(longest=0)
        assert "streams.restore_is_slow" in caplog.messages
        assert await asyncio.to_thread(engine.asked.wait, 20)
        if answers:
            engine.answer()
            assert (await streams.query("q", ANYBODY))["state"] == "running"
            (observer,) = await streams.observers("q", ANYBODY)
            assert "delivered" in observer
        else:
            engine.future.cancel()
        await streams.stop()

    asyncio.run(restored())
