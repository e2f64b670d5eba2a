"""Gateways that are killed, frozen or not started yet: the application sees no duplicate and no gap."""

import asyncio
from collections import Counter

import pytest
from client_gateway import NUMBERS, QUICK, following, numbers

from edge.client import Backoff, Client, Closed, Endpoints, NoAnswer, Options
from tests.support.waiting import PATIENCE, eventually


async def test_a_subscription_continues_with_a_merged_delta_after_a_kill(gateway):
    seen = []
    options = Options(backoff=Backoff(0.05, 0.2), on_connection=lambda url, connected: seen.append((url, connected)))
    async with Client(gateway.endpoints, options=options) as client:
        subscription = await client.subscribe(NUMBERS)
        gateway.put(1, 2)
        await following(subscription)
        assert numbers((await following(subscription)).added) == [1, 2]
        gateway.kill()
        await eventually(lambda: not client.connected, "the break is noticed")
        gateway.start()
        await eventually(lambda: client.connected, "the client comes back")
        gateway.take(1)
        gateway.put(3)
        state = Counter({1: 1, 2: 1})
        sequence = 1
        while set(state.elements()) != {2, 3}:
            notification = await following(subscription)
            sequence += 1
            assert notification.sequence == sequence
            assert 2 not in numbers([*notification.added, *notification.removed]), "what stayed is not sent again"
            state.subtract(numbers(notification.removed))
            state.update(numbers(notification.added))
            assert min(state.values()) >= 0
        assert numbers(subscription.results) == [2, 3]
    url = gateway.endpoints.subscribe
    assert seen == [(url, True), (url, False), (url, True), (url, False)]


async def test_changes_during_the_outage_arrive_as_one_delta(gateway):
    async with Client(gateway.endpoints, options=QUICK) as client:
        gateway.put(1, 2)
        subscription = await client.subscribe(NUMBERS)
        await following(subscription)
        gateway.kill()
        # Another client changes the graph while the client's port is closed: same data, another WebSocket port.
        elsewhere = type(gateway)(gateway.data_dir)
        elsewhere.start()
        elsewhere.put(3, 4)
        elsewhere.take(1)
        elsewhere.stop()
        gateway.start()
        delta = await following(subscription)
        assert (numbers(delta.added), numbers(delta.removed)) == ([3, 4], [1])


async def test_an_outage_without_a_change_sends_no_notification(gateway):
    async with Client(gateway.endpoints, options=QUICK) as client:
        gateway.put(1)
        subscription = await client.subscribe(NUMBERS)
        await following(subscription)
        gateway.kill()
        gateway.start()
        await eventually(lambda: client.connected, "the client comes back")
        gateway.put(2)
        delta = await following(subscription)
        assert (numbers(delta.added), numbers(delta.removed)) == ([2], [])


async def test_a_gateway_that_starts_later_is_awaited(absent_gateway):
    async with Client(absent_gateway.endpoints, options=QUICK) as client:
        assert not client.connected
        waiting = [
            asyncio.create_task(client.subscribe(NUMBERS)),
            asyncio.create_task(client.update("INSERT DATA { <urn:set> <urn:has> 1 }")),
            asyncio.create_task(client.ask("ASK {}")),
        ]
        done, _ = await asyncio.wait(waiting, timeout=0.3)
        assert not done
        await asyncio.to_thread(absent_gateway.start)
        async with asyncio.timeout(PATIENCE):
            subscription, updated, truth = await asyncio.gather(*waiting)
        assert (updated.added, truth) == (1, True)
        await eventually(lambda: numbers(subscription.results) == [1], "the update is seen")


@pytest.mark.parametrize("over", ["http", "websocket", "auto"])
async def test_no_request_waits_longer_than_its_timeout(absent_gateway, over):
    options = Options(backoff=Backoff(0.01, 0.02), timeout=0.3)
    async with Client(absent_gateway.endpoints, over=over, options=options) as client:
        with pytest.raises(NoAnswer) as failure:
            await client.update("INSERT DATA { <urn:s> <urn:p> 1 }")
    assert not failure.value.sent
    assert "connection" in str(failure.value)


async def test_a_frozen_gateway_counts_as_dead(gateway):
    options = Options(backoff=Backoff(0.05, 0.2), ping=0.3, timeout=PATIENCE)
    async with Client(gateway.endpoints, over="websocket", options=options) as client:
        subscription = await client.subscribe(NUMBERS)
        await following(subscription)
        gateway.freeze()
        update = asyncio.create_task(client.update("INSERT DATA { <urn:set> <urn:has> 1 }"))
        query = asyncio.create_task(client.ask("ASK { <urn:set> <urn:has> 1 }"))
        await eventually(lambda: not client.connected, "the death is noticed")
        with pytest.raises(NoAnswer) as failure:
            await update
        assert failure.value.sent, "it may be carried out"
        assert not query.done(), "a query is asked again"
        gateway.thaw()
        assert await query in (True, False)
        await client.update("INSERT DATA { <urn:set> <urn:has> 2 }")
        await eventually(lambda: 2 in numbers(subscription.results), "the subscription is back")


async def test_an_update_counts_as_unsent_before_its_connection_is_open(gateway):
    options = Options(backoff=Backoff(0.05, 0.2), timeout=1.0)
    async with Client(gateway.endpoints, options=options) as client:
        gateway.freeze()
        with pytest.raises(NoAnswer) as failure:
            await client.update("INSERT DATA { <urn:set> <urn:has> 1 }")
        assert not failure.value.sent
        gateway.thaw()
        await client.update("INSERT DATA { <urn:set> <urn:has> 1 }", repeat=True)


async def test_unsent_updates_survive_an_outage(gateway):
    async with Client(gateway.endpoints, over="websocket", options=QUICK) as client:
        assert await client.ask("ASK {}")
        gateway.kill()
        await eventually(lambda: not client.connected, "the break is noticed")
        updates = [asyncio.create_task(client.update(f"INSERT DATA {{ <urn:set> <urn:has> {n} }}")) for n in range(5)]
        gateway.start()
        outcomes = await asyncio.gather(*updates)
        assert [outcome.added for outcome in outcomes] == [1] * 5
        assert numbers(await client.select(NUMBERS)) == [0, 1, 2, 3, 4]


async def test_requests_that_wait_for_their_turn_end_when_the_client_is_closed():
    """The second request waits until the first has found out what kind of server answers."""
    asked = asyncio.Event()

    async def never_answer(reader, writer):
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = Client(Endpoints.at("127.0.0.1", http_port=port, ws_port=port), options=QUICK)
        requests = [asyncio.create_task(client.query("ASK {}")), asyncio.create_task(client.update("CLEAR ALL"))]
        await asked.wait()
        await client.close()
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Closed, Closed]
