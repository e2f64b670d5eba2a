"""The rules of the gateway: starts and stops them, with their documents and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack

from edge.automation.automation import Automation
from edge.config import Settings
from edge.engine.clock import SystemClock
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.recent import Recent
from edge.gateway.rule_documents import RuleDocuments
from edge.gateway.watchdog import Component, Stalled
from edge.metrics import Metrics
from edge.protocol.errors import EdgeError


class RunningRules:
    """The rules, while the gateway runs."""

    def __init__(self, settings: Settings, engine: Scheduler, recent: Recent | None, metrics: Metrics) -> None:
        """`recent`: None if the gateway keeps no recent values."""
        automation = Automation(
            engine, settings.automation, settings.rules_dir, SystemClock(settings.engine.trust_clock)
        )
        self.documents = RuleDocuments(automation, engine, recent, settings)
        self._automation = automation
        self._timeout = settings.shutdown.timeout * 0.2
        metrics.watch(
            "rule_situations",
            "Situations that rules have found and that have not ended.",
            lambda: sum(state.active for state in automation.states().values()),
        )
        metrics.watch(
            "rule_failures",
            "Updates of rules that failed since the start.",
            lambda: sum(state.tally.failed for state in automation.states().values()),
        )
        metrics.watch("rule_faults", "Rules that cannot be used.", lambda: len(automation.faults()))

    def start(self, stack: AsyncExitStack) -> Component:
        """Apply the rules; `stack` stops them."""
        self._automation.start()
        stack.push_async_callback(asyncio.to_thread, self._automation.stop, self._timeout)
        return Component("automation", self._prove, ends=True)

    def settle(self) -> None:
        """Wait until the rules are being subscribed."""
        with contextlib.suppress(EdgeError):  # they are tried again
            self._automation.look()

    def faults(self) -> list[dict[str, object]]:
        """Rules that cannot be used: `file` and `reason`."""
        return self._automation.faults()

    async def _prove(self) -> None:
        if not self._automation.alive:
            raise Stalled("its thread has ended")
