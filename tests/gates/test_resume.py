"""Subscribers that lose their connection and resume: they receive missed changes, and nothing twice."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from typing import Any

import pytest
from gate_client import Client, rows

from edge.engine.admission import fair_queue, token_bucket
from edge.engine.requests import QueryRequest
from edge.gates.settings import WsGateSettings
from tests.support.waiting import eventually

VALUES = "SELECT ?n { <urn:set> <urn:has> ?n }"


def put(*numbers: int) -> str:
    return "INSERT DATA { " + " . ".join(f"<urn:set> <urn:has> {number}" for number in numbers) + " }"


def take(*numbers: int) -> str:
    return "DELETE DATA { " + " . ".join(f"<urn:set> <urn:has> {number}" for number in numbers) + " }"


def bag(results: dict[str, Any]) -> list[int]:
    return sorted(int(value) for (value,) in rows(results))


async def update(gateway: Any, sparql: str) -> None:
    """Execute an update, and wait until its notifications have reached the gate: they are sent after the answer."""
    await gateway.update(sparql)
    await asyncio.wrap_future(gateway.engine.explain(QueryRequest("ASK {}")))


async def vanish(gateway: Any, client: Client) -> None:
    """Break the connection without closing it, and wait until the gateway notices."""
    before = gateway.metric("edge_connections", gate="ws")
    client.socket.transport.abort()
    await eventually(lambda: gateway.metric("edge_connections", gate="ws") < before, "the loss")


async def test_a_returning_client_gets_a_merged_delta_with_the_same_spuid(gateway, engine):
    await update(gateway, put(1, 2))
    client = await gateway.client()
    first = await client.subscribe(VALUES, "mine", resume=True)
    await update(gateway, put(3))
    assert (await client.notification())["sequence"] == 1
    await vanish(gateway, client)
    assert gateway.metric("edge_parked_subscriptions", gate="ws") == 1
    assert gateway.metric("edge_subscriptions", gate="ws") == 0
    for change in (put(4), put(5), take(4), take(1)):
        await update(gateway, change)
    client = await gateway.client()
    missed = await client.subscribe(VALUES, "again", spuid=first["spuid"], sequence=1)
    assert (missed["spuid"], missed["alias"], missed["sequence"], missed["merged"]) == (first["spuid"], "again", 5, 4)
    assert (bag(missed["addedResults"]), bag(missed["removedResults"])) == ([5], [1])
    assert missed["addedResults"]["head"] == first["addedResults"]["head"]
    await update(gateway, put(6))
    later = await client.notification()
    assert (later["spuid"], later["alias"], later["sequence"]) == (first["spuid"], "again", 6)
    assert "merged" not in later
    assert engine.subscriptions == 1
    assert gateway.metric("edge_parked_subscriptions", gate="ws") == 0
    await client.ask({"unsubscribe": {"spuid": first["spuid"]}})
    assert engine.subscriptions == 0


async def test_a_resumption_without_missed_changes_is_empty_with_the_same_sequence(gateway):
    await update(gateway, put(1))
    client = await gateway.client()
    first = await client.subscribe(VALUES, resume=True)
    await vanish(gateway, client)
    client = await gateway.client()
    missed = await client.subscribe(VALUES, spuid=first["spuid"], sequence=0)
    assert (missed["spuid"], missed["sequence"], missed["merged"]) == (first["spuid"], 0, 0)
    assert (bag(missed["addedResults"]), bag(missed["removedResults"])) == ([], [])


async def test_lost_notifications_are_sent_again(gateway):
    client = await gateway.client()
    first = await client.subscribe(VALUES, resume=True)
    for number in range(1, 6):
        await update(gateway, put(number))
    await vanish(gateway, client)
    await update(gateway, take(5))
    client = await gateway.client()
    missed = await client.subscribe(VALUES, spuid=first["spuid"], sequence=2)
    assert (missed["sequence"], missed["merged"]) == (6, 4)
    assert (bag(missed["addedResults"]), bag(missed["removedResults"])) == ([3, 4], [])


async def test_a_client_is_back_before_the_gateway_knows_that_it_was_gone(gateway, engine):
    lost, client = await gateway.client(), await gateway.client()
    first = await lost.subscribe(VALUES, "old", resume=True)
    await update(gateway, put(1))
    missed = await client.subscribe(VALUES, "new", spuid=first["spuid"], sequence=0)
    assert (missed["spuid"], missed["sequence"], bag(missed["addedResults"])) == (first["spuid"], 1, [1])
    await lost.notification()
    received = await lost.receive()
    assert (received["error"], received["spuid"], received["alias"]) == ("subscription_failed", first["spuid"], "old")
    await update(gateway, put(2))
    assert bag((await client.notification())["addedResults"]) == [2]
    assert (await lost.ask({"unsubscribe": {"spuid": first["spuid"]}}))["error"] == "not_found"
    await vanish(gateway, lost)
    assert engine.subscriptions == 1


@pytest.mark.parametrize("sequence", [2, 1000])
async def test_an_invalid_resumption_does_not_affect_a_live_subscription(gateway, engine, sequence):
    owner, client = await gateway.client(), await gateway.client()
    first = await owner.subscribe(VALUES, "mine", resume=True)
    await update(gateway, put(1))
    await owner.notification()
    other = await client.subscribe(VALUES, "wrong", spuid=first["spuid"], sequence=sequence)
    assert (other["sequence"], bag(other["addedResults"])) == (0, [1])
    assert other["spuid"] != first["spuid"]
    await update(gateway, put(2))
    mine = await owner.notification()
    assert (mine["spuid"], mine["sequence"], bag(mine["addedResults"])) == (first["spuid"], 2, [2])
    assert bag((await client.notification())["addedResults"]) == [2]
    assert engine.subscriptions == 2


async def test_a_setting_bounds_the_stored_notifications(engine, serve):
    for kept, same in ((100_000, True), (1_000, False)):
        async with serve(max_sent=kept) as gateway:
            client = await gateway.client()
            first = await client.subscribe(VALUES, resume=True)
            for number in range(3):
                await update(gateway, f"INSERT DATA {{ <urn:set> <urn:has> '{number}{'x' * 10_000}' }}")
            await vanish(gateway, client)
            client = await gateway.client()
            body = await client.subscribe(VALUES, spuid=first["spuid"], sequence=0)
            assert (body["spuid"] == first["spuid"]) == same
            await update(gateway, "CLEAR ALL")


async def test_a_subscription_can_be_resumed_again_and_again(gateway, engine):
    client = await gateway.client()
    first = await client.subscribe(VALUES, resume=True)
    sequence, state = 0, Counter[int]()
    for number in range(20):
        await update(gateway, put(number))
        if number % 2:
            await vanish(gateway, client)
            if number % 3:
                await update(gateway, take(number))
            client = await gateway.client()
            body = await client.subscribe(VALUES, spuid=first["spuid"], sequence=sequence)
            assert body["spuid"] == first["spuid"]
        else:
            body = await client.notification()
        assert body["sequence"] == sequence + body.get("merged", 1)
        sequence = body["sequence"]
        state = state - Counter(bag(body["removedResults"])) + Counter(bag(body["addedResults"]))
    assert sorted(state.elements()) == [number for number in range(20) if not (number % 2 and number % 3)]
    assert engine.subscriptions == 1


async def test_unread_notifications_survive_the_connection(gateway):
    client = await gateway.client(max_queue=1)
    first = await client.subscribe(VALUES, resume=True)
    client.socket.transport.pause_reading()
    big = "x" * 300_000
    for number in range(40):
        await update(gateway, f"INSERT DATA {{ <urn:set> <urn:has> '{number}{big}' }}")
    await eventually(lambda: gateway.metric("edge_merged_notifications_total", gate="ws") > 0, "a full buffer")
    await update(gateway, f"DELETE WHERE {{ <urn:set> <urn:has> ?n }} ; {put(7)}")
    await vanish(gateway, client)
    client = await gateway.client(max_size=None)
    body = await client.subscribe(VALUES, spuid=first["spuid"], sequence=0)
    # as a merged delta or as sequence 0: the sent notifications were too long to be kept
    assert bag(body["addedResults"]) == [7]
    assert bag(body["removedResults"]) == []


@pytest.mark.parametrize("wrong", ["spuid", "sequence ahead", "query", "dataset"])
async def test_an_impossible_resumption_receives_the_full_result(gateway, engine, wrong):
    await update(gateway, put(1))
    client = await gateway.client()
    first = await client.subscribe(VALUES, resume=True)
    await vanish(gateway, client)
    await update(gateway, put(2))
    members: dict[str, Any] = {"spuid": first["spuid"], "sequence": 0}
    query = VALUES
    if wrong == "spuid":
        members["spuid"] = "sepa://subscription/unknown"
    elif wrong == "sequence ahead":
        members["sequence"] = 9
    elif wrong == "query":
        query += " # another"
    else:
        members["default-graph-uri"] = []
        members["named-graph-uri"] = "urn:g"
    client = await gateway.client()
    body = await client.subscribe(query, **members)
    assert body["spuid"] != first["spuid"]
    assert body["sequence"] == 0
    assert "merged" not in body
    assert bag(body["addedResults"]) == ([] if wrong == "dataset" else [1, 2])


async def test_a_client_that_returns_late_receives_the_full_result(engine, serve):
    async with serve(resume_for=0.05) as gateway:
        client = await gateway.client()
        first = await client.subscribe(VALUES, resume=True)
        await vanish(gateway, client)
        await eventually(lambda: engine.subscriptions == 0, "the end of the subscription")
        assert gateway.metric("edge_parked_subscriptions", gate="ws") == 0
        client = await gateway.client()
        body = await client.subscribe(VALUES, spuid=first["spuid"], sequence=0)
        assert body["spuid"] != first["spuid"]


async def test_a_sequence_that_is_too_old_receives_the_full_result(gateway, engine):
    client = await gateway.client()
    first = await client.subscribe(VALUES, resume=True)
    for number in range(30):
        await update(gateway, f"INSERT DATA {{ <urn:set> <urn:has> '{number}{'x' * 10_000}' }}")
    await vanish(gateway, client)
    client = await gateway.client()
    body = await client.subscribe(VALUES, spuid=first["spuid"], sequence=0)
    assert (body["sequence"], len(rows(body["addedResults"]))) == (0, 30)
    assert body["spuid"] != first["spuid"]
    assert engine.subscriptions == 1


@pytest.mark.parametrize("code", [1000, None])
async def test_a_client_that_unsubscribes_leaves_nothing_to_resume(gateway, engine, code):
    client = await gateway.client()
    await client.subscribe(VALUES, resume=True)
    if code is None:
        client.socket.protocol.send_close()
        client.socket.send_data()
        await client.socket.wait_closed()
    else:
        await client.socket.close(code)
    await eventually(lambda: engine.subscriptions == 0, "the end of the subscription")
    assert gateway.metric("edge_parked_subscriptions", gate="ws") == 0


async def test_nothing_is_stored_for_subscriptions_that_are_not_resumable(gateway, engine):
    client = await gateway.client()
    await client.subscribe(VALUES)
    await vanish(gateway, client)
    assert gateway.metric("edge_parked_subscriptions", gate="ws") == 0
    await eventually(lambda: engine.subscriptions == 0, "the end of the subscription")


async def test_the_oldest_suspended_subscription_is_evicted_first(engine, serve):
    async with serve(max_parked=2) as gateway:
        firsts = []
        for _ in range(3):
            client = await gateway.client()
            firsts.append(await client.subscribe(VALUES, resume=True))
            await vanish(gateway, client)
        await eventually(lambda: engine.subscriptions == 2, "the end of the first")
        client = await gateway.client()
        answers = [await client.subscribe(VALUES, spuid=first["spuid"], sequence=0) for first in firsts]
        assert [answer["spuid"] == first["spuid"] for first, answer in zip(firsts, answers, strict=True)] == [
            False,
            True,
            True,
        ]


async def test_resume_can_be_disabled(engine, serve):
    async with serve(resume_for=0) as gateway:
        client = await gateway.client()
        first = await client.subscribe(VALUES, resume=True)
        await vanish(gateway, client)
        await eventually(lambda: engine.subscriptions == 0, "the end of the subscription")
        client = await gateway.client()
        assert (await client.subscribe(VALUES, spuid=first["spuid"], sequence=0))["spuid"] != first["spuid"]


async def test_clients_can_resume_after_a_restart_of_the_gate(engine, serve):
    async with serve() as gateway:
        lost, client = await gateway.client(), await gateway.client()
        firsts = [await lost.subscribe(VALUES, resume=True), await client.subscribe(VALUES, resume=True)]
        await vanish(gateway, lost)
        await gateway.ws_gate.stop()
        assert gateway.metric("edge_parked_subscriptions", gate="ws") == 2
        await update(gateway, put(1))
        gateway.ws_port = await gateway.ws_gate.start()
        client = await gateway.client()
        for first in firsts:
            missed = await client.subscribe(VALUES, spuid=first["spuid"], sequence=0)
            assert (missed["spuid"], bag(missed["addedResults"])) == (first["spuid"], [1])


async def test_durable_subscriptions_stay_in_the_engine_when_the_gateway_stops(engine, serve):
    async with serve() as gateway:
        lost, client = await gateway.client(), await gateway.client()
        await lost.subscribe(VALUES, resume=True)
        await client.subscribe(VALUES, resume=True)
        await client.subscribe(VALUES)
        await vanish(gateway, lost)
        gateway.resume_registry.close()
        await gateway.ws_gate.stop()
        await eventually(lambda: engine.subscriptions == 2, "the end of the third")
        assert gateway.metric("edge_parked_subscriptions", gate="ws") == 0


@pytest.mark.parametrize("members", [{"spuid": "x"}, {"sequence": 1}, {"spuid": "x", "sequence": -1}])
async def test_incomplete_resume_request_is_refused(gateway, members):
    client = await gateway.client()
    answer = await client.ask({"subscribe": {"sparql": VALUES, "alias": "mine", **members}})
    assert (answer["error"], answer["alias"]) == ("invalid_request", "mine")


@pytest.fixture
def few_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine keep the accounts of fifty idle clients instead of a thousand.

    How many are left of a thousand depends on the ports, which name the clients, and which the kernel uses again.
    """
    monkeypatch.setattr(fair_queue, "_FORGET_FROM", 50)
    monkeypatch.setattr(token_bucket, "_EVICT_AT", 50)


async def test_a_thousand_vanished_clients_leave_nothing(few_accounts, engine, serve):
    async with serve(resume_for=0.2, max_parked=50) as gateway:

        async def cycles(count: int) -> None:
            for number in range(count):
                client = await gateway.client(compression=None)
                await client.subscribe(f"SELECT ?n {{ <urn:set{number % 7}> <urn:has> ?n }}", resume=bool(number % 2))
                client.socket.transport.abort()
                gateway.clients.clear()
            await eventually(lambda: engine.subscriptions == 0, "the end of all")
            await eventually(lambda: gateway.metric("edge_connections", gate="ws") == 0, "the end of the connections")

        await cycles(100)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await cycles(1000)

        def kept() -> int:
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before

        # The last tasks of the clients end a little later.
        await eventually(lambda: kept() < 500_000, "less than half a kilobyte a client: nothing of them is kept")
        tracemalloc.stop()
        assert engine.spus == 0
        assert gateway.metric("edge_parked_subscriptions", gate="ws") == 0


async def test_a_client_without_pongs_may_resume(engine, serve):
    async with serve(ws=WsGateSettings(port=0, ping_interval=0.1, ping_timeout=0.2)) as gateway:
        dead = await gateway.client(ping_interval=None)
        first = await dead.subscribe(VALUES, resume=True)
        dead.socket.transport.pause_reading()
        await eventually(lambda: gateway.metric("edge_parked_subscriptions", gate="ws") == 1, "the loss")
        await update(gateway, put(1))
        client = await gateway.client()
        missed = await client.subscribe(VALUES, spuid=first["spuid"], sequence=0)
        assert (missed["spuid"], bag(missed["addedResults"])) == (first["spuid"], [1])
        dead.socket.transport.resume_reading()
