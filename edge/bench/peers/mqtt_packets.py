"""The packets of MQTT 3.1.1 that a load generator needs. A client library would take more CPU time than the sides."""

from __future__ import annotations

import struct
from typing import Final

PUBLISH: Final = 3
"""Packet type of a message (MQTT 3.1.1, table 2.1)."""
_KEEPALIVE: Final = 600
"""Seconds; longer than any phase, so that no ping is needed."""


def connect(client_id: str) -> bytes:
    """Return a CONNECT with a clean session."""
    body = _text("MQTT") + bytes([4, 2]) + struct.pack(">H", _KEEPALIVE) + _text(client_id)
    return b"\x10" + _length(len(body)) + body


def subscribe(topic: str, qos: int) -> bytes:
    """Return a SUBSCRIBE with the packet identifier 1."""
    body = b"\x00\x01" + _text(topic) + bytes([qos])
    return b"\x82" + _length(len(body)) + body


def publish(topic: str, payload: bytes, qos: int, identifier: int) -> bytes:
    """Return a PUBLISH. The identifier (1 to 65,535) counts only with QoS 1."""
    body = _text(topic) + (struct.pack(">H", identifier) if qos else b"") + payload
    return bytes([0x30 | qos << 1]) + _length(len(body)) + body


def acknowledgement(identifier: bytes) -> bytes:
    """Return the PUBACK of a message."""
    return b"\x40\x02" + identifier


def message(first: int, body: bytes) -> tuple[bytes, bytes]:
    """Return the packet identifier (empty with QoS 0) and the payload of a PUBLISH with the first byte `first`."""
    at = 2 + int.from_bytes(body[:2], "big")
    if not first & 6:
        return b"", body[at:]
    return body[at : at + 2], body[at + 2 :]


def split(buffer: bytearray) -> list[tuple[int, bytes]]:
    """Remove the complete packets from the buffer. Return the first byte and the body of each."""
    packets, start = [], 0
    while (header := _header(buffer, start)) is not None:
        body, end = header
        if end > len(buffer):
            break
        packets.append((buffer[start], bytes(buffer[body:end])))
        start = end
    del buffer[:start]
    return packets


def _header(buffer: bytearray, start: int) -> tuple[int, int] | None:
    """Return where the body of a packet begins and ends; None if its header is incomplete."""
    length = 0
    for place, at in enumerate(range(start + 1, min(start + 5, len(buffer)))):
        length |= (buffer[at] & 0x7F) << 7 * place
        if buffer[at] < 0x80:
            return at + 1, at + 1 + length
    return None


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _length(length: int) -> bytes:
    """Encode a remaining length (MQTT 3.1.1, section 2.2.3)."""
    encoded = bytearray()
    while True:
        length, digit = divmod(length, 128)
        encoded.append(digit | (0x80 if length else 0))
        if not length:
            return bytes(encoded)
