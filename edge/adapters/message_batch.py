"""Messages and readings of one transaction: those of several small messages, or a part of a large one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edge.adapters.messages import MqttMessage
from edge.adapters.planner import Arrival
from edge.adapters.redelivery import NEW_SESSION


@dataclass(slots=True)
class MessageBatch:
    """Messages that are committed together, with their readings."""

    messages: list[MqttMessage] = field(default_factory=list)
    readings: list[list[Arrival]] = field(default_factory=list)
    """The readings of each message."""
    committed: int = 0
    """For a part of a message: the number of readings of the message that are committed with it. 0: the batch completes
    its messages.
    """

    @property
    def arrivals(self) -> list[Arrival]:
        """The readings of all messages."""
        return [arrival for arrivals in self.readings for arrival in arrivals]

    @property
    def is_new_session(self) -> bool:
        """Whether it only invalidates the earlier receipts."""
        return self.messages[0].receipt == NEW_SESSION

    def add(self, message: MqttMessage, arrivals: list[Arrival]) -> None:
        """Add a mapped message."""
        self.messages.append(message)
        self.readings.append(arrivals)


def divide(
    message: MqttMessage, arrivals: Sequence[Arrival], written: Sequence[Arrival], size: int
) -> list[MessageBatch]:
    """Divide a message into parts of at most `size` readings, in order.

    `arrivals` are its readings that are not committed yet, and `written` those of them to be written. The counts of the
    parts refer to all readings of the message, because a later delivery is mapped again: its readings may all have to
    be written.
    """
    numbers = {id(arrival): number for number, arrival in enumerate(arrivals, message.committed + 1)}
    parts = [written[start : start + size] for start in range(0, len(written), size)]
    batches = [MessageBatch([message], [list(part)], numbers[id(part[-1])]) for part in parts]
    batches[-1].committed = 0
    return batches
