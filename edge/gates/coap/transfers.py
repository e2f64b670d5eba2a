"""What is on its way in blocks: the most recent transfers, up to a size."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from edge.engine.admission.byte_quota import ByteQuota, Charge

_LIFETIME: Final = 93.0
"""Seconds until what is not asked for any more is forgotten: MAX_TRANSMIT_WAIT (RFC 7252, 4.8.2)."""
_OVERHEAD: Final = 1000
"""Bytes that one takes beside its content."""


class Transfer:
    """One body on its way, and how much of it has gone."""

    def __init__(self, content: bytes, length: int = 0, *, notifies: bool = False) -> None:
        """`content`: what is kept. `length`: bytes that are to go. `notifies`: whether it is a notification."""
        self.content = content
        self.charge: Charge | None = None
        """What it counts for while it is kept."""
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
        return not self._over.is_set() and self.left > 0

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
                async with asyncio.timeout(self.left):
                    await self._over.wait()
        return self.whole

    @property
    def left(self) -> float:
        """Seconds that it is kept for if nobody asks for it."""
        return self._used + _LIFETIME - time.monotonic()


class Transfers:
    """Transfers by key. Where they become too much the one goes that nobody has asked for the longest."""

    def __init__(self, limit: int, quota: ByteQuota) -> None:
        """`limit` in bytes; `quota` is charged for them."""
        self._limit = limit
        self._quota = quota
        self._timer: asyncio.TimerHandle | None = None
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

    def put(self, key: Hashable, transfer: Transfer, account: str) -> None:
        """Keep one for an account, in place of what had this key. Raises `TooManyRequests`, and keeps neither."""
        self.take(key)
        transfer.charge = self._quota.charge(account, _OVERHEAD + len(transfer.content))
        self._kept[key] = transfer
        self._size += len(transfer.content)
        while self._kept and (self._size > self._limit or self._oldest_left <= 0):
            self.take(next(iter(self._kept)))
        self._wait()

    def take(self, key: Hashable) -> Transfer | None:
        """Keep it no longer."""
        transfer = self._kept.pop(key, None)
        if transfer is not None:
            self._size -= len(transfer.content)
            if transfer.charge is not None:
                transfer.charge.release()
            transfer.forget()
        return transfer

    def close(self) -> None:
        """Keep nothing any more."""
        for key in list(self._kept):
            self.take(key)
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        """Have the oldest one go in time, whether or not others come."""
        if self._kept and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, self._oldest_left), self._expire)

    def _expire(self) -> None:
        self._timer = None
        while self._kept and self._oldest_left <= 0:
            self.take(next(iter(self._kept)))
        self._wait()

    @property
    def _oldest_left(self) -> float:
        return next(iter(self._kept.values())).left
