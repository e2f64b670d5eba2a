"""State of one edge node: its births, aliases, and the order of its messages (Sparkplug 3.0, sections 5 and 6.4).

It has no clock and no connection: the caller passes the time, and carries out what the methods return.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from edge.sparkplug.payload import Metric, Payload

_SEQUENCE: Final = 256
_MOST_HELD: Final = 32
"""Messages that wait for an earlier one."""
_MOST_HELD_METRICS: Final = 5000
"""Metrics of these messages."""
BDSEQ: Final = "bdSeq"
"""Metric with the number of a connection of a node: that of a death is that of the birth before."""


@dataclass(frozen=True, slots=True)
class Message:
    """A decoded message of an edge node."""

    kind: str
    """The third level of the topic without its first letter: BIRTH, DATA, DEATH."""
    device: str
    """Empty: the message is one of the node itself."""
    payload: Payload


@dataclass(slots=True)
class EdgeNode:
    """One edge node. It is born between a birth and a death, while no message is missing."""

    born: bool = False
    expected: int = 0
    """Sequence number of the next message."""
    bdseq: int | None = None
    devices: set[str] = field(default_factory=set)
    """Devices that are born."""
    aliases: dict[tuple[str, int], str] = field(default_factory=dict)
    """Name of the metric of a device, by its alias."""
    names: dict[tuple[str, str], int] = field(default_factory=dict)
    """The reverse."""
    held: dict[int, tuple[Message, float]] = field(default_factory=dict)
    """Messages that wait for an earlier one, by sequence number, and the times at which they came."""

    def take(self, message: Message, now: float) -> tuple[list[Message], str]:
        """Take a message. Returns the messages to process, in order, and why a rebirth is necessary; empty: it is not.

        `now`: seconds of a monotonic clock.
        """
        kind, seq = message.kind, message.payload.seq
        if not message.device and kind == "BIRTH":
            self._begin(message.payload)
            return [message], ""
        if not message.device and kind == "DEATH":
            return self._death(message)
        if not self.born:
            return [], "a message came before the birth of the node"
        if seq is None or seq >= _SEQUENCE:
            return [], self._lost("a message has no valid sequence number")
        if seq != self.expected:
            # Shortly behind the expected one: a duplicate. It would otherwise be used in the next cycle. A longer
            # distance can also be a gap.
            if (self.expected - seq) % _SEQUENCE <= _MOST_HELD:
                return [], ""
            self.held.setdefault(seq, (message, now))
            metrics = sum(len(each.payload.metrics) for each, _ in self.held.values())
            if len(self.held) > _MOST_HELD or metrics > _MOST_HELD_METRICS:
                return [], self._lost(f"the message with sequence number {self.expected} is missing")
            return [], ""
        self.expected = (seq + 1) % _SEQUENCE
        return [message, *self._released()], ""

    @property
    def held_since(self) -> float:
        """Time since which a message is missing. Some are held."""
        return min(at for _, at in self.held.values())

    def overdue(self, now: float, timeout: float) -> str:
        """Return why a rebirth is necessary if a message is missing for `timeout` seconds; empty: it is not."""
        if not self.held or now - self.held_since < timeout:
            return ""
        return self._lost(f"the message with sequence number {self.expected} is missing")

    def forget_birth(self) -> None:
        """Note that messages may be lost: values of the node are not used until its next birth."""
        self.born = False
        self.devices.clear()
        self.held.clear()

    def begin_device(self, device: str, metrics: list[Metric]) -> list[str]:
        """Note a birth of a device, or of the node (""). Returns faults of its aliases."""
        self.end_device(device)
        self.devices.add(device)
        faults = []
        for metric in metrics:
            if metric.alias is None or metric.name is None or (device, metric.name) in self.names:
                continue
            other = self.aliases.setdefault((device, metric.alias), metric.name)
            if other != metric.name:
                faults.append(f"{metric.name}: its alias {metric.alias} is that of {other}, too")
            else:
                self.names[device, metric.name] = metric.alias
        return faults

    def end_device(self, device: str) -> None:
        """Forget a birth of a device, or of the node (""), with its aliases."""
        self.devices.discard(device)
        for key in [key for key in self.aliases if key[0] == device]:
            del self.aliases[key]
        for known in [key for key in self.names if key[0] == device]:
            del self.names[known]

    def name_of(self, device: str, metric: Metric) -> str | None:
        """Return the name of a metric of a message; None: its alias is not one of the birth."""
        if metric.name:
            return metric.name
        return None if metric.alias is None else self.aliases.get((device, metric.alias))

    def _begin(self, payload: Payload) -> None:
        self.forget_birth()
        self.aliases.clear()
        self.names.clear()
        self.born = True
        self.expected = ((payload.seq or 0) + 1) % _SEQUENCE
        self.bdseq = bdseq_of(payload)

    def _death(self, message: Message) -> tuple[list[Message], str]:
        number = bdseq_of(message.payload)
        # The broker publishes the death of an earlier connection late, when the node is connected again, also while a
        # rebirth is awaited.
        if None not in (number, self.bdseq) and number != self.bdseq:
            return [], f"a death has the bdSeq {number}, and the birth {self.bdseq}"
        self.forget_birth()
        return [message], ""

    def _released(self) -> Iterator[Message]:
        while (following := self.held.pop(self.expected, None)) is not None:
            self.expected = (self.expected + 1) % _SEQUENCE
            yield following[0]

    def _lost(self, reason: str) -> str:
        self.forget_birth()
        return reason


def bdseq_of(payload: Payload) -> int | None:
    """Return the number of the connection in a birth or death of a node; None: it has none."""
    for metric in payload.metrics:
        if metric.name == BDSEQ and isinstance(metric.value, int):
            return metric.value
    return None
