"""Packets that the embedded broker must refuse, and the time that a client has for its CONNECT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.adapters import broker_connect, broker_streams
from edge.adapters.broker import EmbeddedBroker
from edge.adapters.broker_auth import ANYBODY
from edge.adapters.broker_packets import content_fault
from edge.adapters.broker_streams import BoundedReader
from edge.adapters.settings import MqttSettings
from edge.security import certificates
from tests.support.examples import examples
from tests.support.waiting import PATIENCE, eventually

ACCEPTED = b"\x20\x02\x00\x00"
PING = b"\xc0\x00"


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return len(encoded).to_bytes(2) + encoded


def packet(first: int, body: bytes = b"") -> bytes:
    """Return a packet whose remaining length needs one byte (MQTT 3.1.1, section 2.2.3)."""
    assert len(body) < 128
    return bytes([first, len(body)]) + body


def connect(
    name: str | bytes = "one",
    flags: int = 2,
    rest: bytes = b"",
    *,
    protocol: str = "MQTT",
    level: int = 4,
    keep_alive: int = 60,
) -> bytes:
    return packet(0x10, text(protocol) + bytes([level, flags, 0, keep_alive]) + text(name) + rest)


class Everybody:
    """Authentication that accepts every client."""

    def admit(self, password, over):
        return ANYBODY


@pytest.fixture(params=[None, Everybody()], ids=["open", "with security"])
async def broker(request) -> AsyncIterator[EmbeddedBroker]:
    broker = EmbeddedBroker(MqttSettings(port=0, max_connections=4, max_message=10_000), request.param)
    await broker.start()
    await broker.open()
    yield broker
    await broker.stop()


async def answer(broker: EmbeddedBroker, *sent: bytes) -> bytes:
    """Return everything that the broker sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(b"".join(sent))
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := await asyncio.wait_for(reader.read(100), PATIENCE):
            received += data
    writer.close()
    return received


def faults(caplog) -> list[logging.LogRecord]:
    return [
        each
        for each in caplog.records
        if each.exc_info or each.levelno > logging.INFO or each.name.startswith(("amqtt", "asyncio"))
    ]


UNFINISHED = [b"", b"\x10", connect()[:6], connect()[:-1]]


@pytest.mark.parametrize("begun", UNFINISHED, ids=["silence", "a byte", "half", "all but a byte"])
async def test_a_connect_that_is_not_finished_in_time_ends_its_connection(broker, monkeypatch, caplog, begun):
    monkeypatch.setattr(broker_connect, "BEGIN", 0.1)
    assert await answer(broker, begun) == b""
    assert not faults(caplog)


async def test_unfinished_connects_take_no_place_from_a_client(broker):
    pending = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(30)]
    for _, writer in pending:
        writer.write(connect()[:6])
        await writer.drain()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(connect())
    assert await asyncio.wait_for(reader.readexactly(4), PATIENCE) == ACCEPTED
    for _, each in [*pending, (reader, writer)]:
        each.close()


async def test_unfinished_connects_take_no_place_from_the_clients_of_the_gateway(broker):
    port = int(broker.own_url.rpartition(":")[2])
    pending = [await asyncio.open_connection("127.0.0.1", port) for _ in range(160)]
    assert await asyncio.wait_for(pending[0][0].read(), PATIENCE) == b""  # another program: few sockets for it
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(connect(flags=0xC2, rest=text("gateway") + text(broker.own_secret)))
    assert await asyncio.wait_for(reader.readexactly(4), PATIENCE) == ACCEPTED
    for _, each in [*pending, (reader, writer)]:
        each.close()


async def test_unfinished_tls_handshakes_take_no_place_from_a_client(broker, certificate):
    server, client = certificate
    port = await broker.open_secure("127.0.0.1", 0, server)
    pending = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    writer.write(connect())
    assert await asyncio.wait_for(reader.readexactly(4), PATIENCE) == ACCEPTED
    for _, each in [*pending, (reader, writer)]:
        each.close()


async def test_the_time_for_a_connect_is_limited_with_tls_too(broker, monkeypatch, certificate):
    monkeypatch.setattr(broker_connect, "BEGIN", 0.1)
    server, client = certificate
    port = await broker.open_secure("127.0.0.1", 0, server)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    writer.write(connect()[:6])
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
    writer.close()


@pytest.fixture
def certificate(tmp_path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    files = certificates.make(tmp_path / "tls")
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(files.server, files.server_key)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


FIRST = {
    "PUBLISH": packet(0x30, text("a") + b"1"),
    "SUBSCRIBE": packet(0x82, b"\x00\x01" + text("a") + b"\x00"),
    "PINGREQ": packet(0xC0),
    "DISCONNECT": packet(0xE0),
    "the type of another packet": b"\x30",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00",
    "a will of QoS 3": connect(flags=2 | 4 | 0x18, rest=text("w") + text("x")),
    "a will of QoS 1 without a will": connect(flags=2 | 0x08),
    "a retained will without a will": connect(flags=2 | 0x20),
    "a password without a user name": connect(flags=2 | 0x40, rest=text("secret")),
    "the reserved flag": connect(flags=3),
    "another protocol": connect(protocol="MQTX"),
    "a will topic with NUL": connect(flags=6, rest=text("a\0") + text("x")),
    "an identifier with NUL": connect("a\0b"),
    "an identifier that is not UTF-8": connect(b"\xff"),
    "a missing will": connect(flags=6),
    "a missing user name": connect(flags=0x82),
    "bytes after the end": connect(rest=b"x"),
    "no content": packet(0x10),
}


@pytest.mark.parametrize("sent", FIRST.values(), ids=FIRST)
async def test_a_first_packet_that_is_no_valid_connect_ends_its_connection_at_once(broker, caplog, sent):
    caplog.set_level(logging.INFO)
    assert await answer(broker, sent) == b""
    assert [each.message for each in caplog.records if each.levelno == logging.INFO][-1] == "broker.bad_packet"
    assert not faults(caplog)


@pytest.mark.parametrize(
    "sent",
    [
        connect(protocol="MQIsdp", level=3),
        connect(level=5, rest=b"x"),
        connect(level=0x84, flags=0xFF),
    ],
    ids=["3.1", "5", "bridge"],
)
async def test_other_versions_are_refused_with_a_reason(broker, sent):
    assert await answer(broker, sent) == b"\x20\x02\x00\x01"


@pytest.mark.parametrize("topic", ["", "a/#", "+/a"])
async def test_a_will_without_a_possible_topic_is_refused(broker, topic):
    assert await answer(broker, connect(flags=6, rest=text(topic) + text("x"))) == b"\x20\x02\x00\x05"


VALID = {
    "an empty will message": connect(flags=6, rest=text("a") + text("")),
    "a retained will of QoS 2": connect(flags=6 | 0x30, rest=text("a") + text(b"\xff")),
    "a password of any bytes": connect(flags=0xC2, rest=text("") + text(b"\xff\0")),
    "no identifier": connect(""),
}


@pytest.mark.parametrize("sent", VALID.values(), ids=VALID)
async def test_a_valid_connect_is_accepted(broker, sent):
    assert await answer(broker, sent, packet(0xC0), packet(0xE0)) == ACCEPTED + b"\xd0\x00"


LATER = {
    "a second CONNECT": connect(),
    "CONNACK": ACCEPTED,
    "SUBACK": packet(0x90, b"\x00\x01\x00"),
    "UNSUBACK": packet(0xB0, b"\x00\x01"),
    "PINGRESP": packet(0xD0),
    "PUBLISH of QoS 1 with identifier 0": packet(0x32, text("a") + b"\x00\x00x"),
    "PUBLISH of QoS 2 with identifier 0": packet(0x34, text("a") + b"\x00\x00x"),
    "PUBLISH with DUP and QoS 0": packet(0x38, text("a") + b"x"),
    "PUBLISH without an identifier": packet(0x32, text("a")),
    "PUBLISH with +": packet(0x30, text("a/+") + b"x"),
    "PUBLISH with #": packet(0x30, text("#") + b"x"),
    "PUBLISH without a topic": packet(0x30, text("") + b"x"),
    "PUBLISH with NUL": packet(0x30, text("a\0b") + b"x"),
    "PUBLISH that is not UTF-8": packet(0x30, text(b"a\xff") + b"x"),
    "PUBLISH with a surrogate": packet(0x30, text(b"\xed\xa0\x80") + b"x"),
    "PUBLISH with a longer topic": packet(0x30, b"\x00\x09a"),
    "PUBLISH without content": packet(0x30),
    "SUBSCRIBE with identifier 0": packet(0x82, b"\x00\x00" + text("a") + b"\x00"),
    "SUBSCRIBE without filters": packet(0x82, b"\x00\x01"),
    "SUBSCRIBE without a QoS": packet(0x82, b"\x00\x01" + text("a")),
    "SUBSCRIBE with NUL": packet(0x82, b"\x00\x01" + text("a\0") + b"\x00"),
    "SUBSCRIBE to nothing": packet(0x82, b"\x00\x01" + text("") + b"\x00"),
    "UNSUBSCRIBE with identifier 0": packet(0xA2, b"\x00\x00" + text("a")),
    "UNSUBSCRIBE without filters": packet(0xA2, b"\x00\x01"),
    "UNSUBSCRIBE that is not UTF-8": packet(0xA2, b"\x00\x01" + text(b"\xff")),
    "PUBACK without content": packet(0x40),
    "PINGREQ with content": packet(0xC0, b"x"),
    "DISCONNECT with content": packet(0xE0, b"x"),
}


@pytest.mark.parametrize("sent", LATER.values(), ids=LATER)
async def test_a_later_packet_that_violates_the_standard_ends_its_connection(broker, caplog, sent):
    caplog.set_level(logging.INFO)
    assert await answer(broker, connect(), sent) == ACCEPTED
    assert [each.message for each in caplog.records].count("broker.bad_packet") == 1
    assert not faults(caplog)


async def test_the_will_of_a_client_that_violates_the_standard_is_published(broker):
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(connect("other") + packet(0x82, b"\x00\x01" + text("gone") + b"\x00"))
    assert await asyncio.wait_for(reader.readexactly(9), PATIENCE) == ACCEPTED + b"\x90\x03\x00\x01\x00"
    assert await answer(broker, connect(flags=6, rest=text("gone") + text("x")), packet(0xD0)) == ACCEPTED
    assert await asyncio.wait_for(reader.readexactly(9), PATIENCE) == packet(0x30, text("gone") + b"x")
    writer.close()


async def test_a_silent_client_is_disconnected_and_its_will_published(broker, monkeypatch, caplog):
    monkeypatch.setattr(broker_streams, "_SILENCE", 0.1)
    monkeypatch.setattr(broker_streams, "_GRACE", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(connect("watcher", keep_alive=0) + packet(0x82, b"\x00\x01" + text("will") + b"\x00"))
    assert (await asyncio.wait_for(reader.readexactly(9), PATIENCE))[:4] == ACCEPTED
    assert await answer(broker, connect("silent", 6, text("will") + text("gone"), keep_alive=1)) == ACCEPTED
    assert (await asyncio.wait_for(reader.readexactly(12), PATIENCE)).endswith(b"gone")
    assert not faults(caplog)
    writer.close()


@pytest.mark.parametrize("late", [False, True], ids=["in time", "while the process stood still"])
async def test_data_within_the_keep_alive_is_enough(monkeypatch, late):
    """The silence counts from the last data, and data that waits after a stall counts."""
    monkeypatch.setattr(broker_streams, "_SILENCE", 0.05)
    monkeypatch.setattr(broker_streams, "_GRACE", 0.05)
    cut: list[float] = []
    stream = asyncio.StreamReader()
    reader = BoundedReader(stream, 100)
    stream.feed_data(connect())
    assert await reader.first() == connect()
    reader.limit_silence(1, lambda: cut.append(asyncio.get_running_loop().time()))
    if late:
        time.sleep(0.2)  # noqa: ASYNC251  the event loop stands still
    stream.feed_data(PING)
    assert await reader.read(2) == PING
    read = asyncio.get_running_loop().time()
    await eventually(lambda: cut, "the end of a silent connection")
    assert cut[0] >= read + 0.05
    reader.end()


@pytest.mark.parametrize("sent", [b"", connect()[:6], connect(), connect() + b"\x30"], ids=["0", "6", "all", "more"])
async def test_a_reset_is_no_error(broker, caplog, sent):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", broker.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(sent)
    await answer(broker, connect(), packet(0xE0))
    await eventually(lambda: not broker._clients, "no connection that is left")
    assert not faults(caplog)


@settings(max_examples=examples(50))
@given(st.integers(0, 255), st.binary(max_size=100))
def test_any_content_is_judged(first, body):
    assert isinstance(content_fault(packet(first, body)), str)


@settings(max_examples=examples(30))
@given(st.lists(st.sampled_from([packet(0x30, text("a") + b"x" * 50), packet(0xC0)]), max_size=4))
def test_packets_survive_reads_that_are_cancelled(later):
    """amqtt cancels a read when the keep-alive has passed, and reads on."""
    stream = connect() + b"".join(later)

    async def read() -> bytes:
        source = asyncio.StreamReader()
        reader = BoundedReader(source, 1000)
        received = b""
        for byte in stream:
            task = asyncio.ensure_future(reader.read(1000))
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                received += await task
            source.feed_data(bytes([byte]))
        source.feed_eof()
        while data := await reader.read(1000):
            received += data
        return received

    assert asyncio.run(read()) == stream
