"""The charge for the stored results of subscriptions: their size, the client that pays, and too large ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings as bounded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.result_charge import STEP
from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, StorageFailed, TooManyRequests
from tests.support.examples import examples
from tests.support.waiting import wait_for

MIB = 1024 * 1024

KEPT = {
    "DISTINCT": "SELECT DISTINCT ?s ?o { ?s <urn:p> ?o }",
    "GROUP BY": "SELECT ?s (COUNT(*) AS ?n) { ?s <urn:p> ?o } GROUP BY ?s",
    "COUNT DISTINCT": "SELECT (COUNT(DISTINCT ?o) AS ?n) { ?s <urn:p> ?o }",
    "MAX": "SELECT (MAX(?o) AS ?n) { ?s <urn:p> ?o }",
    "MIN of texts": "SELECT (MIN(CONCAT(?o, 'x')) AS ?n) { ?s <urn:p> ?o }",
    "SAMPLE": "SELECT (SAMPLE(?o) AS ?n) { ?s <urn:p> ?o }",
    "GROUP_CONCAT": "SELECT (GROUP_CONCAT(?o) AS ?n) { ?s <urn:p> ?o }",
    "CONSTRUCT": "CONSTRUCT { ?s <urn:q> [] } { ?s <urn:p> ?o }",
    "re-evaluated": "SELECT ?s ?o { ?s <urn:p> ?o } ORDER BY ?o LIMIT 100000",
    "re-evaluated CONSTRUCT": "CONSTRUCT { ?s <urn:q> ?o } { ?s <urn:p>* ?o }",
}
NOTHING = "SELECT ?s ?o { ?s <urn:p> ?o }"


def data(first: int, count: int, text: str = "") -> str:
    triples = " ".join(f"<urn:{number}> <urn:p> '{number}{text}' ." for number in range(first, first + count))
    return f"INSERT DATA {{ {triples} }}"


@dataclass
class Harness:
    """An engine and the account of its clients."""

    quota: ByteQuota
    engine: Any
    received: list[Any] = field(default_factory=list)

    def update(self, sparql: str) -> None:
        self.engine.update([UpdateRequest(sparql)]).result(20)
        self.settle()

    def subscribe(self, sparql: str, client: str = "alice") -> str:
        query = QueryRequest(sparql, source=client)
        spuid: str = self.engine.subscribe(query, self.received.append).result(20).spuid
        return spuid

    def unsubscribe(self, spuid: str) -> None:
        self.engine.unsubscribe(spuid).result(20)

    def settle(self) -> None:
        wait_for(lambda: not self.engine.pending_evaluations)
        self.engine.on_writer(lambda: None).result(20)

    @property
    def failures(self) -> list[str]:
        return [item.description for item in self.received if isinstance(item, SubscribeFailed)]


@pytest.fixture
def harness() -> Iterator[Harness]:
    quota = ByteQuota(2 * MIB, 8 * MIB)
    harness = Harness(quota, open_engine(None, EngineSettings(), quota=quota))
    yield harness
    assert harness.engine.close()
    assert quota.total == 0


@pytest.mark.parametrize("kind", KEPT)
def test_the_rows_that_a_subscription_keeps_count_until_they_are_gone(harness, kind):
    harness.update(data(0, 500))
    empty_subscription = harness.subscribe(NOTHING)
    text = harness.quota.held("alice")
    harness.unsubscribe(empty_subscription)
    spuid = harness.subscribe(KEPT[kind])
    first = harness.quota.held("alice")
    harness.update(data(500, 1000))
    second = harness.quota.held("alice")
    assert first - text >= STEP
    assert second > first
    assert (second - text) == pytest.approx(3 * (first - text), rel=0.2, abs=2 * STEP)
    harness.update("DELETE WHERE { ?s <urn:p> ?o }")
    assert harness.quota.held("alice") <= text + STEP
    harness.unsubscribe(spuid)
    assert harness.quota.total == 0
    assert not harness.failures


@pytest.mark.parametrize("kind", KEPT)
def test_a_subscription_with_too_many_rows_ends_and_the_update_stays(harness, kind):
    other = harness.subscribe(NOTHING, "bob")
    spuid = harness.subscribe(KEPT[kind])
    number = 0
    while not harness.failures:
        harness.update(data(number, 500, "x" * 50))
        number += 500
        assert number < 20_000
    (reason,) = harness.failures
    assert "limits.max_client_bytes" in reason
    assert harness.quota.held("alice") == 0
    harness.update(data(number, 500))
    assert len(harness.failures) == 1
    received = [item for item in harness.received if isinstance(item, SubscriberNotification) and item.spuid == other]
    assert sum(len(item.delta.added) for item in received) == number + 500
    with pytest.raises(EdgeError):
        harness.unsubscribe(spuid)
    with pytest.raises(TooManyRequests, match="max_client_bytes"):
        harness.subscribe(KEPT[kind])
    harness.unsubscribe(other)


@pytest.mark.parametrize("kind", ["DISTINCT", "re-evaluated"])
def test_equal_queries_count_once_for_one_of_their_subscribers(harness, kind):
    harness.update(data(0, 1500))
    one = harness.subscribe(KEPT[kind], "alice")
    alone = harness.quota.total
    two = harness.subscribe(KEPT[kind], "bob")
    text = harness.quota.held("bob")
    assert text < 10_000
    assert harness.quota.total == alone + text
    harness.unsubscribe(one)
    assert (harness.quota.held("alice"), harness.quota.held("bob")) == (0, alone)
    harness.unsubscribe(two)


def test_a_result_continues_for_a_subscriber_with_free_quota(harness):
    harness.update(data(0, 1500))
    harness.subscribe(KEPT["DISTINCT"], "alice")
    two = harness.subscribe(KEPT["DISTINCT"], "bob")
    filling = [harness.subscribe(f"{NOTHING} # {n} {'x' * 40_000}", "alice") for n in range(10)]
    before, bob = harness.quota.held("alice"), harness.quota.held("bob")
    harness.update(data(1500, 1500))
    assert not harness.failures
    assert harness.quota.held("alice") < before
    assert harness.quota.held("bob") - bob > 400_000
    for item in (*filling, two, harness.received[0].spuid):
        harness.unsubscribe(item)


def test_long_texts_count(harness):
    harness.update(data(0, 10, "x" * 30_000))
    harness.subscribe("SELECT DISTINCT (CONCAT(?o, 'y') AS ?t) { ?s <urn:p> ?o }")
    assert harness.quota.held("alice") > 290_000
    harness.unsubscribe(harness.received[0].spuid)


def test_a_failed_commit_restores_the_quota(harness, monkeypatch):
    harness.update(data(0, 500))
    spuid = harness.subscribe(KEPT["DISTINCT"])
    before = harness.quota.held("alice")

    def fail(*_: object) -> None:
        raise StorageFailed("no room")

    with monkeypatch.context() as patch:
        patch.setattr(harness.engine._journal, "commit", fail)
        for update in (data(500, 500), "DELETE WHERE { ?s <urn:p> ?o }"):
            with pytest.raises(StorageFailed):
                harness.update(update)
            harness.settle()
            assert harness.quota.held("alice") == before
    harness.unsubscribe(spuid)


class Story(RuleBasedStateMachine):
    """Subscriptions of several clients come and go while the graph changes."""

    def __init__(self) -> None:
        super().__init__()
        quota = ByteQuota(400_000, 1_000_000)
        self.harness = Harness(quota, open_engine(None, EngineSettings(), quota=quota))
        self.active: dict[str, str] = {}
        self.number = 0

    @rule(kind=st.sampled_from(sorted(KEPT)), client=st.sampled_from(["alice", "bob", "carol"]))
    def subscribe(self, kind: str, client: str) -> None:
        with suppress(TooManyRequests):
            self.active[self.harness.subscribe(KEPT[kind], client)] = client
        self.forget()

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        if self.active:
            spuid = data.draw(st.sampled_from(sorted(self.active)))
            del self.active[spuid]
            self.harness.unsubscribe(spuid)

    @rule(count=st.integers(1, 400), long=st.booleans())
    def add(self, count: int, long: bool) -> None:
        self.harness.update(data(self.number, count, "x" * 300 if long else ""))
        self.number += count
        self.forget()

    @rule(digit=st.integers(0, 9))
    def remove(self, digit: int) -> None:
        self.harness.update(f"DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o FILTER STRSTARTS(?o, '{digit}') }}")
        self.forget()

    def forget(self) -> None:
        self.harness.settle()
        for item in self.harness.received:
            if isinstance(item, SubscribeFailed):
                self.active.pop(item.spuid, None)
        self.harness.received.clear()

    @invariant()
    def nobody_holds_anything_without_a_subscription(self) -> None:
        quota = self.harness.quota
        assert quota.total == sum(map(quota.held, ("alice", "bob", "carol")))
        for client in ("alice", "bob", "carol"):
            assert bool(quota.held(client)) == (client in self.active.values())

    def teardown(self) -> None:
        for spuid in self.active:
            self.harness.unsubscribe(spuid)
        assert self.harness.quota.total == 0
        assert self.harness.engine.close()


TestStory = Story.TestCase
TestStory.settings = bounded(max_examples=examples(15), stateful_step_count=15, deadline=None)


@pytest.mark.parametrize("kind", ["DISTINCT", "re-evaluated"])
@pytest.mark.parametrize("ends", ["unsubscribe", "fails"])
@pytest.mark.parametrize("access", [Access("alice", registration="1"), ANYBODY], ids=["security", "no security"])
def test_restored_subscriptions_count_as_before(tmp_path, kind, ends, access):
    query = KEPT[kind] if kind == "DISTINCT" else "SELECT ?s ?o { ?s <urn:p>* ?o }"
    request = QueryRequest(query, access=access, source="alice")
    held: list[int] = []
    for start in range(2):
        quota = ByteQuota(2 * MIB, 8 * MIB)
        harness = Harness(quota, open_engine(tmp_path, quota=quota, max_durable=10))
        if not start:
            harness.update(data(0, 500))
            spuid = harness.engine.subscribe(request, harness.received.append, keep=True).result(20).spuid
            harness.settle()
        else:
            sinks = {spuid: harness.received.append}
            (restored,) = harness.engine.take_over(sinks.__getitem__).result(20)
        held.append(quota.held("alice"))
        if start and ends == "unsubscribe":
            harness.unsubscribe(restored.spuid)
        elif start:
            number = 500
            while not harness.failures:
                harness.update(data(number, 2000, "x" * 50))
                number += 2000
                assert number < 40_000
        if start:
            assert quota.total == 0
        assert harness.engine.close()
    assert held[0] > 30_000
    assert held[1] == pytest.approx(held[0], rel=0.05)


@pytest.mark.parametrize("kind", ["DISTINCT", "re-evaluated"])
def test_a_subscription_resumed_by_another_client_counts_for_that_client(harness, kind):
    harness.update(data(0, 500))
    spuids = [harness.subscribe(KEPT[kind], client) for client in ("alice", "bob")]
    alice, bob = harness.quota.held("alice"), harness.quota.held("bob")
    harness.engine.transfer(spuids[0], "carol").result(20)
    assert [harness.quota.held(client) for client in ("alice", "bob", "carol")] == [0, bob, alice]
    harness.engine.transfer(spuids[1], "carol").result(20)
    assert [harness.quota.held(client) for client in ("alice", "bob", "carol")] == [0, 0, alice + bob]
    harness.update(data(500, 500))
    assert harness.quota.held("carol") == harness.quota.total > alice + bob
    for spuid in spuids:
        harness.unsubscribe(spuid)
    harness.engine.transfer(spuids[0], "alice").result(20)  # it has ended meanwhile
