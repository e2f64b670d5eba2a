"""Idempotent updates: the client repeats them until they are answered, and keeps their order."""

import asyncio
import gc
import itertools
import json
import math
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import pytest
from client_gateway import QUICK
from client_profile import profile_of
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from edge.client import Application, Backoff, Client, Endpoints, NoAnswer, Options, SyncClient, SyncProducer, Updated
from edge.client.pending_requests import PendingRequest
from tests.support.examples import examples
from tests.support.waiting import PATIENCE, eventually

HASTY = Options(backoff=Backoff(0.001, 0.002), timeout=PATIENCE)
STOPPING = {"error": "not_ready", "error_description": "The gateway is stopping", "status_code": 503}


def sent() -> int:
    """Return the number of requests without an answer that clients have sent on this event loop.

    Objects of earlier tests may not be collected yet, but their event loops were others.
    """
    requests = [each for each in gc.get_objects() if isinstance(each, PendingRequest)]
    present = [each for each in requests if each.answer.get_loop() is asyncio.get_running_loop()]
    return sum(request.sent and not request.answer.done() for request in present)


class Connection(NamedTuple):
    """Actions of a broker before it breaks a connection."""

    answered: int
    unanswered: int
    """Updates that it executes and does not answer."""
    refused: int
    """Updates that it refuses because it is shutting down."""


class FaultyBroker:
    """A broker for updates over WebSocket whose texts are numbers, with faults at first and none in the end."""

    def __init__(self, script, patience):
        self.script = list(script)
        self.patience = patience
        """Seconds without a message after which the broker breaks a connection, except the last one. None: it waits."""
        self.done = []

    async def serve(self, socket):
        patience = self.patience if self.script else None
        connection = self.script.pop(0) if self.script else Connection(math.inf, 0, 0)
        for number in itertools.takewhile(lambda number: number < sum(connection), itertools.count()):
            try:
                async with asyncio.timeout(patience):
                    body = json.loads(await socket.recv())["update"]
            except (TimeoutError, ConnectionClosed):
                return
            alias = {"alias": body["alias"]}
            if number >= connection.answered + connection.unanswered:
                await socket.send(json.dumps({**STOPPING, **alias}))
                continue
            self.done.append(int(body["sparql"]))
            if number < connection.answered:
                await socket.send(json.dumps({"updated": {**alias, "added": 1, "removed": 0}}))


@asynccontextmanager
async def faulty(script, patience=0.05):
    broker = FaultyBroker(script, patience)
    async with serve(broker.serve, "127.0.0.1", 0) as server:
        yield broker, Endpoints.at("127.0.0.1", ws_port=server.sockets[0].getsockname()[1])


def last_times(done):
    """Return the executed updates, each at the position of its last execution."""
    return list(dict.fromkeys(reversed(done)))[::-1]


@given(
    st.lists(st.builds(Connection, *[st.integers(0, 4)] * 3), max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=15),
)
@settings(max_examples=examples(30), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_repeated_updates_are_answered_in_order_and_others_executed_once(script, repeats):
    async def run():
        async with faulty(script) as (broker, endpoints), Client(endpoints, over="websocket", options=HASTY) as client:
            updates = [client.update(str(number), repeat=repeat) for number, repeat in enumerate(repeats)]
            async with asyncio.timeout(PATIENCE):
                return broker.done, await asyncio.gather(*updates, return_exceptions=True)

    done, outcomes = asyncio.run(run())
    repeated = [number for number, repeat in enumerate(repeats) if repeat]
    assert [number for number in last_times(done) if number in repeated] == repeated
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, NoAnswer):
            assert (repeats[number], outcome.sent) == (False, True)
            assert done.count(number) <= 1
        else:
            assert outcome == Updated(1, 0)
            assert repeats[number] or done.count(number) == 1


async def test_an_update_that_waits_for_a_stopping_broker_times_out_unsent():
    options = Options(backoff=Backoff(PATIENCE, PATIENCE), timeout=1)  # at the timeout, the client is waiting
    stopping = [Connection(0, 0, math.inf)]
    async with (
        faulty(stopping, patience=None) as (broker, endpoints),
        Client(endpoints, over="websocket", options=options) as client,
    ):
        with pytest.raises(NoAnswer) as failure:
            await client.update("1")
    assert "The gateway is stopping" in str(failure.value)
    assert not failure.value.sent
    assert broker.done == []


async def test_an_update_with_an_id_is_always_repeated(gateway):
    """A named delayed update replaces itself."""
    async with Client(gateway.endpoints, over="websocket", options=QUICK) as client:
        assert await client.ask("ASK {}")
        gateway.freeze()
        later = timedelta(hours=1)
        named = asyncio.create_task(client.update("INSERT DATA { <urn:a> <urn:p> 1 }", delay=later, id="off"))
        unnamed = asyncio.create_task(client.update("INSERT DATA { <urn:a> <urn:p> 2 }", delay=later))
        await eventually(lambda: sent() >= 2, "the updates to be sent")
        gateway.kill()
        with pytest.raises(NoAnswer) as failure:
            await unnamed
        assert failure.value.sent
        gateway.start()
        assert (await named).id == "off"
        assert [timer.id for timer in await client.timers("pending")] == ["off"]


@pytest.mark.parametrize("over", ["http", "websocket", "auto"])
async def test_repeated_updates_may_exceed_the_timeout(absent_gateway, over):
    options = Options(backoff=Backoff(0.01, 0.02), timeout=0.2)
    async with Client(absent_gateway.endpoints, over=over, options=options) as client:
        patient = asyncio.create_task(client.update("INSERT DATA { <urn:a> <urn:p> 1 }", repeat=True))
        with pytest.raises(NoAnswer) as failure:
            await client.update("INSERT DATA { <urn:a> <urn:p> 2 }")
        assert not failure.value.sent
        assert not patient.done()
        await asyncio.to_thread(absent_gateway.start)
        await patient  # perhaps executed twice: the gateway may take longer than the timeout to answer
    async with Client(absent_gateway.endpoints, options=QUICK) as client:
        assert await client.ask("ASK { <urn:a> <urn:p> 1 }")


async def test_kills_of_the_gateway_lose_no_repeated_update(gateway):
    overwrite = "DELETE WHERE {{ <urn:x> <urn:is> ?o }} ; INSERT DATA {{ <urn:x> <urn:is> {} }}"
    async with Client(gateway.endpoints, options=QUICK) as client:
        for most in (20, 60):
            updates = [asyncio.create_task(client.update(overwrite.format(n), repeat=True)) for n in range(300)]
            await eventually(
                lambda most=most, updates=updates: sum(map(asyncio.Task.done, updates)) >= most, "some of them"
            )
            gateway.kill()
            assert not all(map(asyncio.Task.done, updates))
            await asyncio.to_thread(gateway.start)
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*updates)
            (row,) = await client.select("SELECT ?n { <urn:x> <urn:is> ?n }")
            assert row.plain() == {"n": 299}


class FaultyHttp:
    """An HTTP server that handles requests by a script: answer, disconnect, or 503."""

    def __init__(self, script):
        self.script = list(script)
        self.done = []

    async def serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        text = (await reader.readexactly(length)).decode()
        deed = self.script.pop(0) if self.script else "answer"
        if deed != "503":
            self.done.append(text.removeprefix("update="))
        if deed != "drop":
            status = "200 OK" if deed == "answer" else "503 Service Unavailable"
            writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            await writer.drain()
        writer.close()


async def test_repeated_updates_over_http_keep_their_order():
    broker = FaultyHttp(["drop", "503", "answer", "503", "drop", "drop", "answer", "503"])
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with (
        server,
        Client(
            Endpoints.at("127.0.0.1", http_port=server.sockets[0].getsockname()[1]), over="http", options=HASTY
        ) as client,
    ):
        assert await asyncio.gather(*(client.update(text, repeat=True) for text in "ABCD")) == [Updated()] * 4
        assert "".join(broker.done) == "AABBBCD"
        broker.done, broker.script = [], ["503", "drop"]
        with pytest.raises(NoAnswer) as failure:
            await client.update("E")
        assert failure.value.sent
        assert broker.done == ["E"]


@pytest.mark.parametrize("plain", [False, True])
async def test_an_aggregator_repeats_by_default_or_on_request(gateway, plain):
    """Its updates are in flight when the gateway is killed, and arrive after the restart."""
    profile = profile_of(gateway)
    application = Application(profile, options=QUICK)
    tasks = []

    def updates(update):
        return [update(lamp=f"urn:{n}", state="on", repeat=None if n else False) for n in range(5)]

    async def light(change, update):
        for _ in change.added:
            gateway.freeze()
            tasks.extend([await sending for sending in updates(update)])

    def plain_light(change, update):
        for _ in change.added:
            gateway.freeze()
            tasks.extend(updates(update))

    application.aggregator("SEEN", "SET", repeat=True)(plain_light if plain else light)

    async def main():
        async with Client(gateway.endpoints, over="websocket") as client:
            assert (await application.producer("SET").produce(lamp="urn:l", state="off", repeat=True)).added == 1
            await client.update("INSERT DATA { <urn:door> <urn:seen> 1 }")
        await eventually(lambda: len(tasks) == 5, "the updates")
        await eventually(lambda: sent() >= 5, "the updates to be sent")
        await asyncio.to_thread(gateway.kill)
        await asyncio.to_thread(gateway.start)
        outcomes = await asyncio.gather(
            *(asyncio.wrap_future(task) if plain else task for task in tasks), return_exceptions=True
        )
        assert isinstance(outcomes[0], NoAnswer)
        assert [outcome.added for outcome in outcomes[1:]] == [1] * 4

    async with asyncio.timeout(PATIENCE):
        await application.serve(main)


def test_plain_programs_can_request_repetition(gateway):
    with SyncClient(gateway.endpoints) as client, SyncProducer(profile_of(gateway), "SET") as lamp:
        assert client.update("INSERT DATA { <urn:a> <urn:p> 1 }", repeat=True).added == 1
        assert lamp.produce(lamp="urn:l", state="on", repeat=True).added == 1
        assert lamp.update({"lamp": "urn:l", "state": "off"}, repeat=True).added == 1
