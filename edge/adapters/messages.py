"""MQTT messages: their decoding, and a bounded queue of messages for the engine."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime


@dataclass(slots=True, eq=False)
class MqttMessage:
    """One received MQTT message."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    mid: int
    received: datetime
    connection: int
    """Connection that may acknowledge it: the last one that delivered it."""
    receipt: bytes
    """Receipt that identifies a repeated delivery (`redelivery`); empty for QoS 0."""
    committed: int = 0
    """Number of its first readings that were committed after an earlier delivery."""
    historical: bool = False
    """Whether its readings are past ones that came late: they go to the history only."""

    @property
    def size(self) -> int:
        """Bytes that count towards the limit of the queue."""
        return len(self.topic) + len(self.payload)


class InvalidMessage(ValueError):
    """A PUBLISH packet is malformed."""


def decode(first: int, content: bytes, received: datetime, connection: int, *, five: bool) -> tuple[MqttMessage, bool]:
    """Decode a PUBLISH packet (MQTT 3.1.1 and 5, section 3.3). `five`: it is one of MQTT 5.

    Returns the message without receipt, and its DUP flag. Raises `InvalidMessage`.
    """
    qos = first >> 1 & 3
    at = 2 + int.from_bytes(content[:2], "big")
    # Not UTF-8 although the standard demands it: with replacement characters, the operator sees it as unmapped.
    topic = content[2:at].decode("utf-8", errors="replace")
    mid = 0
    if qos:
        mid = int.from_bytes(content[at : at + 2], "big")
        at += 2
    if five:
        at = _after_properties(content, at)
    if qos == 3 or at > len(content) or (qos and not mid):
        raise InvalidMessage("the broker sent an invalid PUBLISH packet")
    message = MqttMessage(topic, content[at:], qos, bool(first & 1), mid, received, connection, b"")
    return message, bool(first & 8)


def _after_properties(content: bytes, at: int) -> int:
    """Return the position after the properties, whose length is a variable byte integer (MQTT 5, section 1.5.5)."""
    length = 0
    for shift, byte in enumerate(content[at : at + 4]):
        length |= (byte & 127) << 7 * shift
        if byte < 128:
            return at + shift + 1 + length
    raise InvalidMessage("the broker sent a PUBLISH packet with invalid properties")


class MessageQueue:
    """Bounded queue of messages for the engine. Thread-safe."""

    def __init__(self, limit: int, max_bytes: int) -> None:
        """Limits: number of messages, and bytes of their topics and payloads; a single
        message may exceed the latter.
        """
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: deque[MqttMessage] = deque()
        self._lock = threading.Lock()
        self.closed = False
        """Whether it accepts no further messages."""

    def __len__(self) -> int:
        return len(self._messages)

    def offer(self, message: MqttMessage) -> bool:
        """Add a message if there is room. False: the queue is full or closed."""
        size = message.size
        with self._lock:
            fits = len(self._messages) < self._limit and self._bytes + size <= self._max_bytes
            # An empty queue takes any message: a larger one than the limit would otherwise block the connection
            # forever.
            if self.closed or (self._messages and not fits):
                return False
            self._messages.append(message)
            self._bytes += size
            return True

    def put(self, message: MqttMessage) -> None:
        """Add a message beyond the limits."""
        with self._lock:
            self._messages.append(message)
            self._bytes += message.size

    def take(self, limit: int) -> list[MqttMessage]:
        """Return up to `limit` messages."""
        with self._lock:
            if len(self._messages) <= limit:
                taken = list(self._messages)
                self._messages.clear()
                self._bytes = 0
            else:
                taken = [self._messages.popleft() for _ in range(limit)]
                self._bytes -= sum(message.size for message in taken)
            return taken

    def close(self) -> None:
        """Close the queue for new messages; waiting ones can still be taken."""
        self.closed = True
