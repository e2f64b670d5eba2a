"""Serial ports that mapping files declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.mappings import Mappings
from edge.gateway.port_service import PortService
from edge.mapping.mapper import Mapper
from edge.mapping.serial_ports import SerialPort, port_of
from edge.metrics import Metrics

if TYPE_CHECKING:
    from edge.adapters.serial import SerialAdapter
    from edge.adapters.serial_port import Port


class Serial(PortService[SerialPort, "SerialAdapter"]):
    """The serial ports."""

    name = "serial"
    noun = "port"
    items = "frames"
    acknowledges = False
    """A serial line has no acknowledgements: a command counts as sent when it is queued."""

    def __init__(self, settings: Settings, engine: Scheduler, mappings: Mappings, metrics: Metrics) -> None:
        super().__init__(settings, engine, mappings)
        self._watch(metrics)

    def takes(self, topic: str) -> bool:
        """Whether a topic belongs to a port."""
        return port_of(topic) in self._wanted

    def health(self) -> dict[str, object]:
        """Port to "connected", or to the reason why it is not."""
        return {port.port.name: f"disconnected: {port.reason}" if port.reason else "connected" for port in self._ports}

    @property
    def _ports(self) -> list[Port]:
        return [] if self._adapter is None else self._adapter.ports

    def _declared(self, mapper: Mapper) -> Iterable[SerialPort]:
        return mapper.ports

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
