"""The gates that listen on ports of their own: WebSocket and HTTP, both also with TLS, and CoAP."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from edge.config import Settings
from edge.config.keys import is_loopback
from edge.config.parts import part
from edge.engine import Scheduler
from edge.gates.guard import Authority, Guard
from edge.gates.http import HttpGate, Views
from edge.gates.parking import Parking
from edge.gates.settings import CoapGateSettings, HttpGateSettings, WsGateSettings
from edge.gates.ws import WsGate
from edge.gateway.errors import StartError
from edge.gateway.listening import listening, url_host
from edge.metrics import Metrics

if TYPE_CHECKING:
    from edge.gates.coap.contexts import Contexts

TakeReading = Callable[[str, bytes], Coroutine[Any, Any, int]]
"""From a topic and a payload to the number of readings in it."""


class Gates:
    """All of them over one engine."""

    def __init__(
        self,
        settings: Settings,
        engine: Scheduler,
        metrics: Metrics,
        views: Views,
        take_reading: TakeReading,
        *,
        guard: Guard,
        parking: Parking,
        authority: Authority | None,
        contexts: Contexts | None,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._metrics = metrics
        self._views = views
        self._take_reading = take_reading
        self._guard = guard
        self._parking = parking
        self._authority = authority
        self._contexts = contexts
        self.endpoints: dict[str, str] = {}
        """Service to URL, of those that listen."""

    async def start(self, stack: AsyncExitStack, tls: SSLContext | None) -> None:
        """Listen; `stack` stops them. Without `tls` there are no secure ports. Raises `StartError`."""
        http, ws, secure = self._settings.http, self._settings.ws, self._settings.security
        await self._start_ws(stack, ws.host, ws.port)
        await self._start_http(stack, http.host, http.port)
        if tls is not None:
            await self._start_ws(stack, secure.host, secure.wss_port, tls)
            await self._start_http(stack, secure.host, secure.https_port, tls)
        if self._settings.coap.enabled:
            await self._start_coap(stack)

    async def _start_ws(self, stack: AsyncExitStack, host: str, port: int, tls: SSLContext | None = None) -> None:
        settings = self._settings
        gate = WsGate(
            self._engine,
            part(
                WsGateSettings,
                settings.ws,
                host=host,
                port=port,
                query_timeout=settings.engine.query_timeout,
                close_timeout=settings.shutdown.timeout * 0.2,
            ),
            self._metrics,
            guard=self._guard,
            parking=self._parking,
            tls=tls,
        )
        if tls is None:
            found = await listening(gate.start, "ws", host, port)
            self.endpoints["ws"] = f"ws://{url_host(host)}:{found}/subscribe"
        else:
            found = await listening(gate.start, "security", host, port, "wss_port")
            self.endpoints["wss"] = f"wss://{url_host(host)}:{found}/secure/subscribe"
        stack.push_async_callback(gate.stop)

    async def _start_http(self, stack: AsyncExitStack, host: str, port: int, tls: SSLContext | None = None) -> None:
        settings = self._settings
        gate = HttpGate(
            self._engine,
            part(
                HttpGateSettings,
                settings.http,
                host=host,
                port=port,
                query_timeout=settings.engine.query_timeout,
                shutdown_timeout=settings.shutdown.timeout * 0.2,
            ),
            self._metrics,
            self._views,
            guard=self._guard,
            authority=self._authority,
            tls=tls,
        )
        if tls is None:
            found = await listening(gate.start, "http", host, port)
            self.endpoints["http"] = f"http://{url_host(host)}:{found}"
        else:
            found = await listening(gate.start, "security", host, port, "https_port")
            self.endpoints["https"] = f"https://{url_host(host)}:{found}"
        stack.push_async_callback(gate.stop)

    async def _start_coap(self, stack: AsyncExitStack) -> None:
        # Memory and time that only who wants it pays for.
        from edge.gates.coap import CoapGate

        coap = self._settings.coap
        plain = is_loopback(coap.host)
        if not plain and self._contexts is None:
            raise StartError(f'coap.host: "{coap.host}" is not a loopback address, which needs security.enabled')
        settings = part(CoapGateSettings, coap, query_timeout=self._settings.engine.query_timeout, plain=plain)
        gate = CoapGate(
            self._engine, settings, self._metrics, self._take_reading, guard=self._guard, contexts=self._contexts
        )
        found = await listening(gate.start, "coap", coap.host, coap.port)
        self.endpoints["coap"] = f"coap://{url_host(coap.host)}:{found}"
        stack.push_async_callback(gate.stop)
