"""Deduplication: the gateway remembers requests, so that it executes a repeated one once."""

import asyncio

import pytest
from aiocoap import ACK, CON, NON, POST, Code
from coap_client import ALL, Datagrams
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.gates.coap.deduplication import Deduplication
from tests.support.examples import examples
from tests.support.waiting import eventually

PLAIN = 860


async def test_a_repeated_message_gets_the_stored_answer():
    recent = Deduplication(60, 1_000_000)
    assert recent.find("a") is None
    recent.came("a")
    assert recent.find("a") == b""
    recent.answered("a", b"yes")
    recent.answered("never came", b"no")
    assert (recent.find("a"), recent.find("never came")) == (b"yes", None)
    recent.close()
    assert len(recent) == 0


async def test_stored_answers_expire():
    recent = Deduplication(0.05, 1_000_000)
    for number in range(10):
        recent.came(number)
    await eventually(lambda: not len(recent), "the entries to expire")
    recent.came("another")
    assert len(recent) == 1
    recent.close()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1200)), max_size=60), st.integers(1, 20))
def test_the_memory_of_stored_answers_is_bounded(story, limit):
    async def received():
        recent = Deduplication(60, limit * PLAIN)
        newest = None
        for key, length in story:
            if recent.find(key) is None:
                recent.came(key)
                newest = key
            recent.answered(key, bytes(length))
            kept = [recent.find(key) for key in range(31)]
            assert sum(PLAIN + len(answer) for answer in kept if answer is not None) <= limit * PLAIN
            if limit * PLAIN >= PLAIN + 1200:
                assert newest is None or recent.find(newest) is not None or key != newest
        recent.close()

    asyncio.run(received())


@pytest.mark.parametrize("kind", [CON, NON])
async def test_a_request_that_comes_again_is_carried_out_once(gate, kind):
    device = Datagrams(gate.port)
    for _ in range(3):
        device._number = 0
        device.send(POST, "/reading/a", b"1", kind=kind)
    device.send(POST, "/reading/b", b"1")
    await eventually(lambda: ("b", b"1") in gate.came, "the last reading")
    assert gate.came == [("a", b"1"), ("b", b"1")]


async def test_a_repeated_request_gets_the_same_answer(gate):
    device = Datagrams(gate.port)
    first = await device.ask(POST, "/subscribe", ALL)
    for _ in range(2):
        device._number = 0
        device.send(POST, "/subscribe", ALL)
        again = await device.receive()
        assert (again.mid, again.mtype) == (1, ACK)
        if first.mtype is ACK:  # answered with the acknowledgement
            assert again.opt.location_path == first.opt.location_path


async def test_a_device_that_restarts_its_message_ids_sends_new_requests(gate):
    """For example after a restart. Nothing of its old request is left then."""
    device = Datagrams(gate.port)
    for value in b"1", b"2", b"2", b"1":
        device._number = 0
        assert (await device.ask(POST, "/reading/a", value)).code == Code.CHANGED
    assert gate.came == [("a", b"1"), ("a", b"2"), ("a", b"1")]


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=1)), max_size=30))
def test_a_repeated_request_is_recognised_by_message_id_and_content(story):
    async def received():
        recent, last = Deduplication(60, 1_000_000), {}
        for number, digest in story:
            assert (recent.find(number, digest) is not None) == (last.get(number) == digest)
            recent.came(number, digest)
            last[number] = digest
            assert len(recent) == len(last)
        recent.close()

    asyncio.run(received())
