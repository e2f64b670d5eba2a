"""Random WebSocket messages: each request is answered once, and broken frames end their own connection only."""

from __future__ import annotations

import contextlib
import json
import socket

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.sync.client import connect

from tests.fuzz.messages import MESSAGES, answers_a_request, is_answer
from tests.support.examples import examples
from tests.support.waiting import wait_for

GATE = "ws"


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MESSAGES, min_size=1, max_size=12))
def test_every_message_is_answered_once(harness, concurrent_client, messages):
    with connect(harness.endpoints["ws"], proxy=None) as client:
        for message in messages:
            client.send(message)
        missing = len(messages)
        while missing:
            answer = json.loads(client.recv(20))
            assert is_answer(answer), answer
            missing -= answers_a_request(answer)
    concurrent_client.check_notification()
    harness.is_sound()


def test_subscriptions_end_with_their_connections(harness, concurrent_client):
    concurrent_client.check_notification()
    wait_for(lambda: harness.metric('edge_subscriptions{gate="ws"}') == 1, what="only the neighbour's subscription")


HANDSHAKE = (
    b"GET /subscribe HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@st.composite
def frames(draw):
    """Return a frame (RFC 6455, 5.2) with errors in any part: reserved bits, opcode, mask, length."""
    payload = draw(
        st.binary(max_size=130) | MESSAGES.map(lambda text: text.encode() if isinstance(text, str) else text)
    )
    first = draw(st.integers(0, 255) | st.sampled_from([0x81, 0x82, 0x88, 0x89, 0x8A, 0x01, 0x80]))
    length = draw(st.just(len(payload)) | st.integers(0, 2**63))
    masked = draw(st.sampled_from([0x80, 0x80, 0x80, 0]))
    if length < 126:
        head = bytes([first, masked | length])
    elif length < 65536:
        head = bytes([first, masked | 126]) + length.to_bytes(2)
    else:
        head = bytes([first, masked | 127]) + length.to_bytes(8)
    return head + (b"\0\0\0\0" if masked else b"") + payload


@st.composite
def openings(draw):
    """Return the opening handshake with some bytes changed."""
    place = draw(st.integers(0, len(HANDSHAKE)))
    return HANDSHAKE[:place] + draw(st.binary(max_size=8)) + HANDSHAKE[place + draw(st.integers(0, 8)) :]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.just(HANDSHAKE) | openings() | st.binary(max_size=50), st.lists(frames(), max_size=5))
def test_broken_frames(harness, concurrent_client, opening, sent):
    with socket.create_connection(harness.address("ws"), 5) as client, contextlib.suppress(OSError):
        client.sendall(opening + b"".join(sent))
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    concurrent_client.check_notification()
    harness.is_sound()
