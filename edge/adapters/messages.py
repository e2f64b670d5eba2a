"""Bounded queue of MQTT messages for the engine."""

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
    """Receipt that identifies a repeated delivery (`receipts`); empty for QoS 0."""
    started: threading.Event | None = None
    """Only for marks, which are not messages: set when all earlier messages are processed and their receipts are
    invalid.
    """


class Inbox:
    """Bounded queue between the connection's thread and the writer. Thread-safe."""

    def __init__(self, limit: int, max_bytes: int) -> None:
        """Limits: number of messages, and bytes of their topics and payloads; a single
        message may exceed the latter.
        """
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: deque[MqttMessage] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def offer(self, message: MqttMessage) -> bool:
        """Add a message if there is room. False: the queue is full or closed."""
        with self._changed:
            if self._closed or not self._has_room(message):
                return False
            self._put(message)
            return True

    def put(self, message: MqttMessage) -> bool:
        """Wait for room, then add a message. False: the queue is closed."""
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
        """Wait for messages, then return up to `limit`. Empty: the queue is closed and drained."""
        with self._changed:
            while not self._messages and not self._closed:
                self._changed.wait()
            taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
            self._bytes -= sum(map(_size, taken))
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Close the queue for new messages; waiting ones can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _size(message: MqttMessage) -> int:
    return len(message.topic) + len(message.payload)
