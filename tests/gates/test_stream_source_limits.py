"""A source of elements against a slow processor, a fault, and permissions that end."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from gate_server import running
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.gates.http.views import Views
from edge.gates.rate_limit import RateLimit
from edge.gates.settings import LimitSettings, WsGateSettings
from edge.gates.ws import WsGate
from edge.metrics import Metrics
from edge.protocol.access import Access
from edge.protocol.errors import InvalidGrant
from tests.support.waiting import eventually

LIMIT = 200_000
LONG = "\n".join(f'<urn:a> <urn:p> "{number}" .' for number in range(100))
"""Its text and its triples take more than a seventh of the limit of a client, and less than a third."""
RIGHT = {"Authorization": "Bearer right"}
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

    async def has(self, number, answered):
        """Wait until so many requests have arrived, or the last one is answered."""
        await eventually(lambda: answered.done() or len(self.added) == number, "the request")

    async def register(self, name, text, access):
        await self.add(name, [text], access)

    async def observe(self, name, url, access, *, is_target=False):
        await self.add(name, [url], access)
        return "observer"


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
async def source(engine, streams, *, token="right", limits=None, quota=None, **options):
    metrics = Metrics()
    rate_limit = RateLimit(LimitSettings(**(limits or {})), quota)
    settings = WsGateSettings(port=0)
    gate = WsGate(engine, settings, metrics, rate_limit=rate_limit, streams=lambda: streams, **options)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    port = await gate.start()
    try:
        async with connect(f"ws://127.0.0.1:{port}/streams/s", additional_headers=headers) as socket:
            yield socket
    finally:
        await gate.stop()


def another(socket):
    """Return one more connection to the same stream."""
    return connect(f"ws://127.0.0.1:{socket.remote_address[1]}/streams/s", additional_headers=RIGHT)


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


async def test_elements_of_clients_that_went_away_count_in_their_quota_until_they_are_added(engine):
    streams, quota = SlowStreams(), ByteQuota(LIMIT, 10 * LIMIT)
    async with source(engine, streams, guard=Tokens(), quota=quota) as first:
        refused = {}
        for number in range(8):
            async with another(first) as socket:
                await socket.send(LONG)
                waiting = asyncio.ensure_future(answer(socket))
                await streams.has(number + 1, waiting)
                if waiting.done():
                    refused = waiting.result()
                    break
                waiting.cancel()
        assert (refused["status_code"], "limits.max_client_bytes" in refused["error_description"]) == (429, True)
        held = quota.held("source")
        assert len(streams.added) * (len(LONG) + 100 * 200) < held <= LIMIT
        streams.open.set()
        await eventually(lambda: not quota.total, "the release")
        assert streams.finished == len(streams.added) == number


async def test_many_clients_without_security_share_the_total_quota(engine):
    streams, quota, sockets = SlowStreams(), ByteQuota(LIMIT, LIMIT), []
    gate = WsGate(
        engine, WsGateSettings(port=0), Metrics(), rate_limit=RateLimit(LimitSettings(), quota), streams=lambda: streams
    )
    port = await gate.start()
    answers = []
    for _ in range(10):
        sockets.append(socket := await connect(f"ws://127.0.0.1:{port}/streams/s"))
        await socket.send(LONG)
        answers.append(asyncio.ensure_future(answer(socket)))
        await streams.has(sum(not each.done() for each in answers), answers[-1])
    assert 2 < len(streams.added) < len(sockets)
    assert quota.total <= LIMIT
    assert {each.result()["status_code"] for each in answers if each.done()} == {429}
    streams.open.set()
    await asyncio.gather(*answers)
    assert not sum(quota.held(f"127.0.0.1:{socket.local_address[1]}") for socket in sockets)
    for socket in sockets:
        await socket.close()
    await gate.stop()
    assert not quota.total


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("nothing", 400),
        (b"binary", 400),
        (QUAD, 403),
        (f'<urn:a> <urn:p> "{"x" * (LIMIT - 1000)}" .', 429),
        (QUAD, 500),
    ],
    ids=["syntax", "binary", "forbidden", "long", "fault"],
)
async def test_a_message_that_is_refused_does_not_count(engine, message, status):
    streams, guard, quota = SlowStreams(), Tokens(), ByteQuota(LIMIT, 10 * LIMIT)
    streams.open.set()
    streams.fault = RuntimeError("fault") if status == 500 else None
    async with source(engine, streams, guard=guard, quota=quota) as socket:
        if status == 403:
            guard.access_now = Access("source", actions=frozenset({"query"}))
        await socket.send(message)
        assert (await answer(socket))["status_code"] == status
        assert not quota.held("source")


async def test_a_message_whose_triples_take_too_much_is_refused_when_they_are_known(engine):
    streams, quota = SlowStreams(), ByteQuota(LIMIT, 10 * LIMIT)
    streams.open.set()
    async with source(engine, streams, guard=Tokens(), quota=quota) as socket:
        await socket.send("\n".join(f"<a:> <a:> <a:{number}> ." for number in range(2000)))
        assert (await answer(socket))["status_code"] == 429
        assert not quota.held("source")
        await socket.send(LONG)
        assert "elements" in await answer(socket)


async def test_a_client_that_is_only_rate_limited_may_try_again_later(engine):
    limits = {"rate": 0.001, "burst": 1}
    async with source(engine, SlowStreams(), guard=Tokens(), limits=limits) as socket:
        await socket.send(QUAD)
        assert (await answer(socket))["status_code"] == 429
        async with another(socket) as second:
            assert (await answer(second))["status_code"] == 429
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(second.recv(), 20)
            assert second.close_code == 1013
            assert "try again later" in second.close_reason


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/streams/s", LONG), ("PUT", "/queries/q", "x" * 50_000), ("POST", "/queries/q", "x" * 50_000)],
    ids=["element", "query", "observer"],
)
async def test_bodies_over_http_count_in_the_quota_until_they_are_processed(engine, method, path, body):
    streams, guard, quota = SlowStreams(), Tokens(), ByteQuota(LIMIT, 10 * LIMIT)
    guard.access_now = Access("source", actions=frozenset({"query", "update"}))
    async with running(engine, guard=guard, quota=quota, views=Views(streams=lambda: streams)) as gateway:
        async with gateway.http() as http:
            for number in range(8):
                waiting = asyncio.ensure_future(http.request(method, path, content=body, headers=RIGHT))
                await streams.has(number + 1, waiting)
                if waiting.done():
                    break
                waiting.cancel()  # the client disconnects
        refused = waiting.result()
        assert (refused.status_code, "limits.max_client_bytes" in refused.text) == (429, True)
        assert len(streams.added) == number
        assert number * len(body) < quota.held("source") <= LIMIT
        streams.open.set()
        await eventually(lambda: not quota.total, "the release")
        assert streams.finished == number
