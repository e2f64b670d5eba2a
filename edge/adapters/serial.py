"""The serial adapter: frames of all ports into observations, commands of actuators to the ports they are for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from edge.adapters.ingest import Ingest
from edge.adapters.messages import Inbox, MqttMessage
from edge.adapters.serial_port import Port
from edge.adapters.settings import SerialSettings
from edge.adapters.writer import ReadingWriter
from edge.mapping.actuators import Command
from edge.mapping.serial_ports import SerialPort, port_of


class SerialAdapter:
    """The ports of the mapping files: a thread each, and one that writes to the engine for all of them.

    While the engine takes nothing and `max_queued` frames wait, ports are read no further; what the kernel then
    cannot keep is lost, since a serial line knows no acknowledgement. Commands go on.
    """

    def __init__(
        self, settings: SerialSettings, intake: Ingest, up: Callable[[SerialPort, Callable[[], None]], None]
    ) -> None:
        """`up` is told of each port whose device is there, on the port's thread.

        Commands go by the port when `up` has called what it is given: then all is put that the device has to be told.
        """
        self._settings = settings
        self._intake = intake
        self._up = up
        self._inbox = Inbox(settings.max_queued, settings.max_queued * settings.max_frame)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._ports: dict[str, Port] = {}
        writer = ReadingWriter(settings, intake, self._stopping, "serial")
        self._thread = threading.Thread(target=self._write, args=(writer,), name="edge-serial-write", daemon=True)
        self.written = 0
        """Frames that were carried out."""

    @property
    def alive(self) -> bool:
        """Whether its threads work."""
        return self._thread.is_alive() and all(port.alive for port in self.ports)

    @property
    def ports(self) -> list[Port]:
        """Those that are served."""
        return list(self._ports.values())

    @property
    def queued(self) -> int:
        """Frames that wait in the adapter."""
        return len(self._inbox)

    def start(self) -> None:
        """Begin to write. Ports are served as soon as they are told."""
        self._thread.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Close all ports, and finish what waits if `timeout` seconds suffice."""
        deadline = time.monotonic() + timeout
        self.follow(())
        self._inbox.close()
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - time.monotonic() - 0.2))
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(max(0.1, deadline - time.monotonic()))

    def follow(self, ports: Iterable[SerialPort]) -> None:
        """These are the ports from now on. One that is changed is opened anew, one that is not goes on."""
        wanted = {port.name: port for port in ports}
        with self._lock:
            old = [name for name, port in self._ports.items() if name not in wanted or not port.port.same(wanted[name])]
            for name in old:
                self._ports[name].stop(1.0)
            kept = {name: port for name, port in self._ports.items() if name not in old}
            new = [self._port(port) for name, port in wanted.items() if name not in kept]
            self._ports = {**kept, **{port.port.name: port for port in new}}
            for port in new:
                port.start()

    def put(self, command: Command, interval: float) -> str:
        """Have a command sent by the port that its topic names. Returns why it is not; empty: it is."""
        port = self._ports.get(port_of(command.topic))
        if port is None:
            return "there is no such port any more"
        if not port.put(command, interval):
            return f"{self._settings.max_commands} commands wait already (actuation.max_queued)"
        return ""

    def withdraw(self, actuator: str) -> None:
        """An actuator is no more: what it would have sent is not sent."""
        for port in self.ports:
            port.commands.withdraw(actuator)

    def _port(self, port: SerialPort) -> Port:
        return Port(port, self._settings, take=self._take, refuse=self._refuse, up=self._up)

    def _take(self, port: SerialPort, payloads: list[bytes]) -> list[bytes]:
        now = datetime.now(UTC)
        for taken, payload in enumerate(payloads):
            if not self._inbox.offer(MqttMessage(port.topic, payload, 0, False, 0, now, 0, b"")):
                return payloads[taken:]
        return []

    def _refuse(self, topic: str, source: str, reason: str, excerpt: bytes, times: int) -> None:
        self._intake.bad_values.add(topic, source, reason, excerpt, datetime.now(UTC), times)

    def _write(self, writer: ReadingWriter) -> None:
        while batch := self._inbox.take(self._settings.max_batch):
            if not writer.write(batch):
                return
            self.written += len(batch)
