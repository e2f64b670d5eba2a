"""Private names of uvicorn's server and of its HTTP/1.1 protocol over httptools. Checked with uvicorn 0.54.

uvicorn limits neither headers nor TLS handshakes (https://github.com/Kludex/uvicorn/issues/157), handles the signals of
the process, and does not report when it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from edge.compat.asyncio_transports import stop_accepting


class HookedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with a method to override for the begin of a request."""

    def request_started(self, cycle: RequestResponseCycle) -> None:
        """The application begins to answer a request, whose header is complete."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End, also after a reset: then uvicorn leaves a timer, which refers to the connection."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.request_started(cycle)
        super()._start_asgi_task(cycle, app)

    def _unsupported_upgrade_warning(self) -> None:
        """Do nothing: a server ignores upgrades that it does not support (RFC 9110, section 7.8)."""


class EmbeddedServer(uvicorn.Server):
    """uvicorn's server inside a larger process: without signal handlers, and with an event when it listens."""

    def __init__(
        self, config: uvicorn.Config, protocol: type[HttpToolsProtocol], *, backlog: int, handshake: float
    ) -> None:
        """`backlog`: connections accepted in a row. `handshake`: timeout of the TLS handshake in seconds."""
        self._exit = asyncio.Event()
        super().__init__(config)
        self._protocol = protocol
        self._backlog = backlog
        self._handshake = handshake
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it listens. Raises `OSError` where it cannot."""

    @property
    def should_exit(self) -> bool:
        """Whether the server ends, or has ended."""
        return self._exit.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        if value:
            self._exit.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """The same as in the base, with a limit for TLS handshakes, which it has none for."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            self.up.cancel()
            return
        config, loop = self.config, asyncio.get_running_loop()
        protocol = partial(self._protocol, config, self.server_state, self.lifespan.state)
        try:
            self.servers = [
                await loop.create_server(
                    protocol,
                    sock=listener,
                    backlog=self._backlog,
                    ssl=config.ssl,
                    ssl_handshake_timeout=self._handshake if config.ssl else None,
                )
                for listener in sockets or []
            ]
        except OSError as error:
            self.up.set_exception(error)
            raise
        self.started = True
        self.up.set_result(None)

    async def main_loop(self) -> None:
        """Renew the `Date` header once a second until the end, which the base would look for ten times a second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._exit.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End idle connections, and wait only if others have open requests: the base always pauses for 0.1 s."""
        await stop_accepting(self.servers)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # ended ones are removed
        for server in self.servers:
            server.close()
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
        else:
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signals."""
        yield
