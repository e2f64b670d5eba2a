"""Shared state of a gate's sessions."""

from __future__ import annotations

import logging
import time
import uuid

from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import Guard, check
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.rate_limit import RateLimit, client_of
from edge.gates.resume import ResumeRegistry
from edge.gates.settings import LimitSettings, SessionLimits
from edge.metrics import Metrics
from edge.protocol.access import Access, Action
from edge.protocol.errors import EdgeError
from edge.protocol.messages import MAX_ALIAS

_log = logging.getLogger(__name__)


class Sessions:
    """Shared state of a gate's sessions: engine, dispatcher for engine threads, limits and metrics."""

    def __init__(
        self,
        engine: SessionEngine,
        bridge: LoopDispatcher,
        metrics: Metrics,
        *,
        guard: Guard,
        gate: str,
        limits: SessionLimits,
        rate_limit: RateLimit | None = None,
        resume_registry: ResumeRegistry | None = None,
        section: str = "",
        another: str = "open another connection",
        max_alias: int = MAX_ALIAS,
    ) -> None:
        """`rate_limit`: shared by all gates; None: one with default limits.

        `resume_registry`: holds subscriptions of lost connections; None: they end. `section`: the section of the
        settings with the limits, by default named like the gate. `another`: how a client gets one more session, for
        messages. `max_alias`: maximum length of an alias in characters.
        """
        self.engine = engine
        self.bridge = bridge
        self.metrics = metrics
        self.guard = guard
        self.gate = gate
        self.section = section or gate
        self.another = another
        self.max_alias = max_alias
        self.limits = limits
        self.rate_limit = rate_limit or RateLimit(LimitSettings())
        self.resume_registry = resume_registry or ResumeRegistry(engine, guard, metrics.suspended_subscriptions)
        self._notifications = metrics.notifications.labels(gate)
        self._uncounted = 0
        """Notifications that the metric does not contain yet."""
        self.merged = metrics.merged_notifications.labels(gate)
        self.active = metrics.subscriptions.labels(gate)

    def admit(self, authorization: str | None, peer: str, action: Action) -> Access:
        """Return the permissions of a client, and count its request, even if it is unauthenticated.

        `authorization` and `peer`: its token and its origin. Raises `Unauthorized`, `Forbidden`, `TooManyRequests`.
        """
        who = peer
        try:
            access = self.guard.access(authorization)
            who = client_of(access, peer)
        finally:
            self.rate_limit.request(who, time.monotonic())
        check(access, action)
        return access

    def notified(self) -> None:
        """Count a notification, by the end of this turn of the event loop."""
        if not self._uncounted:
            self.bridge.afterwards(self._count)
        self._uncounted += 1

    def _count(self) -> None:
        # Together, because the lock of the metric takes as long as formatting a small notification.
        self._notifications.inc(self._uncounted)
        self._uncounted = 0

    def answered(self, primitive: str, status: int, started: float) -> None:
        """Count the response to a request that arrived at `started` (`time.perf_counter`, seconds)."""
        self.metrics.answered(self.gate, primitive, status, time.perf_counter() - started)

    def as_error(self, failure: BaseException, alias: str | None) -> EdgeError:
        """Convert a failure to an error for the client. Unexpected ones are logged under an incident number."""
        if isinstance(failure, EdgeError):
            return failure.with_alias(alias)
        # The text of an unexpected error may contain data of other clients. The client gets the number only.
        incident = uuid.uuid4().hex[:12]
        self.metrics.internal_errors.inc()
        _log.error("internal error %s", incident, exc_info=failure)
        return EdgeError(f"Internal error {incident}: see the gateway's log", alias=alias)
