"""Messages on their way from an MQTT connection to the engine: a bounded queue, and the receipts of what was done."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

_DIGEST = 8
_RECEIPT = 2 + _DIGEST


@dataclass(slots=True, eq=False)
class Message:
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
    """Packet identifier and digest of topic and payload: the same again if the broker delivers it again."""


def receipt_of(mid: int, topic: str, payload: bytes) -> bytes:
    """What a message is known by when it is delivered again. A topic holds no zero byte (MQTT 3.1.1, section 4.7.3)."""
    return mid.to_bytes(2, "big") + blake2b(topic.encode() + b"\0" + payload, digest_size=_DIGEST).digest()


class Receipts:
    """The messages carried out lately, to know those that a broker delivers again. Not thread-safe.

    A message is delivered again when the connection or this process ended between the commit and the acknowledgement:
    with the same packet identifier, topic and payload, and the DUP flag. As many are remembered as can be
    unacknowledged at a time, far fewer than the 65,535 after which identifiers come round.
    """

    def __init__(self, limit: int, stored: Iterable[bytes] = ()) -> None:
        """`stored`: blocks of receipts from before the start. They count until `limit` new ones are there."""
        self._limit = limit
        self._recent: OrderedDict[bytes, None] = OrderedDict()
        self._stored = {block[start : start + _RECEIPT] for block in stored for start in range(0, len(block), _RECEIPT)}

    def __contains__(self, receipt: bytes) -> bool:
        return receipt in self._recent or receipt in self._stored

    def add(self, receipts: Iterable[bytes]) -> None:
        """These messages are carried out and committed."""
        for receipt in receipts:
            self._recent[receipt] = None
            self._recent.move_to_end(receipt)
        while len(self._recent) > self._limit:
            self._recent.popitem(last=False)
            self._stored.clear()


class Inbox:
    """A bounded queue of messages between the connection's thread and the one that writes. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: deque[Message] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def offer(self, message: Message) -> bool:
        """Put it in if there is room. False: full or closed."""
        with self._changed:
            if self._closed or len(self._messages) >= self._limit:
                return False
            self._put(message)
            return True

    def put(self, message: Message) -> bool:
        """Wait for room, then put it in. False: closed."""
        with self._changed:
            while not self._closed and len(self._messages) >= self._limit:
                self._changed.wait()
            if self._closed:
                return False
            self._put(message)
            return True

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        if len(self._messages) == 1:
            self._changed.notify_all()

    def take(self, limit: int) -> list[Message]:
        """Wait for messages, then take those that are there. Empty: closed, and nothing is left."""
        with self._changed:
            while not self._messages and not self._closed:
                self._changed.wait()
            taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Take in nothing more; what is there can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
