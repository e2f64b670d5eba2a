"""Gates with their own ports: WebSocket and HTTP, each with and without TLS, and CoAP. The watchdog reopens them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gates.guard import TokenIssuer
from edge.gates.http import HttpGate, Views
from edge.gates.http.engine_future import not_ready
from edge.gates.ws import WsGate
from edge.gateway.bind import listening, url_host
from edge.gateway.client_services import ClientServices
from edge.gateway.errors import StartError
from edge.gateway.probes import coap_answers, http_answers
from edge.gateway.watchdog import Component
from edge.metrics import Metrics
from edge.protocol.addresses import is_loopback

if TYPE_CHECKING:
    from edge.gates.coap.contexts import SecurityContexts
    from edge.gates.http.streams import Streams
    from edge.security.tls import Tls

_KEYS: Final = {
    "ws": "ws.port",
    "http": "http.port",
    "wss": "security.wss_port",
    "https": "security.https_port",
    "coap": "coap.port",
}
"""Service to the setting of its port."""

TakeReading = Callable[[str, bytes], Coroutine[Any, Any, int]]
"""Takes a topic and a payload; returns the number of readings in it."""


class Gates:
    """All gates over one engine."""

    def __init__(
        self,
        settings: Settings,
        engine: Scheduler,
        services: ClientServices,
        metrics: Metrics,
        views: Views,
        take_reading: TakeReading,
        *,
        authority: TokenIssuer | None,
        contexts: SecurityContexts | None,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._services = services
        self._metrics = metrics
        self._views = views
        self._take_reading = take_reading
        self._authority = authority
        self._contexts = contexts
        self.endpoints: dict[str, str] = {}
        """Service to URL of the open gates."""
        self.parts: list[Component] = []
        """Components for the watchdog."""

    async def start(self, stack: AsyncExitStack) -> None:
        """Listen; `stack` stops the gates. Raises `StartError`."""
        http, ws, secure = self._settings.http, self._settings.ws, self._settings.security
        await self._open_ws(stack, "ws", ws.host, ws.port)
        await self._open_http(stack, "http", http.host, http.port)
        if (tls := self._services.tls) is not None:
            await self._open_ws(stack, "wss", secure.host, secure.wss_port, tls)
            await self._open_http(stack, "https", secure.host, secure.https_port, tls)
        if self._settings.coap.enabled:
            await self._open_coap(stack)

    async def _open_ws(self, stack: AsyncExitStack, service: str, host: str, port: int, tls: Tls | None = None) -> None:
        settings = self._settings
        context, name = (None, None) if tls is None else (tls.context, tls.name)

        def make(port: int) -> WsGate:
            return WsGate(
                self._services.sessions,
                settings.ws.model_copy(update={"host": host, "port": port}),
                self._metrics,
                guard=self._services.guard,
                rate_limit=self._services.rate_limit,
                resume_registry=self._services.resume_registry,
                tls=context,
                query_timeout=settings.engine.query_timeout,
                close_timeout=settings.shutdown.timeout * 0.2,
                streams=self._streams,
            )

        found = await self._open(stack, service, make, host, port, partial(http_answers, tls=tls is not None))
        path = "/subscribe" if tls is None else "/secure/subscribe"
        self.endpoints[service] = f"{service}://{url_host(host, name)}:{found}{path}"

    def _streams(self) -> Streams | None:
        """Return the RDF streams; None without them. Raises `NotReady` while the gateway starts or stops."""
        if not self._views.ready():
            raise not_ready()
        return self._views.streams()

    async def _open_http(
        self, stack: AsyncExitStack, service: str, host: str, port: int, tls: Tls | None = None
    ) -> None:
        settings = self._settings
        context, name = (None, None) if tls is None else (tls.context, tls.name)

        def make(port: int) -> HttpGate:
            return HttpGate(
                self._engine,
                settings.http.model_copy(update={"host": host, "port": port}),
                self._metrics,
                self._views,
                guard=self._services.guard,
                rate_limit=self._services.rate_limit,
                authority=self._authority,
                tls=context,
                query_timeout=settings.engine.query_timeout,
                stop_timeout=settings.shutdown.timeout * 0.2,
            )

        found = await self._open(stack, service, make, host, port, partial(http_answers, tls=tls is not None))
        self.endpoints[service] = f"{service}://{url_host(host, name)}:{found}"

    async def _open_coap(self, stack: AsyncExitStack) -> None:
        # Imported here: without CoAP, the gateway saves the memory and start-up time.
        from edge.gates.coap import CoapGate

        coap, root = self._settings.coap, self._settings.mqtt_gate.root
        plain = is_loopback(coap.host)
        if not plain and self._contexts is None:
            raise StartError(f'coap.host: "{coap.host}" is not a loopback address, which needs security.enabled')

        def make(port: int) -> CoapGate:
            return CoapGate(
                self._services.sessions,
                coap.model_copy(update={"port": port}),
                self._metrics,
                self._take_reading,
                guard=self._services.guard,
                rate_limit=self._services.rate_limit,
                contexts=self._contexts,
                own_topics=f"{root}/" if self._settings.runs_mqtt_gate else "",
                plain=plain,
                query_timeout=self._settings.engine.query_timeout,
                streams=self._streams,
            )

        found = await self._open(stack, "coap", make, coap.host, coap.port, coap_answers)
        self.endpoints["coap"] = f"coap://{url_host(coap.host)}:{found}"

    async def _open(
        self,
        stack: AsyncExitStack,
        service: str,
        make: Callable[[int], Server],
        host: str,
        port: int,
        answers: Callable[[str, int], Coroutine[Any, Any, None]],
    ) -> int:
        server = _RestartableServer(make, port, self._settings.shutdown.timeout)
        found = await listening(server.open, _KEYS[service], host, port)
        stack.push_async_callback(server.close)
        self.parts.append(Component(service, lambda: answers(host, found), server.reopen))
        return found


class Server(Protocol):
    """A gate that listens on a port."""

    async def start(self) -> int:
        """Start to listen. Returns the port. Raises `OSError`."""

    async def stop(self) -> None:
        """Stop."""


class _RestartableServer:
    """A server on its own port that can be closed and opened again on the same port."""

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
