"""Two thousand clients that subscribe and then only listen."""

from __future__ import annotations

import asyncio
import resource

import pytest
from websockets.asyncio.client import connect

from tests.faults.monitored_gateway import Watched
from tests.gates.gate_client import Client, rows

COUNT = 2000
QUERIES = 100
"""Number of different queries, each with the same number of subscribers."""
EACH = 40_000
"""Bytes of the gateway's memory that one subscriber may take."""


@pytest.fixture
def many_files():
    """Raise the limit of descriptors to the maximum, also for the gateway, which inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < COUNT + 500:
        pytest.skip(f"{COUNT} connections need as many descriptors; `ulimit -Hn` is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_many_subscribers_take_little_memory_and_each_is_notified(gateway, many_files):
    settings = {"EDGE__WS__MAX_CONNECTIONS": str(COUNT + 1), "EDGE__WS__PING_INTERVAL": "5"}
    process = gateway(EDGE__MQTT__ENABLED="false", **settings)
    watched = await asyncio.to_thread(Watched, process)
    before = watched.usage()
    clients = []
    for number in range(COUNT):
        client = Client(await connect(watched.endpoints["ws"], compression=None, ping_interval=None))
        first = await client.subscribe(f"SELECT ?n {{ <urn:set{number % QUERIES}> <urn:has> ?n }}")
        assert first["sequence"] == 0
        clients.append(client)
    full = await asyncio.to_thread(watched.usage)
    each = (full.memory - before.memory) / COUNT
    began, rest = watched.processor(), 5.0  # during this time each client gets a ping
    await asyncio.sleep(rest)
    print(f"{each / 1000:.1f} KB of memory each; processor at rest: {(watched.processor() - began) / rest:.2%}")
    assert watched.metric("edge_connections", "ws") == COUNT
    assert each < EACH
    assert full.threads <= before.threads + 2
    assert full.descriptors - before.descriptors <= COUNT + 10
    text = " ; ".join(f"INSERT DATA {{ <urn:set{number}> <urn:has> 'news' }}" for number in range(QUERIES))
    await asyncio.to_thread(watched.update, text)
    for client in clients:
        reported = await client.notification()
        assert (reported["sequence"], rows(reported["addedResults"])) == (1, [("news",)])
    for client in clients:
        client.socket.transport.abort()
