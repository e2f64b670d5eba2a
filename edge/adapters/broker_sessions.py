"""Messages that the embedded broker keeps for the connections of devices: those of QoS 2 that are not released.

amqtt keeps such a message until its sender sends PUBREL (MQTT 3.1.1, section 4.3.3), without a limit.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

_OVERHEAD: Final = 2_000
"""Bytes that a message takes besides its payload and topic: its packets, and the task that waits."""


class UnfinishedBudget:
    """Limit of the bytes of all unfinished messages. Beyond it, the connection with most of them is closed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0
        self._owners: dict[int, UnfinishedMessages] = {}

    def change(self, of: UnfinishedMessages, amount: int) -> None:
        """Add to the bytes of a connection; `amount` may be negative."""
        self._total += amount
        of.size += amount
        if of.size:
            self._owners[id(of)] = of
        else:
            self._owners.pop(id(of), None)
        if amount > 0 and self._total > self._limit:
            max(self._owners.values(), key=lambda each: each.size).refuse()


class UnfinishedMessages(OrderedDict[int, Any]):
    """Unfinished messages of a connection by packet identifier, in the form in which amqtt stores them."""

    def __init__(self, budget: UnfinishedBudget, refuse: Callable[[], None]) -> None:
        """`refuse`: closes the connection."""
        super().__init__()
        self._budget = budget
        self.refuse = refuse
        self.size = 0
        """Their bytes."""

    def __setitem__(self, key: int, message: Any) -> None:  # noqa: ANN401 - amqtt has no types
        self._count(key, -1)
        super().__setitem__(key, message)
        self._count(key, 1)

    def __delitem__(self, key: int) -> None:
        self._count(key, -1)
        super().__delitem__(key)

    def _count(self, key: int, sign: int) -> None:
        if key in self:
            message = self[key]
            self._budget.change(self, sign * (len(message.data) + sys.getsizeof(message.topic) + _OVERHEAD))

    def adopt(self, others: OrderedDict[int, Any]) -> None:
        """Take over the messages of the earlier connection of a session."""
        while others:
            key = next(iter(others))
            self[key] = others[key]
            del others[key]

    def release(self) -> None:
        """Free payloads and topics. The tasks that waited for PUBREL refer to each other, so they may stay."""
        while self:
            key = next(iter(self))
            message = self[key]
            del self[key]
            message.data, message.topic, message.publish_packet = b"", "", None
