"""Modbus adapter: converts the values of polled devices to observations, and writes commands of actuators."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from edge.adapters.ingest import Ingest
from edge.adapters.messages import MessageQueue
from edge.adapters.modbus_bus import Bus
from edge.adapters.modbus_device import PolledDevice, Up
from edge.adapters.settings import ActuationSettings, ModbusSettings
from edge.adapters.writer_thread import WriterThread
from edge.mapping.actuators import Command
from edge.mapping.modbus_devices import LineBus, ModbusDevice, TcpBus, device_of

_LONGEST_PAYLOAD: Final = 4096
"""Bytes of a usual payload, for the size of the queue."""


class ModbusAdapter:
    """The Modbus devices of the mapping files: one thread for each connection, and one that writes to the engine.

    Devices with the same host and port, or the same serial line, share a connection.
    """

    def __init__(
        self,
        settings: ModbusSettings,
        actuation: ActuationSettings,
        ingest: Ingest,
        up: Up,
        written: Callable[[Command], None],
        given_up: Callable[[Command, bool], None],
    ) -> None:
        """`actuation`: limits of the commands of each device. `written` is called for each accepted command, `given_up`
        for each that is not tried again; True: its device has refused it.

        `up` is called when a device has come; it calls its second argument after the complete state is queued.
        """
        self._settings = settings
        self._actuation = actuation
        self._ingest = ingest
        self._up = up
        self._on_written = written
        self._on_given_up = given_up
        queue = MessageQueue(settings.max_queued, settings.max_queued * _LONGEST_PAYLOAD)
        self._writer = WriterThread(settings, ingest, queue, "modbus")
        self._lock = threading.Lock()
        self._buses: dict[TcpBus | LineBus, Bus] = {}
        self._old: list[Bus] = []
        """Buses that still wait for a response, although their devices have been replaced."""
        self._devices: dict[str, tuple[Bus, PolledDevice]] = {}
        self.dropped = 0
        """Polls that found the queue full: the next one has newer values."""

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return self._writer.alive and all(bus.alive for bus in list(self._buses.values()))

    @property
    def devices(self) -> list[PolledDevice]:
        """The polled devices."""
        return [device for _, device in list(self._devices.values())]

    @property
    def queued(self) -> int:
        """Messages that wait in the adapter."""
        return self._writer.queued

    @property
    def written(self) -> int:
        """Messages that were processed."""
        return self._writer.written

    def start(self) -> None:
        """Start the writer thread. Devices start with `follow`."""
        self._writer.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Close all connections, and process waiting messages within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.disconnect(timeout / 2)
        self._writer.stop(max(0.1, deadline - time.monotonic()))

    def disconnect(self, timeout: float) -> None:
        """Close all connections. Requests that wait for a response end first, or are left alone after `timeout`
        seconds.
        """
        self._replace({})
        deadline = time.monotonic() + timeout
        for bus in self._old:
            bus.stop(max(0.0, deadline - time.monotonic()))
        self._old = []

    def follow(self, devices: Iterable[ModbusDevice]) -> None:
        """Replace the devices. Connections whose devices changed are reopened; the others continue."""
        wanted: dict[TcpBus | LineBus, list[ModbusDevice]] = {}
        for device in devices:
            wanted.setdefault(device.bus, []).append(device)
        self._replace(wanted)

    def put(self, command: Command, interval: float) -> str:
        """Write a command to the device of its topic. Returns the error; empty: accepted."""
        found = self._devices.get(device_of(command.topic))
        if found is None:
            return "the device does not exist any more"
        bus, device = found
        if not bus.put(device, command, interval):
            return f"{self._actuation.max_queued} commands wait already (actuation.max_queued)"
        return ""

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        for device in self.devices:
            device.commands.withdraw(actuator)

    def _replace(self, wanted: dict[TcpBus | LineBus, list[ModbusDevice]]) -> None:
        with self._lock:
            kept = {address: bus for address, bus in self._buses.items() if _same(bus.devices, wanted.get(address, ()))}
            stopped = [bus for bus in self._buses.values() if bus not in kept.values()]
            for bus in stopped:
                bus.stop(0.0)
            self._old = [bus for bus in [*self._old, *stopped] if bus.alive]
            new = {address: self._bus(devices) for address, devices in wanted.items() if address not in kept}
            self._buses = {**kept, **new}
            self._devices = {
                device.device.name: (bus, device) for bus in self._buses.values() for device in bus.devices
            }
            for bus in new.values():
                bus.start()

    def _bus(self, devices: Sequence[ModbusDevice]) -> Bus:
        names = {device.name for device in devices}
        return Bus(
            devices,
            self._settings,
            self._actuation,
            take=self._take,
            refuse=self._refuse,
            up=self._up,
            written=self._accepted,
            given_up=self._on_given_up,
            after=[
                bus
                for bus in self._old
                if bus.address.place == devices[0].bus.place
                or not names.isdisjoint(device.device.name for device in bus.devices)
            ],
        )

    def _take(self, topic: str, payload: bytes) -> None:
        if not self._writer.offer(topic, [payload]):
            self.dropped += 1

    def _refuse(self, topic: str, source: str, reason: str, excerpt: bytes) -> None:
        self._ingest.bad_values.add(topic, source, reason, excerpt, datetime.now(UTC))

    def _accepted(self, command: Command) -> None:
        """Note that a device accepted a command. A reload may have queued it again meanwhile."""
        if (found := self._devices.get(device_of(command.topic))) is not None:
            found[1].commands.discard(command)
        self._on_written(command)


def _same(polled: Sequence[PolledDevice], wanted: Sequence[ModbusDevice]) -> bool:
    return len(polled) == len(wanted) and all(
        one.device.name == other.name and one.device.same(other) for one, other in zip(polled, wanted, strict=True)
    )
