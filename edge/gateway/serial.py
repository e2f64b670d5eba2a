"""Serial ports that mapping files declare."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.mappings import Mappings
from edge.gateway.progress import Progress
from edge.gateway.watchdog import Component
from edge.mapping.actuators import Command
from edge.mapping.mapper import Mapper
from edge.mapping.serial_ports import SerialPort, port_of
from edge.metrics import Metrics

if TYPE_CHECKING:
    from edge.adapters.serial import SerialAdapter
    from edge.adapters.serial_port import Port


class Serial:
    """The ports, and the adapter that serves them. The adapter is created with the first port."""

    def __init__(self, settings: Settings, engine: Scheduler, mappings: Mappings, metrics: Metrics) -> None:
        self._settings = settings
        self._patience = settings.shutdown.timeout * 0.4
        self._mappings = mappings
        self._lock = threading.Lock()
        self._wanted: dict[str, SerialPort] = {}
        self._faults: list[dict[str, object]] = []
        self._adapter: SerialAdapter | None = None
        self._ended = False
        self._progress = Progress(engine, "frames")
        self.part = Component("serial", self._prove, self._restart)
        """Component for the watchdog."""
        self._watch(metrics)

    async def start(self, stack: AsyncExitStack) -> None:
        """Follow the mapping files; `stack` stops it."""
        stack.push_async_callback(asyncio.to_thread, self._end)
        await asyncio.to_thread(self._mappings.serve, self)

    acknowledges = False
    """A serial line has no acknowledgements: a command counts as sent when it is queued."""

    def follow(self, mapper: Mapper) -> None:
        """Replace the ports. If two files declare a port with the same name, the first one is used."""
        wanted: dict[str, SerialPort] = {}
        faults: list[dict[str, object]] = []
        for port in mapper.ports:
            if port.name in wanted:
                other = wanted[port.name].place.file
                reason = f"A port in {other} has the same name, and is used instead."
                done = str(replace(port.place, reason=reason, key="name"))
                faults.append({"file": port.place.file, "reason": done, "previous_version_applies": False})
            else:
                wanted[port.name] = port
        with self._lock:
            self._wanted, self._faults = wanted, faults
            if self._ended:
                return
            if self._adapter is None and wanted:
                self._adapter = self._new()
            if self._adapter is not None:
                self._adapter.follow(wanted.values())

    def faults(self) -> list[dict[str, object]]:
        """Ports that cannot be used: `file`, `reason`, `previous_version_applies`."""
        return self._faults

    def takes(self, topic: str) -> bool:
        """Whether a topic belongs to a port."""
        return port_of(topic) in self._wanted

    def put(self, command: Command, interval: float) -> str:
        """Send a command; its topic then pauses for `interval` seconds. Returns the error; empty: accepted."""
        adapter = self._adapter
        return "the gateway stops" if adapter is None else adapter.put(command, interval)

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        if self._adapter is not None:
            self._adapter.withdraw(actuator)

    def health(self) -> dict[str, object]:
        """Port to "connected", or to the reason why it is not."""
        return {port.port.name: f"disconnected: {port.reason}" if port.reason else "connected" for port in self._ports}

    @property
    def _ports(self) -> list[Port]:
        return [] if self._adapter is None else self._adapter.ports

    def _new(self) -> SerialAdapter:
        # Imported here: without serial ports, the gateway saves the memory and start-up time.
        from edge.adapters.serial import SerialAdapter

        actuation = self._mappings.actuation
        adapter = SerialAdapter(
            self._settings.serial,
            self._settings.actuation,
            self._mappings.ingest,
            lambda port, done: actuation.port_up(port.topic, done),
        )
        adapter.start()
        return adapter

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            if self._adapter is not None:
                self._adapter.stop(self._patience)

    async def _prove(self) -> None:
        self._progress.prove(self._adapter)

    async def _restart(self) -> None:
        await asyncio.to_thread(self._restart_now)

    def _restart_now(self) -> None:
        with self._lock:
            if self._adapter is None or self._ended:
                return
            self._adapter.stop(self._patience)
            self._adapter = self._new()
            self._adapter.follow(self._wanted.values())

    def _watch(self, metrics: Metrics) -> None:
        def of(value: Callable[[Port], float]) -> Callable[[], Mapping[str, float]]:
            return lambda: {port.port.name: value(port) for port in self._ports}

        watch = metrics.watch_each
        watch("serial_connected", "Whether the device is there.", "port", of(lambda port: port.connected))
        watch("serial_frames", "Good frames since the start.", "port", of(lambda port: port.tally.frames))
        watch("serial_bad_frames", "What looked like a frame.", "port", of(lambda port: port.tally.bad))
        watch("serial_discarded_bytes", "Bytes of no frame.", "port", of(lambda port: port.tally.discarded))
        watch("serial_overruns", "Characters lost before they were read.", "port", of(lambda port: port.overruns))
        watch("serial_sent", "Commands written.", "port", of(lambda port: port.commands.sent))
        watch("serial_queued_commands", "Commands that wait.", "port", of(lambda port: len(port.commands)))
        watch(
            "serial_conflated", "Commands that a newer one replaced.", "port", of(lambda port: port.commands.conflated)
        )
        watch("serial_failed", "Commands that could not be written.", "port", of(lambda port: port.commands.failed))
        metrics.watch("serial_queued", "Frames that wait.", lambda: self._adapter.queued if self._adapter else 0)
