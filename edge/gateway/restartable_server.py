"""A gate on a port of its own: opened, closed, and opened anew where it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol


class Server(Protocol):
    """A gate that listens."""

    async def start(self) -> int:
        """Listen. Returns the port. Raises `OSError`."""

    async def stop(self) -> None:
        """End."""


class RestartableServer:
    """One of them."""

    def __init__(self, make: Callable[[int], Server], port: int, patience: float) -> None:
        """`make` gives a gate for a port. `patience`: seconds it has to close before it is opened anew."""
        self._make = make
        self._patience = patience
        self._server: Server | None = None
        self.port = port
        """Once it is open the one it found, where it was asked for any."""

    async def open(self) -> int:
        """Listen. Returns the port. Raises `OSError`."""
        self._server = self._make(self.port)
        self.port = await self._server.start()
        return self.port

    async def close(self) -> None:
        """Tell the clients, and end."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def reopen(self) -> None:
        """Close it as well as that goes, and listen again. Raises `OSError`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self.close()
        await self.open()
