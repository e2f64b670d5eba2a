"""State of one polled Modbus device: when its values are read, whether it answers, and its commands."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from edge.adapters.actuation_outbox import ActuationQueue
from edge.backoff import Backoff, Retry
from edge.mapping.actuators import Command
from edge.mapping.modbus_devices import ModbusDevice, Register
from edge.mapping.modbus_polling import ReadRequest
from edge.mapping.modbus_values import Scalar, number, truth
from edge.mapping.values import JsonNumber

_NO_RESPONSE: Final = 0
"""In place of the code of an exception."""
_MOST_VALUES: Final = 1000
"""Values of one message, which may have that many readings."""


@dataclass(slots=True, eq=False)
class _Group:
    """Requests that are due together. A refused request is divided, so they can become more."""

    interval: float
    requests: list[ReadRequest]
    due: float
    """Time of the next poll."""


@dataclass(slots=True, eq=False)
class _Silence:
    """A request that the device does not answer, although it answers others."""

    retry: Retry
    again: float
    """Earliest time of the next attempt."""


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
        self.commands = CommandQueue(rate, limit, backoff)
        self.polls = 0
        """Polls with at least one value."""
        self.failures = 0
        """Requests without a response."""
        self.refusals = 0
        """Requests that the device answered with an exception."""
        self._backoff = backoff
        self._retry = Retry(backoff)
        self._again = now
        self._groups = [_Group(each.interval, list(each.requests), now) for each in device.groups]
        self._refused: dict[ReadRequest, int] = {}
        """Code of the exception by request, without those that are divided. Other threads may read a copy of it."""
        self._silent: dict[ReadRequest, _Silence] = {}
        self._suspects: set[str] = set()
        """Values whose requests had no response since the device went: they are read last."""

    @property
    def without_value(self) -> list[str]:
        """Names of the values that the device refuses to give, or does not give: their observations are old."""
        return [*dict.fromkeys(value.name for request in [*self._refused] for value in request.values)]

    def ready(self, now: float) -> bool:
        """Whether it may be asked: the back-off after a failure is over."""
        return now >= self._again

    def due(self, now: float) -> list[ReadRequest]:
        """Return the requests that are due. They count as made: a late poll is not made up for.

        The last one can be one that had no response: whether the device answers is clear by then.
        """
        found: list[ReadRequest] = []
        for group in self._groups:
            if group.due <= now:
                missed = (now - group.due) // group.interval
                group.due += (missed + 1) * group.interval
                found += group.requests
        found.sort(key=lambda request: not self._suspects.isdisjoint(value.name for value in request.values))
        silent = next((request for request, each in self._silent.items() if each.again <= now), None)
        return [*found, silent] if found and silent is not None else found

    def wait(self, now: float) -> float:
        """Return the seconds until the next poll or command."""
        ends = [group.due for group in self._groups]
        commands = self.commands.wait(now)
        if commands is not None:
            ends.append(now + commands)
        return max(0.0, self._again - now, min(ends) - now)

    def failed(self, reason: str, now: float, request: ReadRequest | None = None) -> bool:
        """Count a request without a response; begin or extend the back-off. Returns whether it has just gone.

        `request`: if it was one for values, it is the last one at the next attempt.
        """
        self.failures += 1
        if request is not None:
            self._suspects.update(value.name for value in request.values)
        self._again = now + self._retry.failed()
        return self.unreachable(reason, self._again)

    def unreachable(self, reason: str, now: float) -> bool:
        """Note that its bus cannot be connected. Returns whether it has just gone."""
        for group in self._groups:
            group.due = min(group.due, now)  # all values are read when it is back
        gone = self.available is not False
        self.available, self.reason = False, reason
        if gone:
            self._undivide()
        return gone

    def answered(self) -> bool:
        """Note a response. Returns whether the device has just come."""
        come = self.available is not True
        self.available, self.reason = True, ""
        if come:
            self._suspects.clear()
        return come

    def completed(self) -> None:
        """Note that a poll came to its end: the back-off begins with its first wait again."""
        self._retry.succeeded()

    def unanswered(self, request: ReadRequest, now: float) -> bool:
        """Note a request without a response, between others that were answered, and divide it to find the cause.

        It has a back-off of its own. Returns whether it is to be reported.
        """
        self.failures += 1
        known = self._silent.pop(request, None)
        for group in self._groups:
            if request in group.requests:
                group.requests.remove(request)
        if len(parts := request.halves()) > 1:
            self._refused.pop(request, None)
            self._silent.update({part: _Silence(Retry(self._backoff), now) for part in parts})
            return False
        silence = known or _Silence(Retry(self._backoff), now)
        silence.again = now + silence.retry.failed()
        self._silent[request] = silence
        return self._is_news(request, _NO_RESPONSE)

    def refused(self, request: ReadRequest, code: int) -> bool:
        """Note an exception, and divide the request to find its cause. Returns whether it is to be reported."""
        self.refusals += 1
        self._revive(request)
        if code in (2, 3) and len(parts := request.halves()) > 1:
            self._refused.pop(request, None)
            for group in self._groups:
                if request in group.requests:
                    at = group.requests.index(request)
                    group.requests[at : at + 1] = parts
                    group.due -= group.interval  # the parts are read at once
            return False
        return self._is_news(request, code)

    def accepted(self, request: ReadRequest) -> None:
        """Note that a request was answered with values."""
        self._revive(request)
        if self._refused.pop(request, None) is not None:
            self._undivide()  # the cause may have gone for others, too: the device may have been starting

    def _undivide(self) -> None:
        """Join the parts of divided requests, unless a value has no response."""
        if not self._silent:
            self._refused.clear()
            for group, planned in zip(self._groups, self.device.groups, strict=True):
                group.requests = list(planned.requests)

    def _revive(self, request: ReadRequest) -> None:
        """Read a request that has a response again as often as the others."""
        if self._silent.pop(request, None) is not None:
            interval = request.values[0].interval
            next(each for each in self._groups if each.interval == interval).requests.append(request)

    def _is_news(self, request: ReadRequest, code: int) -> bool:
        known = self._refused.get(request)
        self._refused[request] = code
        return known != code


class CommandQueue:
    """Commands of one device: the newest of each register, with rate limits. Thread-safe."""

    def __init__(self, rate: float, limit: int, backoff: Backoff) -> None:
        self._lock = threading.Lock()
        self._busy = Retry(backoff)
        self._again = 0.0
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
            return None if self.held or now < self._again else self._queue.due(now)

    def wait(self, now: float) -> float | None:
        """Return the seconds until a command is due; None: no time is known."""
        with self._lock:
            wait = None if self.held else self._queue.wait(now)
            return None if wait is None else max(wait, self._again - now)

    def done(self, topic: str) -> None:
        """Remove a command that was accepted or refused."""
        with self._lock:
            self._queue.done(topic)
            self._busy.succeeded()

    def put_back(self, topic: str) -> None:
        """Queue a command again that was not sent."""
        with self._lock:
            self._queue.put_back(topic)

    def postpone(self, topic: str, now: float) -> None:
        """Queue a command again for which the device is too busy. All commands wait for the back-off."""
        with self._lock:
            self._queue.put_back(topic)
            self._again = now + self._busy.failed()

    def discard(self, command: Command) -> None:
        """Discard a command that waits, because an equal one was accepted."""
        with self._lock:
            self._queue.discard_equal(command)

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


def messages(values: Mapping[str, Scalar]) -> Iterator[bytes]:
    """Yield values as JSON documents that a mapping accepts."""
    items = list(values.items())
    for first in range(0, len(items), _MOST_VALUES):
        yield payload(dict(items[first : first + _MOST_VALUES]))


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
    found = register.format.encode(text, register.scale, register.offset)
    if register.format.type != "string":
        register.check(number(text))
    return found


Up = Callable[[ModbusDevice, Callable[[], None]], None]
"""Called when a device has come. Its second argument releases the commands, after the complete state is queued."""
