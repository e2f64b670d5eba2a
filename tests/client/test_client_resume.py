"""Connections that break while the gateway runs: the client resumes without receiving the full result again."""

import asyncio
from dataclasses import replace

import httpx
import pytest
from client_gateway import NUMBERS, QUICK, Gateway, following, numbers
from relay import relay

from edge.client import Client, Endpoints
from tests.support.waiting import eventually


def metric(gateway, name):
    text = httpx.get(f"http://127.0.0.1:{gateway.http_port}/metrics", trust_env=False).text
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


async def test_only_missed_changes_are_sent_after_a_cut(empty_gateway):
    gateway = empty_gateway
    gateway.put(*range(1000, 2000))
    spus = metric(gateway, "edge_spus")
    async with relay(gateway.ws_port) as network:
        endpoints = Endpoints.at("127.0.0.1", http_port=gateway.http_port, ws_port=network.port)
        async with Client(endpoints, options=QUICK) as client:
            subscription = await client.subscribe(NUMBERS)
            await following(subscription)
            sequence, expected = 0, set(range(1000, 2000))
            for number in range(5):
                gateway.put(number)
                network.cut()
                gateway.put(number + 100)
                gateway.take(1000 + number)
                expected = expected - {1000 + number} | {number, number + 100}
                await eventually(lambda: numbers(subscription.results) == sorted(expected), "all that was missed")  # noqa: B023
                assert b'"1999"' not in network.heard, "what stayed is not sent again"
                while True:
                    sequence += 1
                    change = await following(subscription)
                    assert change.sequence == sequence
                    if number + 100 in numbers(change.added) or 1000 + number in numbers(change.removed):
                        break
            assert metric(gateway, "edge_spus") == spus + 1
        await eventually(lambda: metric(gateway, "edge_spus") == spus, "a client that is closed leaves nothing")
    await eventually(lambda: metric(gateway, 'edge_parked_subscriptions{gate="ws"}') == 0, "nothing is suspended")


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_only_missed_changes_are_sent_after_a_restart_of_the_gateway(tmp_path, end):
    gateway = Gateway(tmp_path / "gateway")
    gateway.start()
    try:
        gateway.put(*range(1000, 2000))
        async with relay(gateway.ws_port) as network:
            endpoints = Endpoints.at("127.0.0.1", http_port=gateway.http_port, ws_port=network.port)
            async with Client(endpoints, options=QUICK) as client:
                subscription = await client.subscribe(NUMBERS)
                await following(subscription)
                for number in range(2):
                    gateway.put(number)
                    getattr(gateway, end)()
                    network.cut()
                    gateway.start()
                    gateway.take(1000 + number)
                    expected = sorted({*range(number + 1), *range(1001 + number, 2000)})
                    await eventually(lambda: numbers(subscription.results) == expected, "all that was missed")  # noqa: B023
                    assert b'"1999"' not in network.heard, "what stayed is not sent again"
    finally:
        gateway.end()


async def test_a_subscription_that_is_closed_while_it_is_resumed_leaves_nothing(tmp_path):
    gateway = Gateway(tmp_path / "gateway", EDGE__SUBSCRIPTIONS__RESUME_FOR="1")
    gateway.start()
    try:
        await _close_while_resuming(gateway)
    finally:
        gateway.end()


async def _close_while_resuming(gateway):
    spus = metric(gateway, "edge_spus")
    closing = []

    async def close(subscription, turns):
        for _ in range(turns):
            await asyncio.sleep(0)
        await subscription.close()

    def connected(url, open_):
        if open_ and turns is not None:
            closing.append(asyncio.create_task(close(subscription, turns)))

    turns = None
    async with relay(gateway.ws_port) as network:
        endpoints = Endpoints.at("127.0.0.1", http_port=gateway.http_port, ws_port=network.port)
        async with Client(endpoints, options=replace(QUICK, on_connection=connected)) as client:
            kept = await client.subscribe(NUMBERS)
            await following(kept)
            for turns in range(7):  # from before the request is made until after it was sent  # noqa: B007
                closing.clear()
                subscription = await client.subscribe("SELECT ?s { ?s <urn:has> 1 }")
                network.cut()
                gateway.put(1)
                gateway.take(1)
                await eventually(lambda: closing and closing[0].done(), "it is closed")
                await eventually(lambda: metric(gateway, "edge_spus") == spus + 1, "what was closed leaves nothing")
            gateway.put(2)
            await eventually(lambda: numbers(kept.results) == [2], "the other one goes on")


async def test_a_subscription_that_is_closed_while_the_connection_breaks_leaves_nothing(tmp_path):
    """The gateway suspends it for a day, unless the client ends it after the reconnection."""
    gateway = Gateway(tmp_path / "gateway", EDGE__SUBSCRIPTIONS__RESUME_FOR="86400")
    gateway.start()
    try:
        await _close_while_it_breaks(gateway)
    finally:
        gateway.end()


async def _close_while_it_breaks(gateway):
    spus = metric(gateway, "edge_spus")
    connections = []
    async with relay(gateway.ws_port) as network:
        endpoints = Endpoints.at("127.0.0.1", http_port=gateway.http_port, ws_port=network.port)
        options = replace(QUICK, on_connection=lambda _, open_: connections.append(open_))
        async with Client(endpoints, options=options) as client:
            kept = await client.subscribe(NUMBERS)
            for close_first in True, False:
                subscription = await client.subscribe("SELECT ?s { ?s <urn:has> 1 }")
                assert metric(gateway, "edge_spus") == spus + 2
                connections.clear()
                if close_first:  # the unsubscribe request is lost with the connection
                    await subscription.close()
                network.cut()
                await eventually(lambda: connections[:1] == [False], "the connection is lost")
                await subscription.close()
                gateway.put(1)
                await eventually(lambda: metric(gateway, "edge_spus") == spus + 1, "what was closed leaves nothing")
                gateway.take(1)
            gateway.put(2)
            await eventually(lambda: numbers(kept.results) == [2], "the other one goes on")
        await eventually(lambda: metric(gateway, "edge_spus") == spus, "a client that is closed leaves nothing")
    await eventually(lambda: metric(gateway, 'edge_parked_subscriptions{gate="ws"}') == 0, "nothing is suspended")
