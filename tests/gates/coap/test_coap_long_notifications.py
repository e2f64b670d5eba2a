"""Block-wise notifications while newer ones arrive: RFC 7641 with RFC 7959, section 2.6."""

import asyncio
import json
import random
from collections import Counter

import pytest
from aiocoap import CON, FETCH, GET, POST, Code
from coap_client import ALL, CoapClient, Datagrams, body, values
from test_libcoap import PROGRAM

from edge.engine.requests import UpdateRequest
from edge.gates.coap import transfers


def insert(*names):
    return "INSERT DATA { " + " . ".join(f'<urn:s> <urn:p> "{name}{"x" * 60}"' for name in names) + " }"


def replace(*names):
    return f"DELETE WHERE {{ ?s ?p ?o }} ; {insert(*names)}"


def names(length, number=0):
    return [f"{number}.{row}." for row in range(length)]


class Kept:
    """A result that a client maintains from its notifications."""

    def __init__(self):
        self._rows = Counter()
        self.sequences = []

    def take(self, notification):
        if notification["sequence"] == 0:
            self._rows.clear()
        self.sequences.append(notification["sequence"])
        self._rows.subtract(values(notification["removedResults"]))
        self._rows.update(values(notification["addedResults"]))
        assert min(self._rows.values(), default=0) >= 0

    @property
    def rows(self):
        return sorted((+self._rows).elements())


async def result(client):
    return values(body(await client.ask(FETCH, "/query", ALL)))


@pytest.mark.parametrize("exponent", [2, 6])
async def test_a_result_built_from_deltas_is_exact(gate, client, exponent):
    async with CoapClient(gate.url) as other:
        await other.update(insert(*names(30)))
        observation = await client.observe(await client.subscribe(), block2=(0, False, exponent))
        kept = Kept()
        for number in range(1, 20):
            await other.update(replace(*names(random.randrange(40), number)))
        wanted = await result(other)
        while kept.rows != wanted or not kept.sequences:
            kept.take(await observation.notification())
        assert kept.sequences == sorted(kept.sequences)
        await other.update(replace("last"))
        wanted = await result(other)
        # the notification may have been sent before a change that does not affect the result
        while kept.rows != wanted:
            kept.take(await observation.notification())
        assert kept.sequences == sorted(kept.sequences)


@pytest.mark.skipif(PROGRAM is None, reason="no coap-client here; install the package libcoap3-bin")
async def test_libcoap_keeps_an_exact_result_too(gate, client):
    await client.update(insert(*names(30)))
    path = await client.subscribe()
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "-w", "-s", "60", "-b", "64", f"{gate.url}{path}", stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )
    kept = Kept()

    async def received():
        async with asyncio.timeout(30):
            kept.take(json.loads(await process.stdout.readline()))

    await received()
    for number in range(1, 20):
        await client.update(replace(*names(random.randrange(40), number)))
    wanted = await result(client)
    while kept.rows != wanted:
        await received()
    process.kill()
    await process.communicate()


class Device(Datagrams):
    """An observer that fetches one block at a time, each with its own token: that of the observation is in use."""

    def send_message(self, message, kind=CON):
        self._number += 1
        token = b"me" if message.opt.observe is not None else self._number.to_bytes(2)
        self.socket.send(message.copy(mtype=kind, mid=self._number, token=token).encode())

    async def subscribe(self):
        created = await self.ask(POST, "/subscribe", ALL)
        self.path = "/".join(created.opt.location_path)
        return await self.ask(GET, self.path, observe=0)

    async def received(self):
        """Return the next notification and acknowledge it; earlier repetitions are skipped."""
        while (message := await self.receive()).opt.observe is None:
            assert message.code == Code.EMPTY, message
        self.acknowledge(message)
        return message

    async def block(self, number):
        return await self.ask(GET, self.path, block2=(number, False, 6))

    async def rest(self, first):
        """Return all of a message whose first block has arrived."""
        payload, part = first.payload, first
        while part.opt.block2 is not None and part.opt.block2.more:
            part = await self.block(part.opt.block2.block_number + 1)
            assert part.opt.etag == first.opt.etag
            payload += part.payload
        return json.loads(payload)


async def silence(device):
    """Check that nothing arrives: the next answer is that of the next request."""
    assert (await device.ask(GET, "/.well-known/core")).opt.observe is None


@pytest.fixture
def device(gate):
    return Device(gate.port)


LAST = 10


async def test_the_next_notification_waits_until_the_last_block_was_asked_for(gate, client, device):
    await device.subscribe()
    await client.update(insert(*names(50, 1)))
    first = await device.received()
    for number in range(2, LAST + 1):
        await client.update(replace(*names(50, number)))
    await silence(device)
    kept = Kept()
    kept.take(await device.rest(first))
    assert len(kept.rows) == 50
    while kept.sequences[-1] < LAST:
        kept.take(await device.rest(await device.received()))
    assert kept.rows == await result(client)
    assert len(kept.sequences) < LAST  # some were merged; on a loaded machine not all were waiting at the same time


async def test_a_get_does_not_replace_a_notification(gate, client, device):
    await device.subscribe()
    await client.update(insert(*names(50, 1)))
    first = await device.received()
    answer = await device.ask(GET, device.path)
    assert (answer.code, body(answer)["error"]) == (Code.SERVICE_UNAVAILABLE, "not_ready")
    assert len(values((await device.rest(first))["addedResults"])) == 50
    assert len(values(await device.rest(await device.ask(GET, device.path)))) == 50


async def test_a_notification_does_not_replace_the_response_to_a_get(gate, client, device):
    await client.update(insert(*names(50, 1)))
    await device.rest(await device.subscribe())
    first = await device.ask(GET, device.path)
    await client.update(replace(*names(50, 2)))
    await silence(device)
    assert all(value.startswith("1.") for value in values(await device.rest(first)))
    received = await device.rest(await device.received())
    assert all(value.startswith("2.") for value in values(received["addedResults"]))


async def test_an_observer_that_does_not_fetch_the_rest_receives_the_full_result(gate, client, device, monkeypatch):
    monkeypatch.setattr(transfers, "_LIFETIME", 0.2)
    await device.subscribe()
    await client.update(insert(*names(50, 1)))
    await device.received()
    await client.update(replace("a"))
    again = await device.rest(await device.received())
    assert (again["sequence"], values(again["addedResults"])) == (0, ["a" + "x" * 60])
    await client.update(replace("b"))
    assert (await device.rest(await device.received()))["sequence"] == 1
    assert gate.engine.subscriptions == 1


async def test_an_observer_with_an_evicted_rest_receives_the_full_result(serving):
    """The space for the messages that clients fetch is limited."""
    async with serving(max_blocks=1024 * 1024) as gate, CoapClient(gate.url) as client:
        gate.engine.update([UpdateRequest(insert(*names(2000)))]).result(10)
        device, greedy = Device(gate.port), Datagrams(gate.port)
        await device.subscribe()
        for number in range(6):
            assert (await greedy.ask(FETCH, "/query", ALL, uri_query=(f"alias={number}",))).opt.block2.more
        assert (await device.block(1)).code == Code.REQUEST_ENTITY_INCOMPLETE
        await client.update(insert("a"))
        again = await device.rest(await device.received())
        assert (again["sequence"], len(values(again["addedResults"]))) == (0, 2001)


async def test_an_unknown_block_is_refused(gate, client, device):
    await device.subscribe()
    missing_block = await device.block(1)
    await client.update(insert(*names(50)))
    await device.rest(await device.received())
    for answer in missing_block, await device.block(4000):
        assert (answer.code, answer.opt.content_format) == (Code.REQUEST_ENTITY_INCOMPLETE, 50)
        assert body(answer)["error"] == "invalid_request"


async def test_an_observer_that_cancels_during_a_transfer_is_answered(gate, client, device):
    await device.subscribe()
    await client.update(insert(*names(50)))
    await device.received()
    first = await device.ask(GET, device.path, observe=1)
    assert first.code == Code.CONTENT
    assert len(values(await device.rest(first))) == 50
