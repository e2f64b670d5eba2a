"""Subscribers of the results: plain sockets that note when each message arrived and decode nothing meanwhile."""

from __future__ import annotations

import base64
import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

from edge.bench.peers import mqtt_packets
from edge.bench.peers.peer_error import PeerError

_CHUNK: Final = 1 << 18
_PATIENCE: Final = 10.0
"""Time limit for the answers to CONNECT, SUBSCRIBE and the WebSocket handshake (s)."""
_CONTROL: Final = 8
"""WebSocket opcodes from here on are control frames (RFC 6455, section 5.5)."""
_PING: Final = 9


class Receiver(ABC):
    """Connection to the source of results."""

    def __init__(self, port: int) -> None:
        """Connect to `port` on loopback."""
        self.socket = tcp(port)
        self.messages: list[tuple[float, bytes]] = []
        """All messages with the time of their arrival (`time.perf_counter`)."""
        self._buffer = bytearray()

    def read(self) -> None:
        """Read once from the socket. Raises `PeerError` if the other end has closed the connection."""
        data = self.socket.recv(_CHUNK)
        now = time.perf_counter()
        if not data:
            raise PeerError("the connection for the results was closed")
        self._buffer += data
        self.messages += [(now, payload) for payload in self._payloads()]

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    @abstractmethod
    def _payloads(self) -> Iterator[bytes]:
        """Remove the complete messages from the buffer and yield their payloads."""


class MqttReceiver(Receiver):
    """Subscriber at the broker."""

    def __init__(self, port: int, topic: str, qos: int) -> None:
        super().__init__(port)
        self.socket.sendall(mqtt_packets.connect("peers-results") + mqtt_packets.subscribe(topic, qos))
        answers: list[tuple[int, bytes]] = []
        while len(answers) < 2:  # CONNACK and SUBACK
            self._buffer += self.socket.recv(_CHUNK)
            answers += mqtt_packets.split(self._buffer)
        if answers[0][1][1] or answers[1][1][2] > 2:
            raise PeerError("the broker refuses the subscriber of the results")

    def _payloads(self) -> Iterator[bytes]:
        acknowledgements = b""
        for first, body in mqtt_packets.split(self._buffer):
            if first >> 4 == mqtt_packets.PUBLISH:
                identifier, payload = mqtt_packets.message(first, body)
                if identifier:
                    acknowledgements += mqtt_packets.acknowledgement(identifier)
                yield payload
        if acknowledgements:
            self.socket.sendall(acknowledgements)


class WebSocketReceiver(Receiver):
    """WebSocket client (RFC 6455) without extensions."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(port)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._buffer:
            data = self.socket.recv(_CHUNK)
            if not data:
                raise PeerError("the server closed the connection during the WebSocket handshake")
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise PeerError(f"the server refuses a WebSocket at {path}: {head[:80].decode(errors='replace')}")
        self._fragments = b""

    def send(self, payload: bytes, opcode: int = 1) -> None:
        """Send one frame."""
        length = len(payload)
        if length < 126:
            size = bytes([0x80 | length])
        elif length < 1 << 16:
            size = b"\xfe" + struct.pack(">H", length)
        else:
            size = b"\xff" + struct.pack(">Q", length)
        # A client must mask its frames (RFC 6455, section 5.3). The mask 0 leaves the payload as it is.
        self.socket.sendall(bytes([0x80 | opcode]) + size + b"\0\0\0\0" + payload)

    def _payloads(self) -> Iterator[bytes]:
        start = 0
        while (frame := _frame(self._buffer, start)) is not None:
            body, end = frame
            first, payload = self._buffer[start], bytes(self._buffer[body:end])
            start = end
            if first & 15 == _PING:
                self.send(payload, 10)
            elif first & 15 < _CONTROL:
                self._fragments += payload
                if first & 0x80:
                    yield self._fragments
                    self._fragments = b""
        del self._buffer[:start]


def _frame(buffer: bytearray, start: int) -> tuple[int, int] | None:
    """Return where the payload of a frame of a server begins and ends; None if the frame is incomplete."""
    available = len(buffer) - start
    if available < 2:
        return None
    length, body = buffer[start + 1] & 0x7F, start + 2
    extended = {126: 2, 127: 8}.get(length, 0)
    if extended:
        if available < 2 + extended:
            return None
        length, body = int.from_bytes(buffer[body : body + extended], "big"), body + extended
    return (body, body + length) if body + length <= len(buffer) else None


def tcp(port: int) -> socket.socket:
    """Connect to `port` on loopback, without Nagle's algorithm."""
    connection = socket.create_connection(("127.0.0.1", port), _PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
