"""Redelivery of MQTT messages: receipts recognise the messages that a broker delivers again.

A broker delivers a message again if the connection, the gateway or the broker ended between the commit of the message
and its acknowledgement. It then has the same packet identifier and the DUP flag (MQTT 3.1.1 and 5, section 4.4). The
adapter therefore remembers the last message of each identifier, and stores the receipts in the commits of the
readings. No unacknowledged message is forgotten, because a session has at most 65,535 identifiers.

A killed broker may also fall back to an older state. It then delivers earlier messages without the DUP flag. Brokers
with ascending identifiers, such as Mosquitto, assign the same identifiers again: see `Receipts.repeats`.

A message with many readings is committed in parts. Each part but the last stores the number of readings that are
committed, and the receipt of the message (`part_of`). A later delivery continues after them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

RECEIPT: Final = 6
"""Bytes of a receipt: packet identifier, digest."""

NEW_SESSION: Final = bytes(RECEIPT)
"""Receipt that invalidates all earlier ones: 0 is not a packet identifier (MQTT 3.1.1, section 2.3.1)."""

IDENTIFIERS: Final = 65_535
"""Number of packet identifiers of a session; the one after the last is 1."""

_RECENT: Final = IDENTIFIERS - 8192
"""Distance within which a repeated identifier is recognised. The identifier of a new message may be up to 8,192 after
the last one: the broker dropped the messages between them, or they are not readings.
"""
_COUNTED: Final = 1024
_FEW: Final = 50
_FALLS: Final = 10
"""Number of non-ascending identifiers after which the broker counts as one without ascending identifiers. It may fall
back this often within its first messages.
"""


def receipt_of(identifier: int, topic: str, payload: bytes) -> bytes:
    """Return the receipt of a message, which is the same for a repeated delivery.

    The digest has 32 bits: it is compared with that of only one other message. A topic contains no zero byte (MQTT
    3.1.1, section 4.7.3).
    """
    digest = blake2b(topic.encode() + b"\0" + payload, digest_size=4).digest()
    return identifier.to_bytes(2, "big") + (digest if any(digest) else b"\0\0\0\1")


def part_of(count: int, receipt: bytes) -> bytes:
    """Return the two records for a message of which only the first `count` readings are committed.

    The first record is the count: its packet identifier is 0, and unlike `NEW_SESSION` it is not 0 itself. The second
    one is the receipt of the message. A message of QoS 0 has none, and nothing is stored.
    """
    return count.to_bytes(RECEIPT, "big") + receipt if receipt else b""


class Receipts:
    """The last processed message of each packet identifier of one session. Not thread-safe.

    In addition, it knows the message that is committed in part. There is one at most, because messages are processed
    in order.
    """

    def __init__(self, stored: bytes = b"") -> None:
        """`stored`: receipts from before the start, the oldest first."""
        self.clear()
        self.add(stored[start : start + RECEIPT] for start in range(0, len(stored) - RECEIPT + 1, RECEIPT))

    def clear(self) -> None:
        """Forget everything: in a new session, identifiers refer to other messages."""
        # One entry for each packet identifier (1 to 65,535), 256 KiB whatever the number of messages.
        self._digests = array("I", bytes(4 * (IDENTIFIERS + 1)))
        self._last = 0
        self._count = 0
        self._falls = 0
        self.partial = b""
        """Receipt of the message that is committed in part; empty: none."""
        self.committed = 0
        """Number of its readings that are committed."""

    def __bool__(self) -> bool:
        return self._last != 0 or self.committed != 0

    def __contains__(self, receipt: bytes) -> bool:
        return self._digests[_identifier(receipt)] == _digest(receipt)

    def add(self, receipts: Iterable[bytes]) -> None:
        """Remember messages that were processed and committed, and the records of a part (`part_of`)."""
        count = 0
        for receipt in receipts:
            identifier = _identifier(receipt)
            if not identifier:
                count = _digest(receipt)
                if not count:
                    self.clear()
                continue
            if count:
                # It is not complete, and an older message with its identifier may be equal.
                self._digests[identifier] = 0
                self.partial, self.committed = receipt, count
                count = 0
                continue
            if self.partial and _identifier(self.partial) == identifier:
                self.partial, self.committed = b"", 0
            self._count_order(identifier)
            self._last = identifier
            self._digests[identifier] = _digest(receipt)

    def repeats(self, receipt: bytes) -> bool:
        """Whether a message without the DUP flag, among the first of a connection, was processed before.

        Only a broker that fell back to an older state delivers such a message. If the broker's identifiers ascend, a
        recently used identifier reveals it, because the next new message has a later one. A new message that equals
        the one lost with the broker's state looks the same, and is dropped.
        """
        return receipt in self and self._ascending and self._is_recent(_identifier(receipt))

    def continues(self, receipt: bytes, *, again: bool, replaying: bool) -> bool:
        """Whether a message is the one that is committed in part.

        `again`: its DUP flag. `replaying`: it is among the first of a connection, as in `repeats`. No other message of
        a broker with ascending identifiers has this identifier so soon, except after the broker lost its state.
        """
        return receipt == self.partial and (again or (replaying and self._ascending))

    @property
    def _ascending(self) -> bool:
        """Whether the broker assigns ascending identifiers."""
        # At most one identifier in 50 may fall, after the first ten.
        return (self._falls - _FALLS) * _FEW <= self._count

    def _is_recent(self, identifier: int) -> bool:
        """Whether an identifier equals the last one or precedes it, considering the wrap-around."""
        return self._last != 0 and (self._last - identifier) % IDENTIFIERS < _RECENT

    def _count_order(self, identifier: int) -> None:
        self._falls += self._is_recent(identifier)
        self._count += 1
        # Halving lets old behaviour fade: a broker may be replaced by one that orders identifiers differently.
        if self._count >= _COUNTED:
            self._count //= 2
            self._falls //= 2


def _identifier(receipt: bytes) -> int:
    return int.from_bytes(receipt[:2], "big")


def _digest(receipt: bytes) -> int:
    return int.from_bytes(receipt[2:], "big")
