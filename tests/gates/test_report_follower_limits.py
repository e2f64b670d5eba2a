"""Followers of queries against a slow processor, and their limits."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.gates.rate_limit import RateLimit
from edge.gates.settings import LimitSettings, WsGateSettings
from edge.gates.ws import WsGate
from edge.metrics import Metrics
from edge.protocol.errors import StorageFailed
from tests.support.waiting import eventually


class Followed:
    """A query without reports."""

    query, number, of, error = "q", 7, "1f", None

    def __init__(self):
        self.closed = False

    def take(self):
        return None

    def close(self):
        self.closed = True


class SlowStreams:
    """Lets a client follow a query when the test does."""

    def __init__(self):
        self.open = asyncio.Event()
        self.followed = []
        self.waiting = 0
        self.error = None

    async def follow(self, name, access, charge, wake, largest, after):
        self.waiting += 1
        try:
            await self.open.wait()
        finally:
            self.waiting -= 1
        if self.error is not None:
            raise self.error
        self.followed.append(Followed())
        return self.followed[-1]


class Gate:
    """A WebSocket gate of these streams."""

    def __init__(self, gate, metrics, port):
        self.gate, self._metrics, self._port = gate, metrics, port

    def follower(self):
        return connect(f"ws://127.0.0.1:{self._port}/queries/q")

    def metric(self, name):
        return self._metrics.registry.get_sample_value(name, {"gate": "ws"}) or 0.0


@pytest.fixture(scope="module")
def engine():
    engine = open_engine(None, EngineSettings())
    yield engine
    engine.close()


@asynccontextmanager
async def serving(engine, streams, **limits):
    metrics = Metrics()
    gate = WsGate(
        engine,
        WsGateSettings(port=0),
        metrics,
        rate_limit=RateLimit(LimitSettings(**limits)),
        streams=lambda: streams,
        close_timeout=0.2,
    )
    port = await gate.start()
    try:
        yield Gate(gate, metrics, port)
    finally:
        await gate.stop()


async def test_a_gate_can_stop_while_a_follower_waits_for_the_processor(engine):
    streams = SlowStreams()
    async with serving(engine, streams) as gate, gate.follower() as socket:
        await eventually(lambda: streams.waiting, "the request")
        await asyncio.wait_for(gate.gate.stop(), 20)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert streams.waiting == 0


async def test_a_follower_that_goes_away_frees_its_connection_while_it_waits_for_the_processor(engine):
    streams = SlowStreams()
    async with serving(engine, streams) as gate:
        async with gate.follower():
            await eventually(lambda: streams.waiting, "the request")
        await eventually(lambda: not gate.metric("edge_connections"), "no connection")
        assert streams.waiting == 0


async def test_followers_count_as_subscriptions_and_leave_nothing(engine):
    streams = SlowStreams()
    streams.open.set()
    async with serving(engine, streams, max_subscriptions=1) as gate:
        for number in range(1, 4):
            async with gate.follower() as socket:
                assert json.loads(await socket.recv()) == {"following": {"query": "q", "number": 7, "of": "1f"}}
                assert gate.metric("edge_subscriptions") == 1
            await eventually(lambda: not gate.metric("edge_connections"), "no connection")
            assert gate.metric("edge_subscriptions") == 0
            assert [each.closed for each in streams.followed] == [True] * number


async def test_a_client_is_told_to_try_again_when_the_disk_fails(engine):
    streams = SlowStreams()
    streams.open.set()
    streams.error = StorageFailed("The disk is full")
    async with serving(engine, streams) as gate, gate.follower() as socket:
        assert json.loads(await socket.recv())["status_code"] == 507
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd.code == 1013
