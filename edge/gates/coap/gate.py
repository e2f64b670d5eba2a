"""CoAP server: one UDP socket, and one session for each request and each subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edge.gates.coap.blocks import Blocks
from edge.gates.coap.contexts import ContextGuard, SecurityContexts
from edge.gates.coap.observe import ObserveRegistry
from edge.gates.coap.observer import Notifier
from edge.gates.coap.oscore_site import OscoreSite
from edge.gates.coap.quota import Quota
from edge.gates.coap.report_observer import ReportObservers
from edge.gates.coap.site import Readings, Site
from edge.gates.coap.transport import Endpoint
from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import OPEN_GUARD, Guard
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.rate_limit import RateLimit
from edge.gates.report_following import ReportSource
from edge.gates.sessions import Sessions
from edge.gates.settings import QUERY_TIMEOUT, CoapGateSettings, SessionLimits
from edge.metrics import Metrics

_GATE = "coap"
_OVERHEAD = 4096
"""Bytes of an encrypted request in addition to its body."""


class CoapGate:
    """The gate for constrained devices. `start` and `stop` belong to one event loop."""

    def __init__(
        self,
        engine: SessionEngine,
        settings: CoapGateSettings,
        metrics: Metrics,
        readings: Readings,
        *,
        guard: Guard = OPEN_GUARD,
        rate_limit: RateLimit | None = None,
        contexts: SecurityContexts | None = None,
        own_topics: str = "",
        plain: bool = True,
        query_timeout: float = QUERY_TIMEOUT,
        streams: Callable[[], ReportSource | None] = lambda: None,
    ) -> None:
        """`contexts`: OSCORE contexts of clients. Without OSCORE, tokens are accepted on loopback addresses only.

        `own_topics`: topic prefix of the MQTT gate, if there is one. `plain`: whether requests without OSCORE are
        accepted. `streams`: returns the RDF streams; None without them. Raises `NotReady` while the gateway starts.
        """
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._readings = readings
        self._guard = guard
        self._rate_limit = rate_limit
        self._contexts = contexts
        self._own_topics = own_topics
        self._plain = plain
        self._query_timeout = query_timeout
        self._streams = streams
        self._endpoint: Endpoint | None = None
        self._observations: ObserveRegistry
        self._reports: ReportObservers
        self._all_blocks: list[Blocks] = []

    async def start(self) -> int:
        """Listen. Returns the port. Raises `OSError` if the address is not available."""
        settings = self._settings
        shared = None if self._contexts is None else ContextGuard(self._guard, self._contexts)
        sessions = Sessions(
            self._engine,
            LoopDispatcher(asyncio.get_running_loop()),
            self._metrics,
            guard=shared or self._guard,
            gate=_GATE,
            limits=SessionLimits(
                max_message=2 * settings.max_message,  # the JSON form is longer than the body
                max_result=settings.max_result,
                query_timeout=self._query_timeout,
                # A session of CoAP has one request or one subscription. The limits of all clients are those of the
                # site.
                max_subscriptions=1,
                max_pending_requests=1,
                max_pending_answers=1,
                max_unmerged=0,
                merge_after=0.0,
                max_waiting=settings.max_result,
            ),
            rate_limit=self._rate_limit,
        )
        blocks = self._blocks(settings.max_message, settings.max_blocks, sessions)
        site = Site(
            sessions,
            blocks,
            self._readings,
            own_topics=self._own_topics,
            max_pending=settings.max_pending_requests,
            protected=shared is not None,
            streams=self._streams,
        )
        endpoint = Endpoint(site if shared is None else self._protected(site, sessions, shared))
        notifier = Notifier(endpoint, blocks, settings.ping_interval)
        quota = Quota(settings.max_subscriptions, "subscriptions", "coap.max_subscriptions")
        self._observations = ObserveRegistry(sessions, notifier, quota, patience=settings.follow_within)
        self._reports = ReportObservers(sessions, notifier, quota, self._streams)
        site.observations, site.reports = self._observations, self._reports
        port = await endpoint.open(settings.host, settings.port)
        self._endpoint = endpoint
        return port

    def _protected(self, site: Site, sessions: Sessions, guard: ContextGuard) -> OscoreSite:
        longest = self._settings.max_message + _OVERHEAD
        blocks = self._blocks(longest, 2 * longest, sessions)
        return OscoreSite(site, sessions, guard, blocks, plain=self._plain)

    def _blocks(self, max_body: int, max_kept: int, sessions: Sessions) -> Blocks:
        self._all_blocks.append(Blocks(max_body, max_kept, sessions.rate_limit.bytes))
        return self._all_blocks[-1]

    async def stop(self) -> None:
        """Notify the observers, and stop."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None:
            return
        await asyncio.gather(self._observations.stop(), self._reports.stop())
        await endpoint.close()
        while self._all_blocks:
            self._all_blocks.pop().close()
