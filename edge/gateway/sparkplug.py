"""Sparkplug B edge nodes: the host application as a component of the gateway."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from edge.adapters.settings import MqttSettings
from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.mappings import Mappings
from edge.gateway.progress import Progress
from edge.gateway.watchdog import Component
from edge.mapping.actuators import Command
from edge.metrics import Metrics
from edge.sparkplug.adapter import SparkplugAdapter

_FILE: Final = "sparkplug.json"
"""File in the data directory with the births."""


class Sparkplug:
    """The adapter, with the interface for mappings and actuators."""

    acknowledges = SparkplugAdapter.acknowledges

    def __init__(
        self, settings: Settings, connection: MqttSettings, engine: Scheduler, mappings: Mappings, metrics: Metrics
    ) -> None:
        """`connection`: how the gateway connects to its broker."""
        self._settings = settings
        self._connection = connection
        self._mappings = mappings
        self._progress = Progress(engine, "values")
        self.adapter = self._new()
        self.part = Component("sparkplug", self._prove, self._restart)
        """Component for the watchdog."""
        self._watch(metrics)

    async def start(self, stack: AsyncExitStack) -> None:
        """Connect; `stack` stops it."""
        await asyncio.to_thread(self._mappings.serve, self, self.faults)
        await asyncio.to_thread(self.adapter.start)
        stack.push_async_callback(self._stop)

    def faults(self) -> list[dict[str, object]]:
        """Parts of births that cannot be used: as `MappingFiles.faults`."""
        return self.adapter.host.faults()

    def takes(self, topic: str) -> bool:
        """Whether a topic is one of Sparkplug."""
        return self.adapter.takes(topic)

    def put(self, command: Command, interval: float) -> str:
        """Send a command; its topic then pauses for `interval` seconds. Returns the error; empty: accepted."""
        return self.adapter.put(command, interval)

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        self.adapter.withdraw(actuator)

    def health(self) -> dict[str, object]:
        """Edge node or device to "connected", "disconnected", or "refused" with the reason."""
        host = self.adapter.host
        states = {each: "connected" if is_up else "disconnected" for each, is_up in host.available.copy().items()}
        states |= {each: f"refused: {reason}" for each, reason in host.refused().items()}
        return {source.path: state for source, state in sorted(states.items())}

    def host_health(self) -> dict[str, object]:
        """State of the host application: identifier, connection, and the metrics of all births."""
        settings = self._settings.sparkplug
        metrics = sum(len(birth.metrics) for birth in self.adapter.host.births.known.copy().values())
        return {
            "id": settings.host_id,
            "primary": settings.primary,
            "connected": self.adapter.subscribed,
            "metrics": metrics,
        }

    def _new(self) -> SparkplugAdapter:
        mappings, actuation = self._mappings, self._mappings.actuation
        return SparkplugAdapter(
            self._settings.sparkplug,
            self._connection,
            self._settings.actuation,
            mappings.ingest,
            mappings.files.limits,
            self._settings.data_dir / _FILE,
            announce=partial(mappings.files.announce, source="sparkplug"),
            declare=mappings.files.declare,
            up=actuation.port_up,
            written=actuation.written,
            given_up=actuation.given_up,
        )

    async def _stop(self) -> None:
        await asyncio.to_thread(self.adapter.stop, self._settings.shutdown.timeout * 0.3)

    async def _prove(self) -> None:
        self._progress.prove(self.adapter)

    async def _restart(self) -> None:
        await self._stop()
        self.adapter = self._new()
        await asyncio.to_thread(self.adapter.start)

    def _watch(self, metrics: Metrics) -> None:
        watch = metrics.watch
        watch("sparkplug_connected", "Whether edge nodes are received.", lambda: self.adapter.subscribed)
        watch("sparkplug_nodes", "Known edge nodes.", lambda: self.adapter.host.nodes)
        watch(
            "sparkplug_available",
            "Edge nodes and devices that are available.",
            lambda: sum(self.adapter.host.available.copy().values()),
        )
        watch("sparkplug_received", "Messages of edge nodes.", lambda: self.adapter.received)
        watch("sparkplug_dropped", "Messages that found the queue full.", lambda: self.adapter.dropped)
        watch("sparkplug_queued", "Messages that wait.", lambda: self.adapter.queued)
        watch("sparkplug_rebirths", "Requests for a rebirth.", lambda: self.adapter.host.rebirths)
        watch("sparkplug_sent", "Commands that were sent.", lambda: self.adapter.sent)
        watch("sparkplug_failed", "Commands that could not be encoded.", lambda: self.adapter.failed)
