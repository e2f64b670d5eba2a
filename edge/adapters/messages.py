"""Messages on their way from an MQTT connection to the engine: a bounded queue."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime


@dataclass(slots=True, eq=False)
class MqttMessage:
    """One MQTT message as it came in."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    mid: int
    received: datetime
    connection: int
    """Which connection may acknowledge it: the last one it came over."""
    receipt: bytes
    """By which it is known when the broker delivers it again (`receipts`); empty with QoS 0."""
    started: threading.Event | None = None
    """Of a mark, which is no message: set when all before it are carried out and their receipts count no more."""


class Inbox:
    """A bounded queue of messages between the connection's thread and the one that writes. Thread-safe."""

    def __init__(self, limit: int, max_bytes: int) -> None:
        """At most `limit` messages wait, and their topics and payloads take `max_bytes`, unless it is one alone."""
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: deque[MqttMessage] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def offer(self, message: MqttMessage) -> bool:
        """Put it in if there is room. False: full or closed."""
        with self._changed:
            if self._closed or not self._has_room(message):
                return False
            self._put(message)
            return True

    def put(self, message: MqttMessage) -> bool:
        """Wait for room, then put it in. False: closed."""
        with self._changed:
            while not self._closed and not self._has_room(message):
                self._changed.wait()
            if self._closed:
                return False
            self._put(message)
            return True

    def _has_room(self, message: MqttMessage) -> bool:
        fits = len(self._messages) < self._limit and self._bytes + _size(message) <= self._max_bytes
        return fits or not self._messages

    def _put(self, message: MqttMessage) -> None:
        self._messages.append(message)
        self._bytes += _size(message)
        if len(self._messages) == 1:
            self._changed.notify_all()

    def take(self, limit: int) -> list[MqttMessage]:
        """Wait for messages, then take those that are there. Empty: closed, and nothing is left."""
        with self._changed:
            while not self._messages and not self._closed:
                self._changed.wait()
            taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
            self._bytes -= sum(map(_size, taken))
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Take in nothing more; what is there can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _size(message: MqttMessage) -> int:
    return len(message.topic) + len(message.payload)
