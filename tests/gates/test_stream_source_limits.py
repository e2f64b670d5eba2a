"""A source of elements against a slow processor, a fault, and permissions that end."""

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
from edge.protocol.access import Access
from edge.protocol.errors import InvalidGrant
from tests.support.waiting import eventually

QUAD = '<urn:a> <urn:p> "x" .'


class SlowStreams:
    """Takes elements when the test lets it."""

    def __init__(self):
        self.added = []
        self.open = asyncio.Event()
        self.fault = None
        self.finished = 0

    async def add(self, identifier, elements, access):
        self.added.append((identifier, len(elements), access.client))
        await self.open.wait()
        self.finished += 1
        if self.fault is not None:
            raise self.fault
        return {"accepted": len(elements), "late": 0, "too late": 0}


class Tokens:
    """A guard whose only token can be revoked."""

    def __init__(self):
        self.access_now = Access("source", actions=frozenset({"update"}))
        self.revoked = False

    def access(self, authorization):
        if self.revoked or authorization != "Bearer right":
            raise InvalidGrant("The token is not valid")
        return self.access_now

    def watch(self, client, revoked):
        return lambda: None


@pytest.fixture(scope="module")
def engine():
    engine = open_engine(None, EngineSettings())
    yield engine
    engine.close()


@asynccontextmanager
async def source(engine, streams, *, token="right", limits=None, **options):
    metrics = Metrics()
    rate_limit = RateLimit(LimitSettings(**(limits or {})))
    settings = WsGateSettings(port=0)
    gate = WsGate(engine, settings, metrics, rate_limit=rate_limit, streams=lambda: streams, **options)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    port = await gate.start()
    try:
        async with connect(f"ws://127.0.0.1:{port}/streams/s", additional_headers=headers) as socket:
            yield socket
    finally:
        await gate.stop()


async def answer(socket):
    return json.loads(await asyncio.wait_for(socket.recv(), 20))


async def test_the_gate_takes_the_next_message_when_the_one_before_is_answered(engine):
    streams = SlowStreams()
    async with source(engine, streams) as socket:
        for _ in range(10):
            await socket.send(QUAD)
        await eventually(lambda: streams.added, "the first message")
        await (await socket.ping())  # read after the messages, so these have arrived
        assert len(streams.added) == 1
        streams.open.set()
        assert [await answer(socket) for _ in range(10)] == [
            {"elements": {"accepted": 1, "late": 0, "too late": 0}}
        ] * 10
    assert streams.added == [("s", 1, "")] * 10


async def test_an_unexpected_fault_is_answered_with_an_incident_and_the_connection_goes_on(engine):
    streams = SlowStreams()
    streams.open.set()
    streams.fault = RuntimeError("secret")
    async with source(engine, streams) as socket:
        await socket.send(QUAD)
        error = await answer(socket)
        assert (error["status_code"], "secret" in str(error)) == (500, False)
        streams.fault = None
        await socket.send(QUAD)
        assert "elements" in await answer(socket)


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_client_without_a_valid_token_is_disconnected_at_once(engine, token):
    async with source(engine, SlowStreams(), token=token, guard=Tokens()) as socket:
        assert (await answer(socket))["status_code"] == 401
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(socket.recv(), 20)
        assert socket.close_code == 1008


async def test_a_client_whose_token_was_revoked_is_disconnected(engine):
    streams, guard = SlowStreams(), Tokens()
    streams.open.set()
    async with source(engine, streams, guard=guard) as socket:
        await socket.send(QUAD)
        assert "elements" in await answer(socket)
        guard.revoked = True
        await socket.send(QUAD)
        assert (await answer(socket))["status_code"] == 401
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(socket.recv(), 20)
        assert socket.close_code == 1008
    assert streams.added == [("s", 1, "source")]


async def test_a_client_that_may_not_update_any_more_adds_nothing(engine):
    streams, guard = SlowStreams(), Tokens()
    streams.open.set()
    async with source(engine, streams, guard=guard) as socket:
        guard.access_now = Access("source", actions=frozenset({"query"}))
        await socket.send(QUAD)
        assert (await answer(socket))["status_code"] == 403
    assert not streams.added


async def test_messages_count_as_requests_of_the_client(engine):
    streams = SlowStreams()
    streams.open.set()
    async with source(engine, streams, limits={"rate": 0.001, "burst": 3}) as socket:
        for _ in range(3):
            await socket.send(QUAD)
        first, second, third = [await answer(socket) for _ in range(3)]
        assert "elements" in first
        assert "elements" in second
        assert (third["status_code"], third["retry_after"] > 1) == (429, True)
    assert len(streams.added) == 2


async def test_a_gate_can_stop_while_elements_are_being_added_and_they_are_added_nevertheless(engine):
    streams = SlowStreams()
    gate = WsGate(engine, WsGateSettings(port=0), Metrics(), streams=lambda: streams, close_timeout=0.1)
    port = await gate.start()
    async with connect(f"ws://127.0.0.1:{port}/streams/s") as socket:
        await socket.send(QUAD)
        await eventually(lambda: streams.added, "the message")
        await asyncio.wait_for(gate.stop(), 20)
    assert not streams.finished
    streams.open.set()
    await eventually(lambda: streams.finished, "the element")


async def test_a_client_that_goes_away_frees_its_connection_while_its_elements_are_being_added(engine):
    streams, metrics = SlowStreams(), Metrics()
    gate = WsGate(engine, WsGateSettings(port=0), metrics, streams=lambda: streams)
    port = await gate.start()
    async with connect(f"ws://127.0.0.1:{port}/streams/s") as socket:
        await socket.send(QUAD)
        await eventually(lambda: streams.added, "the message")
    await eventually(lambda: not metrics.registry.get_sample_value("edge_connections", {"gate": "ws"}), "the end")
    streams.fault = RuntimeError("nobody waits for it")
    streams.open.set()
    await eventually(lambda: streams.finished, "the element")
    await gate.stop()
