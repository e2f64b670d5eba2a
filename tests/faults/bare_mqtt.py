"""An MQTT 3.1.1 client that builds its packets itself, reads on request, and can vanish without a DISCONNECT."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from paho.mqtt.packettypes import PacketTypes

from tests.faults.device import ROOT


class BareDevice:
    """A client with a will and a clean session that subscribes to its responses at QoS 1."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, name: str, port: int, keepalive: int = 60) -> BareDevice:
        sock = socket.create_connection(("127.0.0.1", port), 20)
        # a small receive buffer: unread data does not stay in the kernel
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        reader, writer = await asyncio.open_connection(sock=sock, limit=16 * 1024)
        device = cls(name, reader, writer)
        will = _text(f"{ROOT}/status/{name}") + _text("offline")
        clean_with_will = b"\x04\x0e"
        device._send(PacketTypes.CONNECT, _text("MQTT") + clean_with_will + keepalive.to_bytes(2) + _text(name) + will)
        device._send(PacketTypes.SUBSCRIBE, b"\x00\x01" + _text(f"{ROOT}/response/{name}") + b"\x01", 2)
        while (await device._packet())[0] != PacketTypes.SUBACK:
            pass
        device._send(PacketTypes.PUBLISH, _text(f"{ROOT}/status/{name}") + b"online")
        return device

    async def subscribe(self, sparql: str, **members: Any) -> dict[str, Any]:
        message = json.dumps({"subscribe": {"sparql": sparql, **members}})
        self._send(PacketTypes.PUBLISH, _text(f"{ROOT}/request/{self.name}") + message.encode())
        return await self.notification()

    async def notification(self) -> dict[str, Any]:
        """Return the next notification and acknowledge it."""
        kind, body = await self._packet()
        while kind != PacketTypes.PUBLISH:
            kind, body = await self._packet()
        topic = int.from_bytes(body[:2]) + 2
        self._send(PacketTypes.PUBACK, body[topic : topic + 2])
        return json.loads(body[topic + 2 :])["notification"]

    async def publish_unreleased(self, topic: str, payload: bytes, number: int) -> None:
        """Publish with QoS 2, and wait for PUBREC."""
        self._send(PacketTypes.PUBLISH, _text(topic) + number.to_bytes(2) + payload, 4)
        await self._answer(PacketTypes.PUBREC, number)

    async def release(self, number: int) -> None:
        """Release such a message, and wait for PUBCOMP."""
        self._send(PacketTypes.PUBREL, number.to_bytes(2), 2)
        await self._answer(PacketTypes.PUBCOMP, number)

    async def _answer(self, kind: int, number: int) -> None:
        while await self._packet() != (kind, number.to_bytes(2)):
            pass

    def pause(self) -> None:
        """Stop reading."""
        self._writer.transport.pause_reading()

    def resume(self) -> None:
        self._writer.transport.resume_reading()

    def vanish(self) -> None:
        self._writer.transport.abort()

    def _send(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Send a packet with its remaining length as a variable byte integer (MQTT 3.1.1, section 2.2.3)."""
        length, rest = b"", len(body)
        while rest > 127:
            length += bytes([rest % 128 + 128])
            rest //= 128
        self._writer.write(bytes([kind << 4 | flags]) + length + bytes([rest]) + body)

    async def _packet(self) -> tuple[int, bytes]:
        async with asyncio.timeout(20):
            (first,) = await self._reader.readexactly(1)
            length, shift = 0, 0
            while (byte := (await self._reader.readexactly(1))[0]) > 127:
                length, shift = length | (byte & 127) << shift, shift + 7
            return first >> 4, await self._reader.readexactly(length | byte << shift)


def _text(value: str) -> bytes:
    return len(value).to_bytes(2) + value.encode()
