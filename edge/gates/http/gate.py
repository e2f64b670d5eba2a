"""The HTTP server: uvicorn inside the gateway's own event loop."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable

import uvicorn

from edge.compat.uvicorn import EmbeddedServer
from edge.gates.engine_interface import OperatedEngine
from edge.gates.guard import OPEN_GUARD, Guard, TokenIssuer
from edge.gates.http.app import Routes
from edge.gates.http.limits import limited_protocol
from edge.gates.http.views import Views
from edge.gates.origins import ANY
from edge.gates.rate_limit import RateLimit
from edge.gates.settings import QUERY_TIMEOUT, HttpGateSettings, LimitSettings
from edge.listener import AT_ONCE, HANDSHAKE, Listener
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
        rate_limit: RateLimit | None = None,
        authority: TokenIssuer | None = None,
        tls: ssl.SSLContext | None = None,
        query_timeout: float = QUERY_TIMEOUT,
        stop_timeout: float = 2.0,
    ) -> None:
        """Without `tls`: plain HTTP. `stop_timeout`: seconds for open requests to finish when the gate stops."""
        if tls is not None:
            settings = settings.model_copy(update={"hosts": (ANY,)})  # the certificate protects against DNS rebinding
        self._settings = settings
        self._stop_timeout = stop_timeout
        rate_limit = rate_limit or RateLimit(LimitSettings())
        self._routes = routes = Routes(
            engine, settings, metrics, views or Views(), guard, rate_limit, authority, query_timeout
        )
        self._app = routes.app()
        self._tls = tls
        self._connections = metrics.connections.labels("http" if tls is None else "https")
        self._server: EmbeddedServer | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen. Returns the port. Raises `OSError` if the address cannot be had."""
        settings = self._settings
        listener = Listener(settings.host, settings.port, settings.max_connections, settings.max_connections_of_one)
        protocol = limited_protocol(settings, listener)
        config = uvicorn.Config(
            self._app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ssl_context_factory=_always(self._tls) if self._tls is not None else None,
            timeout_keep_alive=math.ceil(settings.keep_alive),
            timeout_graceful_shutdown=math.ceil(self._stop_timeout),
        )
        server = EmbeddedServer(config, protocol, backlog=AT_ONCE, handshake=HANDSHAKE)
        self._connections.set_function(lambda: len(server.server_state.connections))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        with listener.closed_on_failure():
            try:
                await server.up
            except BaseException:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise
        self._server, self._task = server, task
        return listener.port

    async def stop(self) -> None:
        """Refuse new requests, give open ones the shutdown timeout to finish, and stop."""
        if self._server is None or self._task is None:
            return
        self._routes.close()
        self._server.should_exit = True
        await self._task
        self._server = None


def _always(context: ssl.SSLContext) -> Callable[..., ssl.SSLContext]:
    return lambda *_: context
