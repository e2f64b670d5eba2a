"""Modbus devices that mapping files declare."""

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
from edge.mapping.errors import BadKeyError
from edge.mapping.mapper import Mapper
from edge.mapping.modbus_devices import ModbusDevice, device_of
from edge.mapping.modbus_tables import check_line
from edge.metrics import Metrics
from edge.modbus_client import MISSING, is_installed

if TYPE_CHECKING:
    from edge.adapters.modbus import ModbusAdapter
    from edge.adapters.modbus_device import PolledDevice


class Modbus:
    """The devices, and the adapter that polls them. The adapter is created with the first device."""

    acknowledges = True
    """A command counts as sent when its device has accepted it."""

    def __init__(self, settings: Settings, engine: Scheduler, mappings: Mappings, metrics: Metrics) -> None:
        self._settings = settings
        self._patience = settings.shutdown.timeout * 0.4
        self._mappings = mappings
        self._lock = threading.Lock()
        self._wanted: dict[str, ModbusDevice] = {}
        self._faults: list[dict[str, object]] = []
        self._adapter: ModbusAdapter | None = None
        self._ended = False
        self._progress = Progress(engine, "polls")
        self.part = Component("modbus", self._prove, self._restart)
        """Component for the watchdog."""
        self._watch(metrics)

    async def start(self, stack: AsyncExitStack) -> None:
        """Follow the mapping files; `stack` stops it."""
        stack.push_async_callback(asyncio.to_thread, self._end)
        await asyncio.to_thread(self._mappings.serve, self)

    def follow(self, mapper: Mapper) -> None:
        """Replace the devices. If two files declare a device with the same name, the first one is used."""
        wanted: dict[str, ModbusDevice] = {}
        faults: list[dict[str, object]] = []
        for device in mapper.devices:
            reason = _reason_against(device, wanted)
            if reason is None:
                wanted[device.name] = device
            else:
                done = str(replace(device.place, reason=reason))
                faults.append({"file": device.place.file, "reason": done, "previous_version_applies": False})
        with self._lock:
            self._wanted, self._faults = wanted, faults
            if self._ended:
                return
            if self._adapter is None and wanted:
                self._adapter = self._new()
            if self._adapter is not None:
                self._adapter.follow(wanted.values())

    def faults(self) -> list[dict[str, object]]:
        """Devices that cannot be used: `file`, `reason`, `previous_version_applies`."""
        return self._faults

    def takes(self, topic: str) -> bool:
        """Whether a topic belongs to a device."""
        return device_of(topic) in self._wanted

    def put(self, command: Command, interval: float) -> str:
        """Write a command; its register then pauses for `interval` seconds. Returns the error; empty: accepted."""
        adapter = self._adapter
        return "the gateway stops" if adapter is None or self._ended else adapter.put(command, interval)

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        if self._adapter is not None:
            self._adapter.withdraw(actuator)

    def health(self) -> dict[str, object]:
        """Device to "connected", or to the reason why it is not."""
        return {
            each.device.name: f"disconnected: {each.reason}" if each.reason else "connected" for each in self._devices
        }

    @property
    def _devices(self) -> list[PolledDevice]:
        return [] if self._adapter is None else self._adapter.devices

    def _new(self) -> ModbusAdapter:
        # Imported here: without Modbus devices, the gateway saves the memory and start-up time.
        from edge.adapters.modbus import ModbusAdapter

        actuation = self._mappings.actuation
        adapter = ModbusAdapter(
            self._settings.modbus,
            self._settings.actuation,
            self._mappings.ingest,
            lambda device, done: actuation.port_up(device.topic, done),
            actuation.written,
            actuation.given_up,
        )
        adapter.start()
        return adapter

    def disconnect(self) -> None:
        """Close the connections. Call it while actuation still takes notice of commands that are accepted meanwhile."""
        with self._lock:
            self._ended = True
            if self._adapter is not None:
                self._adapter.disconnect(self._patience)

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
        def of(value: Callable[[PolledDevice], float]) -> Callable[[], Mapping[str, float]]:
            return lambda: {each.device.name: value(each) for each in self._devices}

        watch = metrics.watch_each
        watch("modbus_connected", "Whether the device answers.", "device", of(lambda each: bool(each.available)))
        watch("modbus_polls", "Polls with values since the start.", "device", of(lambda each: each.polls))
        watch("modbus_failures", "Requests without a response.", "device", of(lambda each: each.failures))
        watch("modbus_refused", "Requests answered with an exception.", "device", of(lambda each: each.refusals))
        watch("modbus_sent", "Commands that the device accepted.", "device", of(lambda each: each.commands.sent))
        watch("modbus_queued_commands", "Commands that wait.", "device", of(lambda each: len(each.commands)))
        watch(
            "modbus_conflated",
            "Commands that a newer one replaced.",
            "device",
            of(lambda each: each.commands.conflated),
        )
        watch("modbus_failed", "Commands that could not be written.", "device", of(lambda each: each.commands.failed))
        metrics.watch("modbus_queued", "Polls that wait.", lambda: self._adapter.queued if self._adapter else 0)
        metrics.watch("modbus_dropped", "Polls that were lost.", lambda: self._adapter.dropped if self._adapter else 0)


def _reason_against(device: ModbusDevice, others: Mapping[str, ModbusDevice]) -> str | None:
    """Return why a device cannot be used together with others; None if it can."""
    if device.name in others:
        return f"A device in {others[device.name].place.file} has the same name, and is used instead."
    if not is_installed():
        return f"{MISSING}."
    try:
        check_line(device, list(others.values()))
    except BadKeyError as error:
        return error.fault.reason
    return None
