"""The private names of paho-mqtt exist and are used as `edge.compat.paho` expects."""

import socket

import pytest
from paho.mqtt import client as library
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.exception import MalformedPacket

from edge.compat import paho as compat
from edge.wake_up import WakeUp
from tests.support.private_names import check_attributes, check_parameters, check_used

OVERRIDDEN = {
    "loop_misc": [],
    "loop_read": ["max_packets"],
    "reconnect": [],
    "_packet_write": [],
    "_ssl_wrap_socket": ["tcp_sock"],
}
CALLED = {
    "_packet_handle": [],
    "_packet_queue": ["command", "packet", "mid", "qos", "info"],
    "_loop_rc_handle": ["rc"],
    "_sock_recv": ["bufsize"],
    "_sock_send": ["buf"],
    "_sock_close": [],
}
MESSAGE = b"\x34\x06\x00\x01a\x00\x07x"
"""PUBLISH of QoS 2: topic "a", packet identifier 7, payload "x"."""


class Wire:
    """A socket: the blocks to read, and what was sent. It takes `room` bytes."""

    def __init__(self, *blocks: bytes, room: int = 1000) -> None:
        self.blocks = list(blocks)
        self.sent = b""
        self.room = room

    def recv(self, size: int) -> bytes:
        if not self.blocks:
            raise BlockingIOError
        block = self.blocks.pop(0)
        assert len(block) <= size
        return block

    def send(self, data: bytes) -> int:
        taken = data[: self.room - len(self.sent)]
        if not taken:
            raise BlockingIOError
        self.sent += taken
        return len(taken)

    def close(self) -> None:
        pass


def client_on(wire: Wire) -> tuple[compat.AcknowledgingClient, list[list[compat.Packet]]]:
    client = compat.AcknowledgingClient(CallbackAPIVersion.VERSION2, manual_ack=True)
    client.on_socket_register_write = lambda *_: None
    client._sock = wire
    received: list[list[compat.Packet]] = []
    client.on_publishes = received.append
    return client, received


def test_the_client_has_and_calls_the_overridden_methods():
    check_parameters("paho-mqtt", compat, Client, {**OVERRIDDEN, **CALLED})
    check_used("paho-mqtt", compat, library, *(f"self.{name}(" for name in OVERRIDDEN if name != "reconnect"))
    # Only paho's own loops create the wake-up pair that nobody would close here.
    check_used("paho-mqtt", compat, Client.loop, "_socketpair_compat()")
    client = Client(CallbackAPIVersion.VERSION2)
    check_attributes(
        "paho-mqtt",
        compat,
        client,
        *(
            "_in_packet",
            "_out_packet",
            "_sock",
            "_last_bytes_received",
            "_keepalive",
            "_ping_t",
            "_ssl_context",
            "_host",
        ),
    )


def test_the_packets_of_a_block_come_together_and_a_part_waits_for_its_rest():
    client, received = client_on(Wire(MESSAGE * 2 + MESSAGE[:3], MESSAGE[3:]))
    assert client.loop_read() == MQTTErrorCode.MQTT_ERR_SUCCESS
    assert client.loop_read() == MQTTErrorCode.MQTT_ERR_SUCCESS
    assert client.loop_read() == MQTTErrorCode.MQTT_ERR_SUCCESS
    packet = (0x34, MESSAGE[2:])
    assert received == [[packet, packet], [packet]]


@pytest.mark.parametrize("size", [1, 5, 300, 65_536])
def test_a_stream_gives_the_same_packets_for_all_block_sizes(size):
    contents = [b"", b"x" * 127, b"x" * 128, b"x" * 20_000, b"x" * (200_000 if size > 5 else 300), b"x"]
    stream = b"".join(b"\x30" + client_length(len(content)) + content for content in contents)
    blocks = [stream[at : at + size] for at in range(0, len(stream), size)]
    client, received = client_on(Wire(*blocks))
    for _ in blocks:
        assert client.loop_read() == MQTTErrorCode.MQTT_ERR_SUCCESS
    assert [content for packets in received for _, content in packets] == contents


def client_length(length: int) -> bytes:
    packed = bytearray()
    Client(CallbackAPIVersion.VERSION2)._pack_remaining_length(packed, length)
    return bytes(packed)


@pytest.mark.parametrize("block", [b"\x30\xff\xff\xff\xff\x01", b"\x62\x00", b"\x00\x00", b""])
def test_an_invalid_packet_or_the_end_closes_the_connection(block):
    client, _ = client_on(Wire(block))
    assert client.loop_read() > 0
    assert client._sock is None


def test_paho_processes_the_other_packets_and_the_messages_without_on_publishes():
    client, _ = client_on(Wire(MESSAGE.replace(b"\x34", b"\x32") + b"\x20\x02\x00\x05"))
    messages: list[MQTTMessage] = []
    refused: list[bool] = []
    client.on_publishes = None
    client.on_message = lambda _, __, message: messages.append(message)
    client.on_connect = lambda _, __, ___, reason, ____: refused.append(reason.is_failure)
    client.loop_read()
    assert [(message.topic, message.payload, message.mid) for message in messages] == [("a", b"x", 7)]
    assert refused == [True]


def test_a_message_of_qos_2_is_confirmed_when_it_is_acknowledged_and_completed_when_the_broker_releases_it():
    wire = Wire(MESSAGE, b"\x62\x02\x00\x07" * 2)
    client, received = client_on(wire)
    client.loop_read()
    assert len(received) == 1
    assert wire.sent == b""
    client.acknowledge([(7, 2), (8, 1)])
    assert wire.sent == b"\x50\x02\x00\x07\x40\x02\x00\x08", "PUBREC, PUBACK"
    wire.sent = b""
    client.loop_read()
    assert wire.sent == b"\x70\x02\x00\x07" * 2, "PUBCOMP"


def test_acknowledgements_that_do_not_fit_are_sent_by_the_loop_in_order():
    wire = Wire(room=6)
    client, _ = client_on(wire)
    client.acknowledge([(1, 1), (2, 1)])
    client.acknowledge([(3, 1)])
    assert client.want_write()
    wire.room = 100
    client.loop_write()
    assert wire.sent == b"\x40\x02\x00\x01\x40\x02\x00\x02\x40\x02\x00\x03"


def test_a_malformed_length_is_an_error():
    with pytest.raises(MalformedPacket):
        client_on(Wire())[0]._packets(b"\x30\x80\x80\x80\x80")


def test_pings_continue_while_nothing_is_read():
    wire = Wire()
    client, _ = client_on(wire)
    client._state = library._ConnectionState.MQTT_CS_CONNECTED
    client.reading = False
    for _ in range(3):
        client._last_msg_out -= 2 * client.keepalive
        client._ping_t -= 2 * client.keepalive
        assert client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS
        client.loop_write()
    assert wire.sent == b"\xc0\x00" * 3, "PINGREQ"
    client.reading = True
    client._ping_t -= 2 * client.keepalive
    client._last_bytes_received -= 2 * client.keepalive
    assert client.loop_misc() == MQTTErrorCode.MQTT_ERR_CONN_LOST


def test_another_thread_and_its_packets_end_the_wait_of_the_loop():
    near, far = socket.socketpair()
    with near, far:
        client, received = client_on(near)
        near.setblocking(False)
        wake_up = WakeUp()
        client.wake_by(wake_up)
        wake_up.set()
        assert not client.wait(60)
        client._send_pingreq()
        client._out_packet.clear()
        assert not client.wait(60), "a packet was queued"
        far.send(MESSAGE)
        client.reading = False
        assert not client.wait(0)
        client.reading = True
        assert client.wait(60)
        client.loop_read()
        assert len(received) == 1
        wake_up.close()


def test_the_keep_alive_interval_is_checked_four_times_in_it(monkeypatch):
    client, _ = client_on(Wire())
    client._keepalive = 1
    waits: list[float] = []
    monkeypatch.setattr(client, "wait", lambda timeout: waits.append(timeout) or False)
    client.loop(1.0)
    client.loop(1.0)
    assert waits[0] == 0
    assert 0 < waits[1] <= 0.25
