"""Command queue of a serial port: the newest command of each topic, with rate limits, one frame at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from edge.adapters.actuation_outbox import ActuationQueue
from edge.adapters.serial_frames import encoded
from edge.mapping.actuators import Command
from edge.mapping.serial_ports import SerialPort


class Commands:
    """Command queue of one port. `unsent`, `written` and `lost` belong to the port's
    thread; the rest is thread-safe.
    """

    def __init__(self, port: SerialPort, rate: float, limit: int, refuse: Callable[[Command, str], None]) -> None:
        """`rate`: commands per second. `limit`: maximum number of waiting topics.
        `refuse`: receives failed commands.
        """
        self._port = port
        self._refuse = refuse
        self._lock = threading.Lock()
        self._outbox = ActuationQueue(rate, limit)
        self._current: Command | None = None
        self._rest = b""
        self.held = True
        """Whether commands are held back, because the complete state is not queued yet."""
        self.sent = 0
        """Commands that were written."""
        self.failed = 0
        """Commands that cannot be encoded, or that were sent each time the device disconnected."""

    def __len__(self) -> int:
        with self._lock:
            return len(self._outbox)

    @property
    def conflated(self) -> int:
        """Commands that a newer one with the same topic replaced before they were sent."""
        return self._outbox.conflated

    def put(self, command: Command, interval: float) -> bool:
        """Queue a command; its topic then pauses for `interval` seconds. False: the queue is full."""
        with self._lock:
            return self._outbox.put(command, interval)

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        with self._lock:
            self._outbox.withdraw(actuator)

    def wait(self) -> float | None:
        """Return the seconds until the next command can be written; None: that does not depend on time."""
        if self._rest or self.held:
            return None
        with self._lock:
            return self._outbox.wait(time.monotonic())

    def unsent(self) -> bytes:
        """Return the bytes to write now: the rest of a frame, or the next frame if it is due."""
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
        """Remove `count` written bytes from the unsent ones."""
        self._rest = self._rest[count:]
        if not self._rest and self._current is not None:
            self.sent += 1
            self._done(self._current)
            self._current = None

    def lost(self) -> None:
        """Queue incompletely written commands again after the device disconnected, unless a newer one waits."""
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
