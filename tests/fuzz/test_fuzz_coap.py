"""Random messages over UDP: valid requests are answered, and other observers get all notifications."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from itertools import count

import cbor2
import pytest
from aiocoap import Code, Message
from aiocoap.numbers.types import ACK, CON
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.messages import GRAPHS, JSON, MEMBERS, SPARQL
from tests.support.examples import examples
from tests.support.waiting import wait_for

GATE = "coap"

numbers = count()

PATHS = st.sampled_from(
    ["query", "update", "subscribe", "reading", "subscribe/1", "reading/a/b", ".well-known/core", "x", "", "/query/"]
) | st.text(max_size=20)
BLOCKS = st.tuples(st.integers(0, 2**20 - 1) | st.integers(0, 3), st.booleans(), st.integers(0, 6))
TEXT_PARAMETERS = ["alias", "delay", "at", "id"]
PARAMETERS = st.tuples(
    st.sampled_from([*TEXT_PARAMETERS, "query", "update", "default-graph-uri", "x"]), st.text(max_size=20)
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "observe": st.integers(0, 2**24 - 1),
        "accept": st.sampled_from([0, 40, 50, 60, 65000]),
        "content_format": st.sampled_from([0, 41, 50, 60, 110, 112, 65000]),
        "block1": BLOCKS,
        "block2": BLOCKS,
        "uri_query": st.lists(PARAMETERS.map("=".join) | st.text(max_size=20), max_size=3),
        "proxy_uri": st.just("coap://else.where/"),
        "no_response": st.integers(0, 31),
        "size1": st.integers(0, 2**32 - 1),
        "etag": st.binary(min_size=1, max_size=8),
        "oscore": st.binary(max_size=20),
    },
)
OBJECTS = (
    st.fixed_dictionaries({"sparql": SPARQL}, optional={"alias": MEMBERS["alias"], "default-graph-uri": GRAPHS}) | JSON
)
PAYLOADS = (
    SPARQL.map(lambda text: text.encode("utf-8", "replace"))
    | OBJECTS.map(json.dumps).map(str.encode)
    | st.recursive(st.none() | st.integers() | st.binary(max_size=5) | st.text(max_size=5), st.lists).map(cbor2.dumps)
    | st.binary(max_size=200)
    | st.sampled_from([b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", b"\x81" * 5000, b"[" * 5000, b"21.5", b""])
    | st.just(json.dumps([{"bn": "urn:x", "n": "t", "v": 21.5}, {"n": "h", "vb": True}]).encode())
)


@st.composite
def messages(draw):
    """Return a message that can be parsed (RFC 7252, section 3)."""
    message = Message(
        code=Code(draw(st.integers(1, 7) | st.sampled_from([0, 69, 128, 160, 255]))),
        payload=draw(PAYLOADS),
        _mtype=draw(st.sampled_from([0, 0, 0, 1, 2, 3])),
        _mid=draw(st.integers(1000, 65535)),
        _token=draw(st.binary(max_size=8)),
    )
    message.opt.uri_path = draw(PATHS).split("/")
    for name, value in draw(OPTIONS).items():
        setattr(message.opt, name, value)
    with suppress(ValueError):
        return message.encode()
    return b"\x40\x00\x00\x00"


@st.composite
def damaged(draw):
    """Return a message with some bytes changed: version, token length, option deltas, the payload marker."""
    whole = draw(messages())
    place = draw(st.integers(0, min(len(whole), 30)))
    return whole[:place] + draw(st.binary(max_size=4)) + whole[place + draw(st.integers(0, 4)) :]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(messages() | damaged() | st.binary(max_size=60), min_size=1, max_size=15))
def test_any_datagram(harness, concurrent_client, datagrams):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        device.connect(harness.address("coap"))
        for datagram in datagrams:
            with suppress(ConnectionRefusedError):
                device.send(datagram[:65000])
        concurrent_client.check_notification()
    harness.is_sound()


@pytest.fixture(scope="module")
def device(harness):
    """One device for all examples: a number that repeats from one address is one message (RFC 7252, 4.5)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        device.connect(harness.address("coap"))
        device.settimeout(20)
        yield device


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["query", "update", "subscribe", "reading/a"]),
    SPARQL.map(lambda text: text.encode("utf-8", "replace")) | st.binary(max_size=400),
    st.lists(BLOCKS, min_size=1, max_size=8),
    st.booleans(),
)
def test_blocks_in_any_order(harness, concurrent_client, device, path, body, blocks, same_token):
    """Random blocks of requests (RFC 7959): each is answered, with an error or a continuation."""
    for block, more, exponent in blocks:
        size = 2 ** (exponent + 4)
        number = next(numbers)
        message = Message(
            code=Code.POST,
            payload=body[block * size :][:size],
            _mtype=CON,
            _mid=number,
            _token=b"me" if same_token else number.to_bytes(2),
        )
        message.opt.uri_path = path.split("/")
        message.opt.block1 = (block, more, exponent)
        device.send(message.encode())
        answer = Message.decode(device.recv(65536))
        while answer.code == Code.EMPTY:
            answer = Message.decode(device.recv(65536))
        if answer.mtype == CON:
            device.send(Message(code=Code.EMPTY, _mtype=ACK, _mid=answer.mid).encode())
        assert answer.token == message.token
        assert answer.code.is_response()
        assert answer.code != Code.INTERNAL_SERVER_ERROR or b"internal_error" not in answer.payload
    concurrent_client.check_notification()
    harness.is_sound()


def test_unobserved_subscriptions_end(harness, concurrent_client):
    concurrent_client.check_notification()
    wait_for(lambda: harness.metric('edge_subscriptions{gate="coap"}') == 1, what="only the neighbour's subscription")
