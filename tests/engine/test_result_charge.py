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

from edge.engine import EngineSettings, open_engine
from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.result_charge import STEP
from edge.engine.requests import Notification, QueryRequest, SubscribeFailed, UpdateRequest
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, StorageFailed, TooManyRequests
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
class House:
    """An engine and the account of its clients."""

    quota: ByteQuota
    engine: Any
    told: list[Any] = field(default_factory=list)

    def update(self, sparql: str) -> None:
        self.engine.update([UpdateRequest(sparql)]).result(20)
        self.settle()

    def subscribe(self, sparql: str, client: str = "alice") -> str:
        query = QueryRequest(sparql, source=client)
        spuid: str = self.engine.subscribe(query, self.told.append).result(20).spuid
        return spuid

    def unsubscribe(self, spuid: str) -> None:
        self.engine.unsubscribe(spuid).result(20)

    def settle(self) -> None:
        wait_for(lambda: not self.engine.pending_evaluations)
        self.engine.on_writer(lambda: None).result(20)

    @property
    def failures(self) -> list[str]:
        return [item.description for item in self.told if isinstance(item, SubscribeFailed)]


@pytest.fixture
def house() -> Iterator[House]:
    quota = ByteQuota(2 * MIB, 8 * MIB)
    house = House(quota, open_engine(None, EngineSettings(), quota=quota))
    yield house
    assert house.engine.close()
    assert quota.total == 0


@pytest.mark.parametrize("kind", KEPT)
def test_the_rows_that_a_subscription_keeps_count_until_they_are_gone(house, kind):
    house.update(data(0, 500))
    nothing = house.subscribe(NOTHING)
    text = house.quota.held("alice")
    house.unsubscribe(nothing)
    spuid = house.subscribe(KEPT[kind])
    first = house.quota.held("alice")
    house.update(data(500, 1000))
    second = house.quota.held("alice")
    assert first - text >= STEP
    assert second > first
    assert (second - text) == pytest.approx(3 * (first - text), rel=0.2, abs=2 * STEP)
    house.update("DELETE WHERE { ?s <urn:p> ?o }")
    assert house.quota.held("alice") <= text + STEP
    house.unsubscribe(spuid)
    assert house.quota.total == 0
    assert not house.failures


@pytest.mark.parametrize("kind", KEPT)
def test_a_subscription_whose_rows_become_too_many_ends_and_the_update_and_others_go_on(house, kind):
    other = house.subscribe(NOTHING, "bob")
    spuid = house.subscribe(KEPT[kind])
    number = 0
    while not house.failures:
        house.update(data(number, 500, "x" * 50))
        number += 500
        assert number < 20_000
    (reason,) = house.failures
    assert "limits.max_client_bytes" in reason
    assert house.quota.held("alice") == 0
    house.update(data(number, 500))
    assert len(house.failures) == 1
    told = [item for item in house.told if isinstance(item, Notification) and item.spuid == other]
    assert sum(len(item.delta.added) for item in told) == number + 500
    with pytest.raises(EdgeError):
        house.unsubscribe(spuid)
    with pytest.raises(TooManyRequests, match="max_client_bytes"):
        house.subscribe(KEPT[kind])
    house.unsubscribe(other)


@pytest.mark.parametrize("kind", ["DISTINCT", "re-evaluated"])
def test_equal_queries_count_once_for_one_of_their_subscribers(house, kind):
    house.update(data(0, 1500))
    one = house.subscribe(KEPT[kind], "alice")
    alone = house.quota.total
    two = house.subscribe(KEPT[kind], "bob")
    text = house.quota.held("bob")
    assert text < 10_000
    assert house.quota.total == alone + text
    house.unsubscribe(one)
    assert (house.quota.held("alice"), house.quota.held("bob")) == (0, alone)
    house.unsubscribe(two)


def test_a_result_goes_on_where_another_subscriber_has_room(house):
    house.update(data(0, 1500))
    house.subscribe(KEPT["DISTINCT"], "alice")
    two = house.subscribe(KEPT["DISTINCT"], "bob")
    filling = [house.subscribe(f"{NOTHING} # {n} {'x' * 40_000}", "alice") for n in range(10)]
    before, bob = house.quota.held("alice"), house.quota.held("bob")
    house.update(data(1500, 1500))
    assert not house.failures
    assert house.quota.held("alice") < before
    assert house.quota.held("bob") - bob > 400_000
    for item in (*filling, two, house.told[0].spuid):
        house.unsubscribe(item)


def test_long_texts_count(house):
    house.update(data(0, 10, "x" * 30_000))
    house.subscribe("SELECT DISTINCT (CONCAT(?o, 'y') AS ?t) { ?s <urn:p> ?o }")
    assert house.quota.held("alice") > 290_000
    house.unsubscribe(house.told[0].spuid)


def test_what_cannot_be_stored_is_taken_back_in_the_account(house, monkeypatch):
    house.update(data(0, 500))
    spuid = house.subscribe(KEPT["DISTINCT"])
    before = house.quota.held("alice")

    def fail(*_: object) -> None:
        raise StorageFailed("no room")

    with monkeypatch.context() as patch:
        patch.setattr(house.engine._journal, "commit", fail)
        for update in (data(500, 500), "DELETE WHERE { ?s <urn:p> ?o }"):
            with pytest.raises(StorageFailed):
                house.update(update)
            house.settle()
            assert house.quota.held("alice") == before
    house.unsubscribe(spuid)


class Story(RuleBasedStateMachine):
    """Subscriptions of several clients come and go while the graph changes."""

    def __init__(self) -> None:
        super().__init__()
        quota = ByteQuota(400_000, 1_000_000)
        self.house = House(quota, open_engine(None, EngineSettings(), quota=quota))
        self.active: dict[str, str] = {}
        self.number = 0

    @rule(kind=st.sampled_from(sorted(KEPT)), client=st.sampled_from(["alice", "bob", "carol"]))
    def subscribe(self, kind: str, client: str) -> None:
        with suppress(TooManyRequests):
            self.active[self.house.subscribe(KEPT[kind], client)] = client
        self.forget()

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        if self.active:
            spuid = data.draw(st.sampled_from(sorted(self.active)))
            del self.active[spuid]
            self.house.unsubscribe(spuid)

    @rule(count=st.integers(1, 400), long=st.booleans())
    def add(self, count: int, long: bool) -> None:
        self.house.update(data(self.number, count, "x" * 300 if long else ""))
        self.number += count
        self.forget()

    @rule(digit=st.integers(0, 9))
    def remove(self, digit: int) -> None:
        self.house.update(f"DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o FILTER STRSTARTS(?o, '{digit}') }}")
        self.forget()

    def forget(self) -> None:
        self.house.settle()
        for item in self.house.told:
            if isinstance(item, SubscribeFailed):
                self.active.pop(item.spuid, None)
        self.house.told.clear()

    @invariant()
    def nobody_holds_anything_without_a_subscription(self) -> None:
        quota = self.house.quota
        assert quota.total == sum(map(quota.held, ("alice", "bob", "carol")))
        for client in ("alice", "bob", "carol"):
            assert bool(quota.held(client)) == (client in self.active.values())

    def teardown(self) -> None:
        for spuid in self.active:
            self.house.unsubscribe(spuid)
        assert self.house.quota.total == 0
        assert self.house.engine.close()


TestStory = Story.TestCase
TestStory.settings = bounded(max_examples=15, stateful_step_count=15, deadline=None)


@pytest.mark.parametrize("kind", ["DISTINCT", "re-evaluated"])
@pytest.mark.parametrize("ends", ["unsubscribe", "fails"])
@pytest.mark.parametrize("access", [Access("alice", registration="1"), ANYBODY], ids=["security", "no security"])
def test_what_goes_on_after_a_restart_counts_as_before(tmp_path, kind, ends, access):
    query = KEPT[kind] if kind == "DISTINCT" else "SELECT ?s ?o { ?s <urn:p>* ?o }"
    request = QueryRequest(query, access=access, source="alice")
    held: list[int] = []
    for start in range(2):
        quota = ByteQuota(2 * MIB, 8 * MIB)
        house = House(quota, open_engine(tmp_path, EngineSettings(max_kept=10), quota=quota))
        if not start:
            house.update(data(0, 500))
            spuid = house.engine.subscribe(request, house.told.append, keep=True).result(20).spuid
            house.settle()
        else:
            sinks = {spuid: house.told.append}
            (restored,) = house.engine.take_over(sinks.__getitem__).result(20)
        held.append(quota.held("alice"))
        if start and ends == "unsubscribe":
            house.unsubscribe(restored.spuid)
        elif start:
            number = 500
            while not house.failures:
                house.update(data(number, 2000, "x" * 50))
                number += 2000
                assert number < 40_000
        if start:
            assert quota.total == 0
        assert house.engine.close()
    assert held[0] > 30_000
    assert held[1] == pytest.approx(held[0], rel=0.05)


@pytest.mark.parametrize("kind", ["DISTINCT", "re-evaluated"])
def test_a_subscription_that_another_client_goes_on_with_counts_for_that_client(house, kind):
    house.update(data(0, 500))
    spuids = [house.subscribe(KEPT[kind], client) for client in ("alice", "bob")]
    alice, bob = house.quota.held("alice"), house.quota.held("bob")
    house.engine.transfer(spuids[0], "carol").result(20)
    assert [house.quota.held(client) for client in ("alice", "bob", "carol")] == [0, bob, alice]
    house.engine.transfer(spuids[1], "carol").result(20)
    assert [house.quota.held(client) for client in ("alice", "bob", "carol")] == [0, 0, alice + bob]
    house.update(data(500, 500))
    assert house.quota.held("carol") == house.quota.total > alice + bob
    for spuid in spuids:
        house.unsubscribe(spuid)
    house.engine.transfer(spuids[0], "alice").result(20)  # it has ended meanwhile
