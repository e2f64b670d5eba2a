"""Modbus devices that mapping files declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.mappings import Mappings
from edge.gateway.port_service import PortService
from edge.mapping.errors import BadKeyError
from edge.mapping.mapper import Mapper
from edge.mapping.modbus_devices import ModbusDevice, device_of
from edge.mapping.modbus_tables import check_line
from edge.metrics import Metrics
from edge.modbus_client import MISSING, is_installed

if TYPE_CHECKING:
    from edge.adapters.modbus import ModbusAdapter
    from edge.adapters.modbus_device import PolledDevice


class Modbus(PortService[ModbusDevice, "ModbusAdapter"]):
    """The Modbus devices."""

    name = "modbus"
    noun = "device"
    items = "polls"
    acknowledges = True
    """A command counts as sent when its device has accepted it."""

    def __init__(self, settings: Settings, engine: Scheduler, mappings: Mappings, metrics: Metrics) -> None:
        super().__init__(settings, engine, mappings)
        self._watch(metrics)

    def takes(self, topic: str) -> bool:
        """Whether a topic belongs to a device."""
        return device_of(topic) in self._wanted

    def health(self) -> dict[str, object]:
        """Device to "connected", with the values that it does not give, or to the reason why it is not connected."""
        return {each.device.name: _state(each) for each in self._devices}

    def missing(self) -> dict[str, list[str]]:
        """Device to the names of the values that it does not give, for those that are connected and lack some."""
        return {each.device.name: found for each in self._devices if not each.reason and (found := each.without_value)}

    @property
    def _devices(self) -> list[PolledDevice]:
        return [] if self._adapter is None else self._adapter.devices

    def _declared(self, mapper: Mapper) -> Iterable[ModbusDevice]:
        return mapper.devices

    def _reason_against(self, device: ModbusDevice, others: Mapping[str, ModbusDevice]) -> str | None:
        if not is_installed():
            return f"{MISSING}."
        try:
            check_line(device, list(others.values()))
        except BadKeyError as error:
            return error.fault.reason
        return None

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


def _state(device: PolledDevice) -> str:
    if device.reason:
        return f"disconnected: {device.reason}"
    missing = device.without_value
    return f"connected: no value of {', '.join(missing)}" if missing else "connected"
