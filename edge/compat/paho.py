"""Private names of paho-mqtt's client. Checked with paho-mqtt 2.2.

By default, paho confirms QoS 2 before the application has seen the message. With manual acknowledgements, it never
answers a PUBREL after a restart (https://github.com/eclipse-paho/paho.mqtt.python/issues/382 names both).

Paho also reads each packet with three system calls, searches a callback for each topic, and sends each acknowledgement
with two more calls. `AcknowledgingClient` reads and acknowledges many messages with one call each. Its own loop waits
with `poll`, because `select` fails for descriptors above 1,023.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from paho.mqtt.client import Client
from paho.mqtt.enums import MessageType, MQTTErrorCode
from paho.mqtt.exception import MalformedPacket

Packet = tuple[int, bytes]
"""First byte of a packet (type and flags), and its content after the length (MQTT 3.1.1, section 2.2)."""

_BLOCK: Final = 65_536
"""Maximum bytes of one read."""
_LOOK: Final = 1.0
"""Maximum seconds between two checks of the keep-alive interval."""
_LENGTH_BYTES: Final = 4
"""Maximum bytes of a packet's length (MQTT 3.1.1, section 2.2.3)."""
_ACKNOWLEDGEMENTS: Final = {1: b"\x40\x02", 2: b"\x50\x02"}
"""QoS to the first bytes of its acknowledgement: PUBACK, PUBREC."""
_PUBCOMP: Final = b"\x70\x02"


class LoopWakeUp(Protocol):
    """Ends the loop's wait for the socket."""

    fd: int
    """Descriptor that is readable after `set`."""

    def set(self) -> None:
        """Wake the loop."""

    def clear(self) -> None:
        """Forget the wake-ups so far."""


class AcknowledgingClient(Client):
    """Reads messages in blocks, and confirms messages of any QoS with `acknowledge`.

    Confirmation of QoS 2 (PUBREC) after the commit is method B of MQTT 3.1.1, section 4.3.3.
    """

    on_publishes: Callable[[list[Packet]], None] | None = None
    """Receives the PUBLISH packets of each block, which paho does not see then. None: paho calls `on_message`."""

    reading = True
    """Whether to read from the socket. Pings are sent meanwhile, so that the broker keeps the connection."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - those of paho's client
        super().__init__(*args, **options)
        self._unread = bytearray()
        """The beginning of a packet that has not arrived completely."""
        # The socket is not thread-safe with TLS, and another thread must not send between two parts of a packet.
        # Reentrant: paho calls back while it sends.
        self._socket_lock = threading.RLock()

        self._wake_up: LoopWakeUp | None = None
        self._poll: select.poll | None = None
        self._polled: tuple[int, int] | None = None
        """Descriptor and events of the socket in `_poll`."""
        self._look_at = 0.0
        """Time at which the keep-alive interval is checked next."""

    def wake_by(self, wake_up: LoopWakeUp) -> None:
        """Set what ends the wait of the loop: other threads, and packets that they have queued."""
        self._wake_up = wake_up
        # With this callback, paho does not send packets of other threads itself.
        self.on_socket_register_write = lambda *_: wake_up.set()

    def replace_tls(self, context: ssl.SSLContext) -> None:
        """Use this context for the next connections. paho refuses a second one."""
        self._ssl_context = None
        self.tls_set_context(context)

    def reconnect(self) -> MQTTErrorCode:
        """Connect again. What has arrived of the previous connection is forgotten."""
        self._unread.clear()
        return super().reconnect()

    def acknowledge(self, messages: Iterable[tuple[int, int]]) -> None:
        """Acknowledge messages, given as (packet identifier, QoS), with one system call. Thread-safe."""
        packets = b""
        for mid, qos in messages:
            packets += _ACKNOWLEDGEMENTS[qos] + mid.to_bytes(2, "big")
        self._send(packets)

    def _send(self, packets: bytes) -> None:
        """Send packets at once if nothing waits; the rest is left to the loop."""
        with self._socket_lock:
            sent = 0
            if not self._out_packet:
                try:
                    sent = self._sock_send(packets)
                except OSError:
                    sent = 0  # the loop notices a lost connection
            if sent < len(packets):
                self._packet_queue(MessageType.PUBACK, packets[sent:], 0, 1)

    def _packet_write(self) -> MQTTErrorCode:
        with self._socket_lock:
            return super()._packet_write()

    def loop(self, timeout: float = 1.0) -> MQTTErrorCode:
        """Wait for the socket or a wake-up, at most `timeout` seconds. Then read one block, and send what waits."""
        if self._sock is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        if self.wait(max(0.0, min(timeout, self._look_at - time.monotonic()))):
            code = self.loop_read()
        if code == MQTTErrorCode.MQTT_ERR_SUCCESS and self._out_packet:
            code = self.loop_write()
        if code == MQTTErrorCode.MQTT_ERR_SUCCESS and (now := time.monotonic()) >= self._look_at:
            # The broker closes a connection that is silent for one and a half keep-alive intervals (MQTT 3.1.1,
            # section 3.1.2.10).
            self._look_at = now + min(_LOOK, self._keepalive / 4 or _LOOK)
            code = self.loop_misc()
        return code

    def wait(self, timeout: float) -> bool:
        """Wait for the socket or a wake-up, at most `timeout` seconds. Returns whether the socket is readable."""
        connection = self._sock
        wanted = None
        if connection is not None:
            if self.reading and isinstance(connection, ssl.SSLSocket) and connection.pending():
                return True
            events = (select.POLLIN if self.reading else 0) | (select.POLLOUT if self._out_packet else 0)
            # A descriptor without wanted events would still report the end of its connection, again and again.
            if events:
                wanted = connection.fileno(), events
        poll = self._poll
        if poll is None or wanted != self._polled:
            poll = self._register(wanted)
        readable = False
        for descriptor, found in poll.poll(timeout * 1000):
            if self._wake_up is not None and descriptor == self._wake_up.fd:
                self._wake_up.clear()
            else:
                readable = self.reading and found & ~select.POLLOUT != 0
        return readable

    def _register(self, wanted: tuple[int, int] | None) -> select.poll:
        """Return a poll object for the wake-up, and for these events of the socket. It is used until they change."""
        poll = self._poll = select.poll()
        if self._wake_up is not None:
            poll.register(self._wake_up.fd, select.POLLIN)
        if wanted is not None:
            poll.register(*wanted)
        self._polled = wanted
        return poll

    def loop_misc(self) -> MQTTErrorCode:
        """Send pings, and end the connection if the broker does not answer them."""
        if not self.reading:
            # The answers are not read.
            self._ping_t = 0.0
            self._last_bytes_received = time.monotonic()
        return super().loop_misc()

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read one block, and process its packets."""
        try:
            with self._socket_lock:
                data = self._sock_recv(_BLOCK)
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except OSError:
            data = b""
        if not data:
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        self._last_bytes_received = time.monotonic()
        try:
            code = self._process(data)
        except MalformedPacket:
            code = MQTTErrorCode.MQTT_ERR_PROTOCOL
        return self._loop_rc_handle(code) if code > 0 else code

    def _process(self, data: bytes) -> MQTTErrorCode:
        publishes: list[Packet] = []
        completed = b""
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        for packet in self._packets(data):
            kind = packet[0] & 0xF0
            if kind == MessageType.PUBLISH and self.on_publishes is not None:
                publishes.append(packet)
            elif kind == MessageType.PUBREL:
                # Also for an identifier from before a restart, which paho would not answer.
                completed += _PUBCOMP + _identifier(packet[1])
            else:
                self._pass_on(publishes)
                code = self._handle(packet)
                if code > 0 or self._sock is None:
                    return code
        if completed:
            self._send(completed)
        self._pass_on(publishes)
        return code

    def _pass_on(self, publishes: list[Packet]) -> None:
        if publishes and self.on_publishes is not None:
            self.on_publishes(publishes.copy())
            publishes.clear()

    def _handle(self, packet: Packet) -> MQTTErrorCode:
        """Let paho process a packet."""
        first, content = packet
        packet_of_paho = self._in_packet
        packet_of_paho["command"] = first
        packet_of_paho["packet"] = bytearray(content)
        packet_of_paho["remaining_length"] = len(content)
        packet_of_paho["pos"] = 0
        return self._packet_handle()

    def _packets(self, data: bytes) -> list[Packet]:
        """Return the complete packets, and keep the rest. Raises `MalformedPacket`."""
        block: bytes | bytearray = data
        if self._unread:
            self._unread += data
            block = self._unread
        packets: list[Packet] = []
        start, end = 0, len(block)
        while end - start >= 2:
            length, at = block[start + 1], start + 2
            if length > 127:
                found = _long_length(block, start + 1)
                if found is None:
                    break
                length, at = found
            if at + length > end:
                break
            packets.append((block[start], bytes(block[at : at + length])))
            start = at + length
        self._unread = bytearray(block[start:]) if start or not self._unread else self._unread
        return packets

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        """Run the handshake, and close the socket if it fails; paho leaves that to the garbage collector."""
        context = self._ssl_context
        if context is None:
            raise ValueError("TLS is not set up")
        return context.wrap_socket(tcp_sock, server_hostname=self._host)


def _identifier(content: bytes) -> bytes:
    if len(content) < 2:
        raise MalformedPacket("a packet has no identifier")
    return content[:2]


def _long_length(block: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """Return a length of several bytes and the position after it; None: it is incomplete. Raises `MalformedPacket`."""
    length = 0
    for shift, byte in enumerate(block[at : at + _LENGTH_BYTES]):
        length |= (byte & 127) << 7 * shift
        if byte < 128:
            return length, at + shift + 1
    if len(block) - at >= _LENGTH_BYTES:
        raise MalformedPacket("the length of a packet has more than four bytes")
    return None


def close_socket(client: Client) -> None:
    """Close the socket of an unfinished connection, which paho leaves to the garbage collector."""
    client._sock_close()
