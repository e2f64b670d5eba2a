"""Load generator: one thread publishes at a rate and reads the results, so that it takes little of the machine."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from edge.bench.peers import mqtt_packets
from edge.bench.peers.readings import PeerReading
from edge.bench.peers.receivers import Receiver, tcp

_WINDOW: Final = 1_000
"""Readings of QoS 1 that the broker has not acknowledged."""
_TOGETHER: Final = 100
"""Readings in one write to the socket."""
_PAUSE: Final = 0.001
"""Shortest time between two writes at a rate (s): sleeping for less would cost more than it gains in evenness."""
_QUIET: Final = 2.0
"""Results are complete when none has arrived for this time (s)."""
_AFTERWARDS: Final = 0.1
"""Time for repeated results, after the last expected one (s)."""
_PUBACK_BYTES: Final = 4


@dataclass(slots=True)
class Sent:
    """When the readings of a phase were published."""

    times: dict[int, float]
    """`time.perf_counter` by temperature."""
    seconds: float
    """From the first reading to the last one."""


class Publisher:
    """Publisher at the broker."""

    def __init__(self, port: int, qos: int) -> None:
        """Connect to the broker at `port`."""
        self._qos = qos
        self._identifier = 0
        self._socket = tcp(port)
        self._socket.sendall(mqtt_packets.connect("peers-load"))
        self._socket.recv(4)  # CONNACK
        self._acknowledged = 0  # bytes

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def publish(self, readings: Sequence[PeerReading], rate: float | None, receiver: Receiver) -> Sent:
        """Publish at `rate` readings a second, or as fast as the broker reads; read results meanwhile."""
        packets = [self._packet(reading) for reading in readings]
        count, done, times = len(packets), 0, list[float]()
        self._acknowledged = 0
        began = time.perf_counter()
        while done < count:
            now = time.perf_counter()
            due = count if rate is None else min(count, int((now - began) * rate) + 1)
            due = min(due, done + _TOGETHER, self._window)
            if due > done:
                self._socket.sendall(b"".join(packets[done:due]))
                times += [now] * (due - done)
                done = due
            if rate is None:
                self._wait(receiver, 0.0 if done < self._window else _PAUSE)
            else:
                self._wait(receiver, max(_PAUSE, began + done / rate - time.perf_counter()))
        # A list of times is cheaper while readings are published than the dictionary.
        by_temperature = {reading.temperature: sent for reading, sent in zip(readings, times, strict=True)}
        return Sent(by_temperature, times[-1] - times[0])

    def settle(self, receiver: Receiver, complete: Callable[[], bool]) -> None:
        """Read results until `complete`, which takes them from the receiver, or until no more arrive."""
        found = complete()
        deadline = time.perf_counter() + (_AFTERWARDS if found else _QUIET)
        while (now := time.perf_counter()) < deadline:
            self._wait(receiver, min(0.05, deadline - now))
            if receiver.messages and not found:
                found = complete()
                deadline = now + (_AFTERWARDS if found else _QUIET)

    @property
    def _window(self) -> int:
        """Number of readings that may have been published by now."""
        return self._acknowledged // _PUBACK_BYTES + _WINDOW if self._qos else 1 << 62

    def _packet(self, reading: PeerReading) -> bytes:
        self._identifier = self._identifier % 65_535 + 1
        return mqtt_packets.publish(reading.topic, reading.payload, self._qos, self._identifier)

    def _wait(self, receiver: Receiver, seconds: float) -> None:
        """Wait for results or acknowledgements, at most for `seconds`, and read them."""
        # select has a resolution of microseconds; epoll would round the time up to milliseconds.
        ready, _, _ = select.select([self._socket, receiver.socket], (), (), seconds)
        if self._socket in ready:
            # The broker sends this client nothing but PUBACK.
            self._acknowledged += len(self._socket.recv(1 << 16))
        if receiver.socket in ready:
            receiver.read()
