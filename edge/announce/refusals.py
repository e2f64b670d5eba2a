"""Topics that the broker refuses: some brokers report that only by closing the connection."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

QUIET: Final = 0.2
"""Seconds after the acknowledgement of a message within which a broker closes the connection if it refuses it.

Mosquitto 2.0.11 acknowledges a message with MQTT 3.1.1 that its access control list forbids, and closes at once.
"""
_FIRST: Final = 10.0
"""Seconds until a topic is tried again after it was suspected once: the connection may have been lost by chance."""
_LONG: Final = 600.0
"""Seconds until a refused topic is tried again."""
_CAREFUL: Final = 10.0
"""Seconds without a lost connection after which several messages are sent at a time again."""
_ALIKE: Final = 3
"""Refusals in a row in one group, with none of its messages accepted, after which all its topics count as refused."""


class Refusals:
    """Finds out which topics the broker refuses. Not thread-safe. It reads no clock: `now` is passed in seconds.

    After a connection was lost shortly after a message, messages are sent one at a time: the last one is the cause.
    Access control lists usually forbid all topics with one beginning, so topics have groups.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        """End of the wait by refused topic."""
        self._groups: dict[str, float] = {}
        """End of the wait by refused group."""
        self._suspected: dict[str, int] = {}
        """How often in a row a topic was the last one before a connection was lost."""
        self._in_a_row: dict[str, int] = {}
        self._last: tuple[str, str, float] | None = None
        """Topic, group and time of the last acknowledgement, until the message is known to be accepted."""
        self._is_explained = False
        """Whether the broker has reported a refusal on this connection, which it may close for that reason."""
        self._careful_until = 0.0
        self._fault = ""

    @property
    def fault(self) -> str:
        """The problem; empty: the broker refuses nothing."""
        return self._fault if self._until or self._groups else ""

    @property
    def topics(self) -> Collection[str]:
        """Topics that are not published at present, except those of refused groups."""
        return self._until.keys()

    @property
    def groups(self) -> Collection[str]:
        """Groups of which nothing is published at present."""
        return self._groups.keys()

    def is_careful(self, now: float) -> bool:
        """Whether one message is sent at a time, each `QUIET` seconds after the one before was acknowledged."""
        return now < self._careful_until

    def holds(self, topic: str, group: str) -> bool:
        """Whether a topic is not published at present."""
        return topic in self._until or group in self._groups

    def acknowledged(self, topic: str, group: str, now: float) -> None:
        """Note that the broker took a message, or reports so."""
        self.settle(now)
        if self._last is not None and self._last[:2] != (topic, group):
            # It processes them in their order, so it did not close the connection because of the one before.
            self._accepted(*self._last[:2])
        self._last = topic, group, now

    def refused(self, topic: str, group: str, reason: str, now: float) -> None:
        """Note that the broker reports that it refuses a message."""
        if self._last is not None:
            self._accepted(*self._last[:2])
        self._last, self._is_explained = None, True
        self._fault = f"the broker refuses {topic}: {reason}"
        self._until[topic] = now + _LONG
        self._count(group, now)

    def lost(self, sent: list[tuple[str, str]], now: float) -> None:
        """Note that the connection was lost. `sent`: unacknowledged topics with their groups, in their order."""
        self.settle(now)
        last, self._last = self._last, None
        is_explained, self._is_explained = self._is_explained, False
        cause = last[:2] if last is not None else (sent[0] if len(sent) == 1 else None)
        if is_explained or (last is None and not sent):
            return
        if self.is_careful(now) and cause is not None:
            self._suspect(*cause, now)
        self._careful_until = math.inf

    def connected(self, now: float) -> None:
        """Note a new connection: if the one before was lost after a message, the next ones are sent one at a time."""
        if math.isinf(self._careful_until):
            self._careful_until = now + _CAREFUL

    def settle(self, now: float) -> None:
        """Note that the connection still stands: the last message is accepted if that is some time ago."""
        if self._last is not None and now - self._last[2] >= QUIET:
            topic, group, _ = self._last
            self._last = None
            self._accepted(topic, group)

    def released(self, now: float) -> tuple[set[str], set[str]]:
        """Return the topics and the groups whose wait has ended."""
        topics = {each for each, end in self._until.items() if end <= now}
        groups = {each for each, end in self._groups.items() if end <= now}
        if topics or groups:
            self._careful_until = now + _CAREFUL
        for each in topics:
            del self._until[each]
        for each in groups:
            del self._groups[each]
        return topics, groups

    def wait(self, now: float) -> float | None:
        """Return the seconds until a wait ends; None: nothing is refused."""
        ends = [*self._until.values(), *self._groups.values()]
        return max(0.0, min(ends) - now) if ends else None

    def _accepted(self, topic: str, group: str) -> None:
        self._suspected.pop(topic, None)
        self._in_a_row.pop(group, None)

    def _suspect(self, topic: str, group: str, now: float) -> None:
        self._suspected[topic] = times = self._suspected.get(topic, 0) + 1
        self._until[topic] = now + (_FIRST if times == 1 else _LONG)
        self._fault = f"the broker refuses {topic}: it closes the connection"
        self._count(group, now)

    def _count(self, group: str, now: float) -> None:
        self._in_a_row[group] = number = self._in_a_row.get(group, 0) + 1
        if number >= _ALIKE:
            self._groups[group] = now + _LONG
