"""The byte quota: all memory that the gates hold for clients counts, has one limit, and is released in every case."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from collections import Counter
from typing import Any

import pyoxigraph as ox
import pytest
from gate_client import rows
from gate_server import Gateway, running
from hypothesis import given
from hypothesis import strategies as st
from test_resume import update, vanish

from edge import allocator
from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.requests import Delta, SubscriberNotification
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.gates.conflation import MergedDelta, size_of
from edge.gates.outgoing import Outgoing
from edge.gates.settings import LimitSettings
from tests.support.settings import unchecked
from tests.support.waiting import eventually

ALL = "SELECT ?s ?o { ?s <urn:p> ?o }"
LIMIT = 1_000_000


def data(first: int, count: int) -> str:
    triples = " ".join(f"<urn:{number}> <urn:p> '{number} {'x' * 100}' ." for number in range(first, first + count))
    return f"INSERT DATA {{ {triples} }}"


def total(gateway: Gateway) -> int:
    return gateway.resume_registry._quota.total


async def test_changes_for_a_client_that_may_resume_count_until_it_is_back(serve):
    async with serve(limits=unchecked(LimitSettings, max_client_bytes=LIMIT, max_total_bytes=4 * LIMIT)) as gateway:
        client = await gateway.client()
        first = await client.subscribe(ALL, resume=True)
        await vanish(gateway, client)
        initial = total(gateway)
        assert initial < 1000
        for number in range(5):
            await update(gateway, data(200 * number, 200))
        stored = total(gateway)
        assert 200_000 < stored < 800_000
        await update(gateway, "DELETE WHERE { ?s <urn:p> ?o }")
        assert total(gateway) == initial, "what came and went was not missed"
        await update(gateway, data(0, 200))
        client = await gateway.client()
        missed = await client.subscribe(ALL, spuid=first["spuid"], sequence=0)
        assert missed["spuid"] == first["spuid"]
        assert len(rows(missed["addedResults"])) == 200
        await client.ask({"unsubscribe": {"spuid": first["spuid"]}})
        await client.socket.close()
        await eventually(lambda: not total(gateway), "an empty account")


async def test_a_subscription_without_a_client_ends_when_it_would_take_too_much(serve, engine):
    async with serve(limits=unchecked(LimitSettings, max_client_bytes=LIMIT, max_total_bytes=4 * LIMIT)) as gateway:
        client = await gateway.client()
        first = await client.subscribe(ALL, resume=True)
        await vanish(gateway, client)
        for number in range(20):
            await update(gateway, data(200 * number, 200))
            assert total(gateway) <= LIMIT
        await eventually(lambda: not engine.subscriptions, "the end of the subscription")
        assert total(gateway) == 0
        assert gateway.metric("edge_parked_subscriptions", gate="ws") == 0
        client = await gateway.client()
        again = await client.subscribe(ALL, spuid=first["spuid"], sequence=0)
        assert again["spuid"] != first["spuid"]
        assert len(rows(again["addedResults"])) == 4000


ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30)


@given(ROWS)
def test_merged_changes_count_the_memory_of_their_rows(changes):
    net = MergedDelta(SubscriberNotification("s", None, 1, Delta(("n",), (), ())))
    counts: Counter[int] = Counter()
    for number, (added, value) in enumerate(changes, 2):
        row = (ox.Literal("x" * 100 * value), None)
        counts[value] += 1 if added else -1
        net.add(
            SubscriberNotification("s", None, number, Delta(("n",), (row,) if added else (), () if added else (row,)))
        )
    left = tuple((ox.Literal("x" * 100 * value), None) for value, count in counts.items() if count)
    assert net.size == size_of(Delta(("n",), left, ()))


class Still:
    """A connection whose client reads nothing until the test permits it."""

    unsent = 0

    def __init__(self) -> None:
        self.writable = True
        self.closed = False
        self.reads = asyncio.Event()

    def write(self, text: str) -> None:
        """Send the message."""

    async def write_and_wait(self, text: str) -> bool:
        await self.reads.wait()
        return True

    async def taken(self) -> bool:
        await self.reads.wait()
        return True

    def close(self, code: int, reason: str) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def notification(spuid: str, sequence: int, added: list[int], removed: list[int]) -> SubscriberNotification:
    made: list[tuple[Any, ...]] = [
        tuple((ox.Literal(f"{number} {'x' * 100}"),) for number in numbers) for numbers in (added, removed)
    ]
    return SubscriberNotification(spuid, None, sequence, Delta(("o",), *made))


class ObservedEngine:
    """An engine, and the bytes that a quota held when each update was sent to it."""

    def __init__(self, engine: Any, quota: ByteQuota) -> None:
        self._engine = engine
        self._quota = quota
        self.held: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def update(self, requests: Any) -> Any:
        self.held.append(self._quota.total)
        return self._engine.update(requests)


@pytest.mark.parametrize(
    ("method", "media_type", "body", "status"),
    [
        ("PUT", "text/turtle", "<urn:s> <urn:p> 1 .", 204),
        ("POST", "text/turtle", "<urn:s> <urn:p> 'é' .", 204),
        ("PATCH", "application/sparql-update", "INSERT DATA { <urn:s> <urn:p> 1 }", 204),
        ("PATCH", "application/sparql-update", "DELETE", 400),
        ("PUT", "text/turtle", "<urn:s>", 400),
        ("PATCH", "application/sparql-update", "DROP ALL", 422),
        ("PUT", "text/html", "x", 415),
        ("DELETE", "text/turtle", "", 204),
    ],
)
async def test_the_body_of_a_graph_counts_until_its_update_is_done(engine, method, media_type, body, status):
    quota = ByteQuota()
    observed = ObservedEngine(engine, quota)
    async with running(observed, quota=quota) as gateway, gateway.http() as http:
        answer = await http.request(
            method, "/graph-store?default", content=body.encode(), headers={"Content-Type": media_type}
        )
        assert answer.status_code == status
        assert set(observed.held) <= {sys.getsizeof(body) if body else 0}
        assert bool(observed.held) == (status < 400 or body == "DELETE")
        assert quota.total == 0


async def test_merged_notifications_of_a_slow_client_count_in_full_and_are_given_back():
    quota, still = ByteQuota(LIMIT, LIMIT), Still()
    outgoing = Outgoing(
        still, 10, 10_000, lambda: None, lambda: None, merge_after=1000, charge=quota.charge("slow (outgoing)")
    )
    still.writable = False
    for sequence in range(1, 101):
        outgoing.send(notification("a", sequence, [sequence], []))
        outgoing.send(notification("b", sequence, [sequence], [sequence - 1] if sequence > 1 else []))
    assert 100 * 300 < quota.total < 100 * 600 + 40_000
    still.reads.set()
    await eventually(lambda: outgoing._writer is None, "all to be read")
    assert quota.total == 0
    outgoing.close()


async def test_a_slow_client_is_disconnected_where_its_merged_notifications_take_too_much():
    quota, still = ByteQuota(2 * LIMIT, LIMIT), Still()
    outgoing = Outgoing(
        still, 10, 10_000, lambda: None, lambda: None, merge_after=1000, charge=quota.charge("slow (outgoing)")
    )
    still.writable = False
    sequence = 0
    while not still.closed:
        sequence += 1
        assert sequence < 100_000
        outgoing.send(notification("a", sequence, [sequence], []))
    assert 500 < sequence < 5000
    assert quota.total == 0


KINDS = [ALL, ALL.replace("SELECT", "SELECT DISTINCT"), "SELECT (COUNT(DISTINCT ?o) AS ?n) { ?s <urn:p> ?o }"]


@pytest.mark.parametrize("seed", range(6))
async def test_the_quota_is_free_when_all_clients_left(seed):
    quota = ByteQuota(300_000, LIMIT)
    engine = open_engine(None, EngineSettings(), quota=quota)
    try:
        await _live(engine, quota, _steps(seed))
    finally:
        engine.close()


async def _live(engine: Any, quota: ByteQuota, steps: list[tuple[str, int]]) -> None:
    async with running(engine, quota=quota) as gateway:
        clients: list[tuple[Any, list[tuple[str, str]]]] = []
        lost: list[tuple[str, str]] = []
        number = 0
        for kind, value in steps:
            if kind == "subscribe" or not clients:
                client = await gateway.client()
                clients.append((client, []))
                query = KINDS[value % len(KINDS)]
                answer = await client.ask({"subscribe": {"sparql": query, "resume": True}})
                if "notification" in answer:
                    clients[-1][1].append((query, answer["notification"]["spuid"]))
            elif kind == "vanish":
                client, spuids = clients.pop(value % len(clients))
                lost += spuids
                await vanish(gateway, client)
            elif kind == "leave":
                await clients.pop(value % len(clients))[0].socket.close()
            elif kind == "back" and lost:
                client = await gateway.client()
                clients.append((client, []))
                query, spuid = lost.pop()
                await client.ask({"subscribe": {"sparql": query, "spuid": spuid, "sequence": 0}})
            elif kind == "add":
                await update(gateway, data(number, value))
                number += value
            elif kind == "clear":
                await update(gateway, "DELETE WHERE { ?s <urn:p> ?o }")
            assert quota.total <= LIMIT
        for client, _ in clients:
            await client.socket.close()
        await eventually(lambda: not gateway.metric("edge_connections", gate="ws"), "the end of the connections")
        for place in list(gateway.resume_registry._slots.values()):
            gateway.resume_registry._end(place.subscription)
        await eventually(lambda: not engine.subscriptions and not quota.total, "an empty account")


def _steps(seed: int) -> list[tuple[str, int]]:
    chosen = random.Random(seed)
    kinds = ["subscribe", "subscribe", "vanish", "leave", "back", "add", "add", "clear"]
    return [(chosen.choice(kinds), chosen.randint(1, 300)) for _ in range(25)]


@pytest.mark.parametrize(("count", "text"), [(20, 10), (100, 100), (1000, 5), (20, 1000)])
def test_a_waiting_notification_is_charged_at_least_half_of_its_memory(count, text):
    def made() -> list[MergedDelta]:
        return [
            MergedDelta(
                SubscriberNotification(
                    "a", None, 1, Delta(("o",), tuple(_row(each, row, text) for row in range(count)), ())
                )
            )
            for each in range(20_000 // count)
        ]

    def resident() -> int:
        gc.collect()
        allocator.trim()
        return allocator.resident()

    made()
    before = resident()
    nets = made()
    assert resident() - before < 2 * sum(net.size for net in nets)


def _row(number: int, row: int, length: int) -> tuple[Any, ...]:
    return (ox.Literal(f"{number} {row} {'x' * length}"),)
