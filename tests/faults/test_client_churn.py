"""A thousand clients at each gate subscribe and vanish without closing: the gateway releases all their resources."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from aiocoap import GET, POST
from websockets.asyncio.client import connect

from tests.faults.bare_mqtt import BareDevice
from tests.faults.monitored_gateway import Watched, value_of
from tests.gates.coap.coap_client import Datagrams
from tests.gates.gate_client import Client
from tests.support.waiting import eventually

CYCLES = 1000
WARMING = 600
"""Cycles before the first measurement, so that one-time loads and allocations are done."""

Cycle = Callable[[Watched, int], Awaitable[None]]


def counts(watched: Watched) -> dict[tuple[str, str], float]:
    """Return what the gateway counts of clients, by metric and gate."""
    names = ("edge_connections", "edge_subscriptions", "edge_parked_subscriptions")
    metrics = watched.metrics()
    return {(name, gate): value_of(metrics, name, gate) for gate in ("ws", "mqtt", "coap") for name in names}


def query(number: int) -> str:
    return f"SELECT ?n {{ <urn:set{number % 7}> <urn:has> ?n }}"


async def websocket(watched: Watched, number: int) -> None:
    client = Client(await connect(watched.endpoints["ws"], compression=None, ping_interval=None))
    await client.subscribe(query(number), resume=bool(number % 2))
    client.socket.transport.abort()
    await client.socket.wait_closed()


async def mqtt(watched: Watched, number: int) -> None:
    device = await BareDevice.connect(f"device{number}", watched.port("mqtt"))
    await device.subscribe(query(number), resume=bool(number % 2))
    device.vanish()


async def coap(watched: Watched, number: int) -> None:
    device = Datagrams(watched.port("coap"))
    created = await device.ask(POST, "/subscribe", query(number).encode())
    assert created.opt.location_path, created.payload
    await device.ask(GET, "/".join(created.opt.location_path), observe=0)
    device.close()
    # The number of observers is limited; the next check finds that this one is gone.
    await eventually(lambda: watched.metric("edge_subscriptions", "coap") < 900, "room for more")


SETTINGS = {
    "EDGE__SUBSCRIPTIONS__RESUME_FOR": "0.5",
    "EDGE__MQTT__MAX_CONNECTIONS": "1000",
    "EDGE__MQTT_GATE__MAX_CONNECTIONS": "1000",
    "EDGE__COAP__ENABLED": "true",
    "EDGE__COAP__PORT": "0",
    "EDGE__COAP__MAX_SUBSCRIPTIONS": "1000",
    "EDGE__COAP__PING_INTERVAL": "0.5",
    "EDGE__COAP__FOLLOW_WITHIN": "0.5",
}


@pytest.mark.parametrize(
    ("cycle", "growth"),
    [
        (websocket, 4_000_000),  # a thousand leaked clients would take 8 MB and more
        (mqtt, 4_000_000),
        (coap, 15_000_000),  # the gateway caches requests for 247 s to detect duplicates (RFC 7252, 4.5)
    ],
)
async def test_disconnected_clients_leave_no_memory_or_subscriptions(gateway, cycle, growth):
    """`growth`: bytes that the memory of the gateway may grow at most."""
    watched = await asyncio.to_thread(Watched, gateway(**SETTINGS))
    spus = watched.metric("edge_spus")

    async def run(cycles: int) -> None:
        for number in range(cycles):
            await cycle(watched, number)
        # Suspended subscriptions are kept for some time.
        await eventually(lambda: watched.metric("edge_spus") == spus, "the end of all that they subscribed to")
        await eventually(lambda: not any(counts(watched).values()), "the end of all connections")

    await run(WARMING)
    before = watched.usage()
    await run(CYCLES)
    # The last connections are closed a little after they are not counted any more.
    with contextlib.suppress(AssertionError):
        await eventually(lambda: watched.usage().descriptors <= before.descriptors + 3)
    after = watched.usage()
    print(f"{cycle.__name__}: {before} before, {after} after")
    assert after.memory - before.memory < growth
    assert after.descriptors <= before.descriptors + 3
    assert after.threads <= before.threads
    assert watched.metric("edge_internal_errors_total") == 0
