"""What a port is to write: the newest command of each topic, in order and at its pace, one frame after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from edge.adapters.actuation_outbox import ActuationQueue
from edge.adapters.serial_frames import encoded
from edge.mapping.actuators import Command
from edge.mapping.serial_ports import SerialPort


class Commands:
    """Commands are given and withdrawn from any thread; `unsent`, `written` and `lost` belong to the port's."""

    def __init__(self, port: SerialPort, rate: float, limit: int, refuse: Callable[[Command, str], None]) -> None:
        """`rate`: commands a second. `limit`: topics that may wait. `refuse` is told what is not written, and why."""
        self._port = port
        self._refuse = refuse
        self._lock = threading.Lock()
        self._outbox = ActuationQueue(rate, limit)
        self._current: Command | None = None
        self._rest = b""
        self.held = True
        """Whether nothing is begun: who knows the state as a whole has not said yet what is new in it."""
        self.sent = 0
        """Commands that were written."""
        self.failed = 0
        """Commands of which no frame could be made, or that ended the connection again and again."""

    def __len__(self) -> int:
        with self._lock:
            return len(self._outbox)

    @property
    def conflated(self) -> int:
        """Commands that a newer one for their topic replaced before their turn."""
        return self._outbox.conflated

    def put(self, command: Command, interval: float) -> bool:
        """Have a command written; its topic then rests for `interval` seconds. False: too many wait."""
        with self._lock:
            return self._outbox.put(command, interval)

    def withdraw(self, actuator: str) -> None:
        """An actuator is no more: what it would have sent is not sent."""
        with self._lock:
            self._outbox.withdraw(actuator)

    def wait(self) -> float | None:
        """Seconds until there may be something to write, as far as time decides; None: it does not."""
        if self._rest or self.held:
            return None
        with self._lock:
            return self._outbox.wait(time.monotonic())

    def unsent(self) -> bytes:
        """What is to be written now: the rest of a frame, or the next one if its turn has come."""
        while not self._rest and not self.held:
            with self._lock:
                command = self._outbox.due(time.monotonic())
            if command is None:
                break
            try:
                self._rest = encoded(self._port, command.payload)
            except ValueError as error:
                self._done(command)
                self._fail(command, f"no frame can be made of it: {error}")
            else:
                self._current = command
        return self._rest

    def written(self, count: int) -> None:
        """So many bytes of what is unsent are written."""
        self._rest = self._rest[count:]
        if not self._rest and self._current is not None:
            self.sent += 1
            self._done(self._current)
            self._current = None

    def lost(self) -> None:
        """The device is gone: what was not written whole is written again, unless something newer waits."""
        self._current, self._rest, self.held = None, b"", True
        with self._lock:
            given_up = self._outbox.lost()
        for command in given_up:
            self._fail(command, "the device went whenever this was sent")

    def _done(self, command: Command) -> None:
        with self._lock:
            self._outbox.done(command.topic)

    def _fail(self, command: Command, reason: str) -> None:
        self.failed += 1
        self._refuse(command, reason)
