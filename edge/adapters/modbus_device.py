"""State of one polled Modbus device: when its values are read, whether it answers, and its commands."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.adapters.actuation_outbox import ActuationQueue
from edge.backoff import Backoff, Retry
from edge.mapping.actuators import Command
from edge.mapping.modbus_devices import ModbusDevice, Register
from edge.mapping.modbus_polling import ReadRequest
from edge.mapping.modbus_values import Scalar, truth
from edge.mapping.values import JsonNumber


@dataclass(slots=True, eq=False)
class _Group:
    """Requests that are due together. A refused request is divided, so they can become more."""

    interval: float
    requests: list[ReadRequest]
    due: float
    """Time of the next poll."""


class PolledDevice:
    """One device of a bus. Apart from its commands, it belongs to the thread of the bus. It reads no clock: `now` is
    passed in seconds.
    """

    def __init__(self, device: ModbusDevice, backoff: Backoff, rate: float, limit: int, now: float) -> None:
        """`rate`: commands per second. `limit`: maximum number of waiting commands."""
        self.device = device
        self.available: bool | None = None
        """Whether it answers; None: not known yet."""
        self.reason = "not tried yet"
        """Why it is not connected; empty if it is."""
        self.commands = CommandQueue(rate, limit)
        self.polls = 0
        """Polls with at least one value."""
        self.failures = 0
        """Requests without a response."""
        self.refusals = 0
        """Requests that the device answered with an exception."""
        self._retry = Retry(backoff)
        self._again = now
        self._groups = [_Group(each.interval, list(each.requests), now) for each in device.groups]
        self._refused: dict[tuple[str, int, int], int] = {}

    def ready(self, now: float) -> bool:
        """Whether it may be asked: the back-off after a failure is over."""
        return now >= self._again

    def due(self, now: float) -> list[ReadRequest]:
        """Return the requests that are due. They count as made: a late poll is not made up for."""
        found: list[ReadRequest] = []
        for group in self._groups:
            if group.due <= now:
                missed = (now - group.due) // group.interval
                group.due += (missed + 1) * group.interval
                found += group.requests
        return found

    def wait(self, now: float) -> float:
        """Return the seconds until the next poll or command."""
        ends = [group.due for group in self._groups]
        commands = self.commands.wait(now)
        if commands is not None:
            ends.append(now + commands)
        return max(0.0, self._again - now, min(ends) - now)

    def failed(self, reason: str, now: float) -> bool:
        """Count a request without a response; begin or extend the back-off. Returns whether it has just gone."""
        self.failures += 1
        self._again = now + self._retry.failed()
        return self.unreachable(reason, self._again)

    def unreachable(self, reason: str, now: float) -> bool:
        """Note that its bus cannot be connected. Returns whether it has just gone."""
        for group in self._groups:
            group.due = min(group.due, now)  # all values are read when it is back
        gone = self.available is not False
        self.available, self.reason = False, reason
        return gone

    def answered(self) -> bool:
        """Note a response. Returns whether the device has just come."""
        self._retry.succeeded()
        come = self.available is not True
        self.available, self.reason = True, ""
        return come

    def refused(self, request: ReadRequest, code: int) -> bool:
        """Note an exception, and divide the request to find its cause. Returns whether it is to be reported."""
        self.refusals += 1
        if code in (2, 3) and len(parts := request.halves()) > 1:
            for group in self._groups:
                if request in group.requests:
                    at = group.requests.index(request)
                    group.requests[at : at + 1] = parts
                    group.due -= group.interval  # the parts are read at once
            return False
        key = (request.table, request.address, request.count)
        known = self._refused.get(key)
        self._refused[key] = code
        return known != code

    def accepted(self, request: ReadRequest) -> None:
        """Note that a request was answered with values."""
        self._refused.pop((request.table, request.address, request.count), None)


class CommandQueue:
    """Commands of one device: the newest of each register, with rate limits. Thread-safe."""

    def __init__(self, rate: float, limit: int) -> None:
        self._lock = threading.Lock()
        self._queue = ActuationQueue(rate, limit)
        self.held = True
        """Whether commands are held back, because the complete state is not queued yet."""
        self.sent = 0
        """Commands that the device has accepted."""
        self.failed = 0
        """Commands that cannot be encoded, or that the device refused."""

    def __len__(self) -> int:
        with self._lock:
            return len(self._queue)

    @property
    def conflated(self) -> int:
        """Commands that a newer one for the same register replaced."""
        return self._queue.conflated

    def put(self, command: Command, interval: float) -> bool:
        """Queue a command; its register then pauses for `interval` seconds. False: the queue is full."""
        with self._lock:
            return self._queue.put(command, interval)

    def due(self, now: float) -> Command | None:
        """Return the next command. It counts as sent until `done` or `lost`."""
        with self._lock:
            return None if self.held else self._queue.due(now)

    def wait(self, now: float) -> float | None:
        """Return the seconds until a command is due; None: no time is known."""
        with self._lock:
            return None if self.held else self._queue.wait(now)

    def done(self, topic: str) -> None:
        """Remove a command that was accepted or refused."""
        with self._lock:
            self._queue.done(topic)

    def lost(self) -> list[Command]:
        """Queue unanswered commands again. Returns those that are given up after several attempts."""
        with self._lock:
            return self._queue.lost()

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        with self._lock:
            self._queue.withdraw(actuator)


def decoded(request: ReadRequest, contents: list[int], registers: Mapping[str, Register]) -> dict[str, Scalar]:
    """Return the values in the contents of a request, by name."""
    found: dict[str, Scalar] = {}
    for value in request.values:
        register = registers[value.name]
        start = register.address - request.address
        part = contents[start : start + register.count]
        found[register.name] = bool(part[0]) if register.format is None else register.format.decode(part)
    return found


def payload(values: Mapping[str, Scalar]) -> bytes:
    """Return values as a JSON document. Numbers keep their digits."""
    members = (
        f"{json.dumps(name)}: {value if isinstance(value, JsonNumber) else json.dumps(value)}"
        for name, value in values.items()
    )
    return ("{" + ", ".join(members) + "}").encode()


def contents(register: Register, command: Command) -> list[int]:
    """Return what a command writes: registers or bits. Raises `ValueError` with the reason."""
    text = command.payload.decode("utf-8", errors="replace")
    if register.format is None:
        return [int(truth(text))]
    return register.format.encode(text, register.scale, register.offset)


Up = Callable[[ModbusDevice, Callable[[], None]], None]
"""Called when a device has come. Its second argument releases the commands, after the complete state is queued."""
