"""Serial adapter: converts frames of all ports to observations, and sends commands of actuators."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from edge.adapters.ingest import Ingest
from edge.adapters.messages import MessageQueue
from edge.adapters.serial_port import Port
from edge.adapters.settings import ActuationSettings, SerialSettings
from edge.adapters.writer_thread import WriterThread
from edge.mapping.actuators import Command
from edge.mapping.serial_ports import SerialPort, port_of


class SerialAdapter:
    """The ports of the mapping files: one thread for each, and one that writes to the engine for all.

    While the engine accepts nothing and `max_queued` frames wait, the ports are not read. Data beyond the kernel's
    buffer is then lost, because a serial line has no acknowledgements. Commands continue.
    """

    def __init__(
        self,
        settings: SerialSettings,
        actuation: ActuationSettings,
        ingest: Ingest,
        up: Callable[[SerialPort, Callable[[], None]], None],
    ) -> None:
        """`actuation`: limits of the commands of each port.

        `up` is called on the port's thread when its device has connected. Its second argument releases the commands of
        the port. `up` calls it after the complete state is queued.
        """
        self._settings = settings
        self._actuation = actuation
        self._ingest = ingest
        self._up = up
        queue = MessageQueue(settings.max_queued, settings.max_queued * settings.max_frame)
        self._writer = WriterThread(settings, ingest, queue, "serial")
        self._lock = threading.Lock()
        self._ports: dict[str, Port] = {}

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return self._writer.alive and all(port.alive for port in self.ports)

    @property
    def ports(self) -> list[Port]:
        """The active ports."""
        return list(self._ports.values())

    @property
    def queued(self) -> int:
        """Frames that wait in the adapter."""
        return self._writer.queued

    @property
    def written(self) -> int:
        """Frames that were processed."""
        return self._writer.written

    def start(self) -> None:
        """Start the writer thread. Ports start with `follow`."""
        self._writer.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Close all ports, and process waiting frames within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.follow(())
        self._writer.stop(max(0.1, deadline - time.monotonic()))

    def follow(self, ports: Iterable[SerialPort]) -> None:
        """Replace the ports. Changed ports are reopened; unchanged ones continue."""
        wanted = {port.name: port for port in ports}
        with self._lock:
            old = [name for name, port in self._ports.items() if name not in wanted or not port.port.same(wanted[name])]
            for name in old:
                self._ports[name].stop(1.0)
            unchanged = {name: port for name, port in self._ports.items() if name not in old}
            new = [self._port(port) for name, port in wanted.items() if name not in unchanged]
            self._ports = {**unchanged, **{port.port.name: port for port in new}}
            for port in new:
                port.start()

    def put(self, command: Command, interval: float) -> str:
        """Send a command over the port of its topic. Returns the error; empty: accepted."""
        port = self._ports.get(port_of(command.topic))
        if port is None:
            return "the port does not exist any more"
        if not port.put(command, interval):
            return f"{self._actuation.max_queued} commands wait already (actuation.max_queued)"
        return ""

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        for port in self.ports:
            port.commands.withdraw(actuator)

    def _port(self, port: SerialPort) -> Port:
        return Port(port, self._settings, self._actuation, take=self._take, refuse=self._refuse, up=self._up)

    def _take(self, port: SerialPort, payloads: list[bytes]) -> list[bytes]:
        return payloads[self._writer.offer(port.topic, payloads) :]

    def _refuse(self, topic: str, source: str, reason: str, excerpt: bytes, times: int) -> None:
        self._ingest.bad_values.add(topic, source, reason, excerpt, datetime.now(UTC), times)
