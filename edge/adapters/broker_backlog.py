"""Back-pressure of the embedded broker: it stops reading devices while too much data waits for the gateway."""

from __future__ import annotations

import asyncio


class Backlog:
    """Bytes that wait for the gateway's own clients. The broker sets no limit for these, so that they lose nothing.

    While there are too many, devices are not read, and TCP slows them down.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting = 0
        self._room = asyncio.Event()
        self._room.set()

    def add(self, length: int) -> None:
        """Add to the number of waiting bytes; `length` may be negative."""
        self._waiting += length
        if self._waiting <= self._limit:
            self._room.set()
        else:
            self._room.clear()

    @property
    def full(self) -> bool:
        """Whether the number of bytes is at the limit or above."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until the number of bytes is below the limit."""
        await self._room.wait()
