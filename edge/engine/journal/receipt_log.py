"""The last committed receipts, as one sequence of bytes.

A receipt is opaque to the engine: its sender recognizes by it the updates that were carried out. All receipts of a
journal have the same length, and the limit is a multiple of it.

The exception is a part: two records at the end of the receipts of a commit, a count and the receipt of a message of
which only that number of readings is committed (`edge.adapters.redelivery`). The log holds the last part only. A large
message has many, and they must not displace the receipts of other messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

_BLOCK: Final = 4096
"""Bytes that are stored as one object. One object for each receipt would take eight times its size."""
_RECORD: Final = 6
"""Bytes of a record: packet identifier, digest."""
_PART: Final = 2 * _RECORD
_NO_IDENTIFIER: Final = b"\0\0"
_NEW_SESSION: Final = bytes(_RECORD)


class ReceiptLog:
    """Receipts in commit order. The oldest ones are dropped beyond a limit."""

    def __init__(self, limit: int, stored: Iterable[bytes] = ()) -> None:
        """`limit` in bytes, without the part."""
        self._limit = limit
        self._blocks: deque[bytes] = deque()
        self._size = 0
        self._part = b""
        """The count and the receipt of the partly processed message; empty: none."""
        for receipt in stored:
            self.append(receipt)

    def append(self, receipt: bytes) -> None:
        """Append the receipts of a commit."""
        if self._part and _ends(receipt, self._part):
            self._part = b""
        # Two zero bytes are a count or a new session. The check is here, because nearly all receipts have no part.
        if receipt[-_PART : 2 - _PART] == _NO_IDENTIFIER and not receipt.endswith(_NEW_SESSION, 0, -_RECORD):
            self._part = receipt[-_PART:]
            receipt = receipt[:-_PART]
            if not receipt:
                return
        if self._blocks and len(self._blocks[-1]) < _BLOCK:
            self._blocks[-1] += receipt
        else:
            self._blocks.append(receipt)
        self._size += len(receipt)
        while self._size - len(self._blocks[0]) >= self._limit:
            self._size -= len(self._blocks.popleft())

    def __bytes__(self) -> bytes:
        return b"".join(self._blocks)[-self._limit :] + self._part


def _ends(receipt: bytes, part: bytes) -> bool:
    """Whether receipts replace a part: they name its message, another one with its identifier, or a new session."""
    records = [receipt[at : at + _RECORD] for at in range(0, len(receipt), _RECORD)]
    identifier = part[_RECORD : _RECORD + 2]
    return any(record == _NEW_SESSION or record.startswith(identifier) for record in records)
