"""Serial adapter: converts frames of all ports to observations, and sends commands of actuators."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from edge.adapters.ingest import Ingest
from edge.adapters.messages import MessageQueue, MqttMessage
from edge.adapters.serial_port import Port
from edge.adapters.settings import ActuationSettings, SerialSettings
from edge.adapters.writer import ReadingWriter
from edge.engine.wakeups import together
from edge.mapping.actuators import Command
from edge.mapping.serial_ports import SerialPort, port_of

_LONGEST_WAIT: Final = 60.0
"""Seconds after which the thread looks for work without a wake-up."""


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
        self._queue = MessageQueue(settings.max_queued, settings.max_queued * settings.max_frame)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._ports: dict[str, Port] = {}
        self._wake_up = threading.Event()
        """Set when `_write` has something to do."""
        wake = self._wake_up.set
        self._writer = ReadingWriter(settings, ingest, self._queue, "serial", done=self._finish, wake=wake)
        self._thread = threading.Thread(target=self._write, name="edge-serial-write", daemon=True)
        self.written = 0
        """Frames that were processed."""

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return self._thread.is_alive() and all(port.alive for port in self.ports)

    @property
    def ports(self) -> list[Port]:
        """The active ports."""
        return list(self._ports.values())

    @property
    def queued(self) -> int:
        """Frames that wait in the adapter."""
        return len(self._queue)

    def start(self) -> None:
        """Start the writer thread. Ports start with `follow`."""
        self._thread.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Close all ports, and process waiting frames within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.follow(())
        self._queue.close()
        self._wake_up.set()
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - time.monotonic() - 0.2))
        self._stopping.set()
        self._wake_up.set()
        if self._thread.is_alive():
            self._thread.join(max(0.1, deadline - time.monotonic()))

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
        now = datetime.now(UTC)
        taken = 0
        for payload in payloads:
            if not self._queue.offer(MqttMessage(port.topic, payload, 0, False, 0, now, 0, b"")):
                break
            taken += 1
        self._wake_up.set()
        return payloads[taken:]

    def _refuse(self, topic: str, source: str, reason: str, excerpt: bytes, times: int) -> None:
        self._ingest.bad_values.add(topic, source, reason, excerpt, datetime.now(UTC), times)

    def _finish(self, frames: Sequence[MqttMessage]) -> None:
        """Count processed frames. Runs on the engine's writer thread too."""
        self.written += len(frames)

    def _write(self) -> None:
        while not (self._stopping.is_set() or (self._queue.closed and self._writer.idle)):
            with together():
                pause = self._writer.turn()
            self._wake_up.wait(min(pause, _LONGEST_WAIT))
            self._wake_up.clear()
