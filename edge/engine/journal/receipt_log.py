"""The last committed receipts, as one sequence of bytes.

A receipt is opaque to the engine: its sender recognizes by it the updates that were carried out. All receipts of a
journal have the same length, and the limit is a multiple of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

_BLOCK: Final = 4096
"""Bytes that are stored as one object. One object for each receipt would take eight times its size."""


class ReceiptLog:
    """Receipts in commit order. The oldest ones are dropped beyond a limit."""

    def __init__(self, limit: int, stored: Iterable[bytes] = ()) -> None:
        """`limit` in bytes."""
        self._limit = limit
        self._blocks: deque[bytes] = deque()
        self._size = 0
        for receipt in stored:
            self.append(receipt)

    def append(self, receipt: bytes) -> None:
        """Append the receipts of a commit."""
        if self._blocks and len(self._blocks[-1]) < _BLOCK:
            self._blocks[-1] += receipt
        else:
            self._blocks.append(receipt)
        self._size += len(receipt)
        while self._size - len(self._blocks[0]) >= self._limit:
            self._size -= len(self._blocks.popleft())

    def __bytes__(self) -> bytes:
        return b"".join(self._blocks)[-self._limit :]
