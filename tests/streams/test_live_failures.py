"""Live data whose subscription has failed: the query says so, and a later query follows the graph again."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyoxigraph as ox
import pytest

from edge.engine.requests import Delta, SubscribeFailed, SubscriberNotification
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY
from edge.protocol.errors import NotReady
from edge.streams.live_subscriptions import LiveSubscriptions
from edge.streams.observations import OBSERVATIONS
from edge.streams.processor import NewElement, Processor
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
NODE, NAME, VALUE = ox.NamedNode("urn:a"), ox.NamedNode("urn:name"), ox.NamedNode("urn:value")
REASON = "The subscription is too large"


class Live:
    """A live graph with one pattern."""

    def __init__(self) -> None:
        self.rows: list[Any] = [(NODE, NAME, ox.Literal("old"))]
        self.followers: list[Any] = []
        self.ended = 0
        self.busy = False

    def follow(self, _sparql, _access, changed, failed):
        if self.busy:
            raise NotReady("The live graph is busy")
        self.followers.append((changed, failed))
        return list(self.rows), self._end

    def _end(self):
        self.ended += 1


class Observations:
    """Observations that the test adds."""

    def __init__(self) -> None:
        self.followers: list[Any] = []

    def follow(self, added, failed):
        self.followers.append((added, failed))
        return lambda: None

    def past(self, _begin, _end):
        return ()


@pytest.fixture
def live():
    return Live()


@pytest.fixture
def observations():
    return Observations()


@pytest.fixture
def made(live, observations):
    made = Processor(
        StreamSettings(),
        StreamStore(None),
        lambda: make_engine(EngineSettings()),
        live,
        lambda access: access,
        observations=observations,
    )
    made.restore(START)
    made.put_stream("s", None, ANYBODY)
    yield made
    made.close()


def text(name):
    return (
        f"REGISTER RSTREAM <urn:edge:stream:{name}> AS SELECT ?n FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> "
        f"[RANGE PT{len(name)}S STEP PT1S] WHERE {{ WINDOW <urn:w> {{ ?s <urn:value> ?v }} ?s <urn:name> ?n }}"
    )


def failures(made, name):
    return made.live_failures(made.query(name, ANYBODY))


def names(made, now):
    """Return the names in the reports of each query at a time."""
    made.add("s", [NewElement((ox.Triple(NODE, VALUE, ox.Literal(1)),))], ANYBODY, now - 1)
    made.advance(now)
    return {each.query: sorted(row[0].value for row in each.rows) for each in made.store_reports()}


def test_a_query_names_the_live_data_that_do_not_follow_the_graph(made, live):
    made.register("q", text("q"), ANYBODY, START)
    assert failures(made, "q") == []
    live.followers[0][1](REASON)
    (failure,) = failures(made, "q")
    assert failure == f"SELECT ?s (<urn:name> AS ?p) ?o WHERE {{ ?s <urn:name> ?o }}: {REASON}"
    assert names(made, START + SECOND) == {"q": ["old"]}
    assert made.query("q", ANYBODY).state == "running"


def test_a_later_query_lets_all_queries_follow_the_graph_again(made, live):
    made.register("q", text("q"), ANYBODY, START)
    live.followers[0][1](REASON)
    live.rows = [(NODE, NAME, ox.Literal("new")), (NODE, NAME, ox.Literal("other"))]
    made.register("qq", text("qq"), ANYBODY, START)
    assert (failures(made, "q"), failures(made, "qq")) == ([], [])
    assert names(made, START + SECOND) == {"q": ["new", "other"], "qq": ["new", "other"]}
    live.followers[1][0]([], [live.rows[0]])
    assert names(made, START + 2 * SECOND) == {"q": ["other"], "qq": ["other"]}
    made.unregister("q", ANYBODY)
    made.unregister("qq", ANYBODY)
    assert live.ended == 1


def test_a_later_query_is_refused_while_the_graph_cannot_be_followed(made, live):
    made.register("q", text("q"), ANYBODY, START)
    live.followers[0][1](REASON)
    live.busy = True
    with pytest.raises(NotReady):
        made.register("qq", text("qq"), ANYBODY, START)
    assert len(failures(made, "q")) == 1
    assert names(made, START + SECOND) == {"q": ["old"]}


def test_a_failure_of_data_that_no_query_needs_any_more_is_ignored(made, live):
    made.register("q", text("q"), ANYBODY, START)
    made.unregister("q", ANYBODY)
    live.followers[0][1](REASON)
    made.register("q", text("q"), ANYBODY, START)
    live.followers[0][1](REASON)
    assert failures(made, "q") == []


def test_a_query_on_observations_says_that_none_come_until_another_one_begins(made, observations):
    def query(name, size):
        return (
            f"REGISTER RSTREAM <urn:edge:stream:{name}> AS SELECT ?s FROM NAMED WINDOW <urn:w> ON <{OBSERVATIONS}> "
            f"[ELEMENTS {size}] WHERE {{ WINDOW <urn:w> {{ ?s <urn:value> ?v }} }}"
        )

    made.register("q", query("q", 1), ANYBODY, START)
    made.register("other", text("other"), ANYBODY, START)
    observations.followers[0][1](REASON)
    assert failures(made, "q") == [f"{OBSERVATIONS}: {REASON}"]
    assert failures(made, "other") == []
    made.register("qq", query("qq", 2), ANYBODY, START)
    assert (failures(made, "q"), failures(made, "qq"), len(observations.followers)) == ([], [], 2)
    observations.followers[1][0]([((ox.Triple(NODE, VALUE, ox.Literal(1)),), None)])
    made.advance(START + SECOND)
    assert {each.query: len(each.rows) for each in made.store_reports()} == {"q": 1, "qq": 1, "other": 0}


def test_a_failure_of_the_subscription_comes_to_the_thread_after_the_changes_before():
    class Engine:
        def subscribe(self, _query, sink):
            self.sink = sink
            sink(SubscriberNotification("urn:1", None, 0, Delta((), (), ())))
            future: Future[Any] = Future()
            future.set_result(type("Begun", (), {"spuid": "urn:1"})())
            return future

        def unsubscribe(self, spuid):
            raise AssertionError(spuid)

    engine, actions, seen = Engine(), [], []
    following = LiveSubscriptions(engine, actions.append)
    following.follow("SELECT * {}", ANYBODY, lambda *rows: seen.append(rows), seen.append)
    engine.sink(SubscriberNotification("urn:1", None, 1, Delta((), (("row",),), ())))
    engine.sink(SubscribeFailed("urn:1", None, REASON))
    assert seen == []
    for action in actions:
        action()
    assert seen == [((("row",),), ()), REASON]
