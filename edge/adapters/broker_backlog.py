"""Back-pressure of the embedded broker: devices are read no further while too much waits for the gateway itself."""

from __future__ import annotations

import asyncio


class Backlog:
    """Bytes that wait for the gateway's own clients, for which the broker knows no limit: they lose nothing.

    While there are too many, devices are read no further, and TCP holds them back.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting = 0
        self._room = asyncio.Event()
        self._room.set()

    def add(self, length: int) -> None:
        """More bytes wait, or fewer."""
        self._waiting += length
        if self._waiting <= self._limit:
            self._room.set()
        else:
            self._room.clear()

    async def room(self) -> None:
        """Wait until there is room for more."""
        await self._room.wait()
