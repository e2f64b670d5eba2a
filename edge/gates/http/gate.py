"""The HTTP server: uvicorn inside the gateway's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Callable, Iterator

import uvicorn

from edge.gates.allowance import Allowance
from edge.gates.engine import OperatedEngine
from edge.gates.guard import OPEN_GUARD, Authority, Guard
from edge.gates.http.app import Routes, Views
from edge.gates.http.limits import limited_protocol
from edge.gates.settings import HttpGateSettings, LimitSettings
from edge.metrics import Metrics


class HttpGate:
    """The gate for queries, updates, the page, health and metrics. `start` and `stop` belong to one event loop."""

    def __init__(
        self,
        engine: OperatedEngine,
        settings: HttpGateSettings,
        metrics: Metrics,
        views: Views | None = None,
        *,
        guard: Guard = OPEN_GUARD,
        allowance: Allowance | None = None,
        authority: Authority | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Without `tls`: plain HTTP."""
        self._settings = settings
        allowance = allowance or Allowance(LimitSettings())
        self._app = Routes(engine, settings, metrics, views or Views(), guard, allowance, authority).app()
        self._tls = tls
        self._connections = metrics.connections.labels("http" if tls is None else "https")
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen. Returns the port. Raises `OSError` if the address cannot be had."""
        settings = self._settings
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=100)
        # asyncio leaves Nagle's algorithm on for connections of a socket that was made so, and every answer but the
        # first of a connection would wait 40 ms for a delayed acknowledgement. They inherit this option.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            self._app,
            http=limited_protocol(settings),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ssl_context_factory=_always(self._tls) if self._tls is not None else None,
            timeout_keep_alive=math.ceil(settings.keep_alive),
            timeout_graceful_shutdown=math.ceil(settings.shutdown_timeout),
        )
        self._server = _Server(config)
        self._connections.set_function(lambda: len(server.server_state.connections))
        server = self._server
        self._task = asyncio.create_task(server.serve(sockets=[listener]))
        await server.up.wait()
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Take no more requests, give the open ones the shutdown timeout to end, and end."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        await self._task
        self._server = None


def _always(context: ssl.SSLContext) -> Callable[..., ssl.SSLContext]:
    return lambda *_: context


class _Server(uvicorn.Server):
    """uvicorn's server as a part of a process: signals are the process's business, and it tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
