"""A server on its own port that can be closed and opened again on the same port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol


class Server(Protocol):
    """A gate that listens on a port."""

    async def start(self) -> int:
        """Start to listen. Returns the port. Raises `OSError`."""

    async def stop(self) -> None:
        """Stop."""


class RestartableServer:
    """Opens, closes and reopens a server."""

    def __init__(self, make: Callable[[int], Server], port: int, patience: float) -> None:
        """`make` creates a server for a port. `patience`: seconds that it has to close before it is reopened."""
        self._make = make
        self._patience = patience
        self._server: Server | None = None
        self.port = port
        """The configured port; if that is 0, the actual port once it is open."""

    async def open(self) -> int:
        """Listen. Returns the port. Raises `OSError`."""
        self._server = self._make(self.port)
        self.port = await self._server.start()
        return self.port

    async def close(self) -> None:
        """Notify the clients and stop."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def reopen(self) -> None:
        """Close the server, as far as possible within `patience`, and listen again. Raises `OSError`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self.close()
        await self.open()
