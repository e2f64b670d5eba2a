"""Storage of blockwise transfers: the most recent ones, up to a size."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from edge.engine.admission.byte_quota import ByteQuota, Charge

_LIFETIME: Final = 93.0
"""Seconds until an unused transfer expires: MAX_TRANSMIT_WAIT (RFC 7252, section 4.8.2)."""
_OVERHEAD: Final = 1000
"""Memory of a transfer in bytes without its content."""


class BlockTransfer:
    """One blockwise transfer and its progress."""

    def __init__(self, content: bytes, length: int = 0, *, notifies: bool = False) -> None:
        """`content`: stored data. `length`: bytes to transfer. `notifies`: whether it is a notification."""
        self.content = content
        self.charge: Charge | None = None
        """Quota charge while it is stored."""
        self.notifies = notifies
        self.whole = False
        """Whether all blocks were transferred in order."""
        self._length = length
        self._gone = 0
        self._used = time.monotonic()
        self._over = asyncio.Event()

    @property
    def moves(self) -> bool:
        """Whether more blocks will probably be requested."""
        return not self._over.is_set() and self.left > 0

    def use(self) -> None:
        """Note a request for a block."""
        self._used = time.monotonic()

    def went(self, start: int, length: int) -> None:
        """Count a transferred block; blocks may be repeated."""
        # Only a block that continues the transferred part counts, so a client cannot skip blocks.
        if start <= self._gone < start + length:
            self._gone = start + length
        if self._gone >= self._length:
            self.whole = True
            self._over.set()

    def forget(self) -> None:
        """Mark the transfer as unavailable."""
        self._over.set()

    async def end(self) -> bool:
        """Wait until the transfer ends. Returns whether it is complete."""
        # Each request for a block extends the lifetime, so the deadline is computed again after a timeout.
        while self.moves:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.left):
                    await self._over.wait()
        return self.whole

    @property
    def left(self) -> float:
        """Seconds until it expires without further requests."""
        return self._used + _LIFETIME - time.monotonic()


class Transfers:
    """Transfers by key. When they exceed the limit, the least recently used one is dropped."""

    def __init__(self, limit: int, quota: ByteQuota) -> None:
        """`limit`: bytes of all transfers; `quota` is charged for them."""
        self._limit = limit
        self._quota = quota
        self._timer: asyncio.TimerHandle | None = None
        self._size = 0
        self._transfers: OrderedDict[Hashable, BlockTransfer] = OrderedDict()

    def find(self, key: Hashable) -> BlockTransfer | None:
        """Return the transfer of this key."""
        return self._transfers.get(key)

    def use(self, key: Hashable) -> BlockTransfer | None:
        """Return the transfer of this key, and mark it as used."""
        transfer = self._transfers.get(key)
        if transfer is not None:
            transfer.use()
            self._transfers.move_to_end(key)
        return transfer

    def put(self, key: Hashable, transfer: BlockTransfer, account: str) -> None:
        """Store a transfer in place of one with the same key. Raises `TooManyRequests`; then neither is stored."""
        self.take(key)
        # May raise; the transfer with the same key is removed by then, so the quota has its bytes.
        transfer.charge = self._quota.charge(account, _OVERHEAD + len(transfer.content))
        self._transfers[key] = transfer
        self._size += len(transfer.content)
        while self._transfers and (self._size > self._limit or self._oldest_left <= 0):
            self.take(next(iter(self._transfers)))
        self._wait()

    def take(self, key: Hashable) -> BlockTransfer | None:
        """Remove a transfer and return it."""
        transfer = self._transfers.pop(key, None)
        if transfer is not None:
            self._size -= len(transfer.content)
            if transfer.charge is not None:
                transfer.charge.release()
            transfer.forget()
        return transfer

    def close(self) -> None:
        """Remove all transfers."""
        for key in list(self._transfers):
            self.take(key)
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        """Schedule the expiry of the oldest transfer."""
        # One timer for all: they are ordered by last use, so the first one expires first.
        if self._transfers and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, self._oldest_left), self._expire)

    def _expire(self) -> None:
        self._timer = None
        while self._transfers and self._oldest_left <= 0:
            self.take(next(iter(self._transfers)))
        self._wait()

    @property
    def _oldest_left(self) -> float:
        return next(iter(self._transfers.values())).left
