"""What is on its way in blocks: the most recent transfers, up to a size."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

_LIFETIME: Final = 93.0
"""Seconds until what is not asked for any more is forgotten: MAX_TRANSMIT_WAIT (RFC 7252, 4.8.2)."""


class Transfer:
    """One body on its way, and how much of it has gone."""

    def __init__(self, content: bytes, length: int = 0, *, notifies: bool = False) -> None:
        """`content`: what is kept. `length`: bytes that are to go. `notifies`: whether it is a notification."""
        self.content = content
        self.notifies = notifies
        self.whole = False
        """Whether all of it has gone, one block after the other."""
        self._length = length
        self._gone = 0
        self._used = time.monotonic()
        self._over = asyncio.Event()

    @property
    def moves(self) -> bool:
        """Whether more blocks of it will be asked for, as far as one can tell."""
        return not self._over.is_set() and self._left > 0

    def use(self) -> None:
        """Somebody asks for it."""
        self._used = time.monotonic()

    def went(self, start: int, length: int) -> None:
        """A block has gone; some come again."""
        if start <= self._gone < start + length:
            self._gone = start + length
        if self._gone >= self._length:
            self.whole = True
            self._over.set()

    def forget(self) -> None:
        """It cannot be asked for any more."""
        self._over.set()

    async def end(self) -> bool:
        """Wait until it does not move. Returns whether all of it has gone."""
        while self.moves:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._left):
                    await self._over.wait()
        return self.whole

    @property
    def _left(self) -> float:
        return self._used + _LIFETIME - time.monotonic()


class Transfers:
    """Transfers by key. Where they become too much the one goes that nobody has asked for the longest."""

    def __init__(self, limit: int) -> None:
        """In bytes."""
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[Hashable, Transfer] = OrderedDict()

    def find(self, key: Hashable) -> Transfer | None:
        """The transfer of this key."""
        return self._kept.get(key)

    def use(self, key: Hashable) -> Transfer | None:
        """The transfer of this key, which is asked for."""
        transfer = self._kept.get(key)
        if transfer is not None:
            transfer.use()
            self._kept.move_to_end(key)
        return transfer

    def put(self, key: Hashable, transfer: Transfer) -> None:
        """Keep one, in place of what had this key."""
        self.take(key)
        self._kept[key] = transfer
        self._size += len(transfer.content)
        while self._kept and (self._size > self._limit or not self._oldest_counts):
            self.take(next(iter(self._kept)))

    def take(self, key: Hashable) -> Transfer | None:
        """Keep it no longer."""
        transfer = self._kept.pop(key, None)
        if transfer is not None:
            self._size -= len(transfer.content)
            transfer.forget()
        return transfer

    @property
    def _oldest_counts(self) -> bool:
        return next(iter(self._kept.values()))._left > 0
