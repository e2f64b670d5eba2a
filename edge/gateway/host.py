"""Host adapter: readings of the gateway's own machine."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from edge.adapters.host import HostAdapter
from edge.adapters.observations import Observations
from edge.config import Settings
from edge.gateway.watchdog import Component, Stalled
from edge.metrics import Metrics


class Host:
    """Runs the host adapter, and replaces it after a failure."""

    def __init__(self, settings: Settings, observations: Observations, metrics: Metrics) -> None:
        self._settings = settings.host
        self._patience = settings.shutdown.timeout * 0.2
        self._observations = observations
        self._adapter = self._new()
        self.part = Component("host", self._prove, self._restart)
        """Component for the watchdog."""
        metrics.watch("host_readings", "Readings of the gateway's own sensors.", lambda: self._adapter.readings)

    def start(self, stack: AsyncExitStack) -> None:
        """Start the adapter; `stack` stops it."""
        self._adapter.start()
        stack.push_async_callback(self._stop)

    def _new(self) -> HostAdapter:
        return HostAdapter(self._settings, self._observations)

    async def _stop(self) -> None:
        await asyncio.to_thread(self._adapter.stop, self._patience)

    async def _restart(self) -> None:
        await self._stop()
        self._adapter = self._new()
        self._adapter.start()

    async def _prove(self) -> None:
        if not self._adapter.alive:
            raise Stalled("its thread has ended")
