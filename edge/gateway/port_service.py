"""Ports that mapping files declare, and the adapter that serves them: serial ports and Modbus devices."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.mappings import Mappings
from edge.gateway.progress import Progress, Writing
from edge.gateway.watchdog import Component
from edge.mapping.actuators import Command
from edge.mapping.errors import Fault
from edge.mapping.mapper import Mapper


class DeclaredPort(Protocol):
    """A serial port or a Modbus device of a mapping file."""

    @property
    def name(self) -> str:
        """Name, unique among the ports of its kind."""

    @property
    def place(self) -> Fault:
        """Place of its declaration."""


P = TypeVar("P", bound=DeclaredPort)
P_contra = TypeVar("P_contra", bound=DeclaredPort, contravariant=True)


class PortAdapter(Writing, Protocol[P_contra]):
    """An adapter that serves ports."""

    def follow(self, ports: Iterable[P_contra], /) -> None:
        """Replace the ports."""

    def put(self, command: Command, interval: float) -> str:
        """Send a command to the port of its topic. Returns the error; empty: accepted."""

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""

    def stop(self, timeout: float) -> None:
        """Close the ports, and process waiting messages within `timeout` seconds."""


A = TypeVar("A", bound=PortAdapter[Any])


class PortService(ABC, Generic[P, A]):
    """The ports of one kind. Their adapter is created with the first port."""

    name: ClassVar[str]
    """Name of the component for the watchdog."""
    noun: ClassVar[str]
    """Name of a port, for messages."""
    items: ClassVar[str]
    """Name of what the adapter writes, for messages."""
    acknowledges: bool
    """Whether a command counts as sent only when its device has accepted it."""

    def __init__(self, settings: Settings, engine: Scheduler, mappings: Mappings) -> None:
        self._settings = settings
        self._patience = settings.shutdown.timeout * 0.4
        self._mappings = mappings
        self._lock = threading.Lock()
        self._wanted: dict[str, P] = {}
        self._faults: list[dict[str, object]] = []
        self._adapter: A | None = None
        self._ended = False
        self._progress = Progress(engine, self.items)
        self.part = Component(self.name, self._prove, self._restart)
        """Component for the watchdog."""

    @abstractmethod
    def _declared(self, mapper: Mapper) -> Iterable[P]:
        """Return the ports of the mapping files, in order."""

    @abstractmethod
    def _new(self) -> A:
        """Create and start the adapter."""

    @abstractmethod
    def takes(self, topic: str) -> bool:
        """Whether a topic belongs to a port."""

    def _reason_against(self, _port: P, _others: Mapping[str, P]) -> str | None:
        """Return why a port cannot be used together with earlier ones; None if it can."""
        return None

    async def start(self, stack: AsyncExitStack) -> None:
        """Follow the mapping files; `stack` stops it."""
        stack.push_async_callback(asyncio.to_thread, self._end)
        await asyncio.to_thread(self._mappings.serve, self, self.faults, self.follow)

    def follow(self, mapper: Mapper) -> None:
        """Replace the ports. If two files declare a port with the same name, the first one is used."""
        wanted: dict[str, P] = {}
        faults: list[dict[str, object]] = []
        for port in self._declared(mapper):
            if (other := wanted.get(port.name)) is not None:
                reason = f"A {self.noun} in {other.place.file} has the same name, and is used instead."
                fault = replace(port.place, reason=reason, key="name")
            elif against := self._reason_against(port, wanted):
                fault = replace(port.place, reason=against)
            else:
                wanted[port.name] = port
                continue
            faults.append(
                {
                    "file": port.place.file,
                    "reason": str(fault),
                    "faults": [fault.to_json()],
                    "previous_version_applies": False,
                }
            )
        with self._lock:
            self._wanted, self._faults = wanted, faults
            if self._ended:
                return
            if self._adapter is None and wanted:
                self._adapter = self._new()
            if self._adapter is not None:
                self._adapter.follow(wanted.values())

    def faults(self) -> list[dict[str, object]]:
        """Ports that cannot be used: as `MappingFiles.faults`."""
        return self._faults

    def put(self, command: Command, interval: float) -> str:
        """Send a command; its topic then pauses for `interval` seconds. Returns the error; empty: accepted."""
        adapter = self._adapter
        return "the gateway stops" if adapter is None or self._ended else adapter.put(command, interval)

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        if self._adapter is not None:
            self._adapter.withdraw(actuator)

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
