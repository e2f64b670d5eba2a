"""Messages that wait to be sent: the newest of each topic, at no more than a rate, until they are acknowledged."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from edge.mapping.actuators import Command

WINDOW = 20
"""Messages that may be unacknowledged at a time: what paho and brokers take without being asked."""


_LOSSES = 3
"""Connections that may end while a message is on its way, until it is given up as their cause."""


class _Entry(NamedTuple):
    command: Command
    interval: float
    losses: int = 0
    """Connections that ended while it was on its way."""


class ActuationQueue:
    """A bounded queue. Not thread-safe; it knows no clock: `now` is given, in seconds.

    Of each topic only the newest message waits, in the place of the first, and it is sent when the one before is
    acknowledged and the topic's interval is over. So the messages of a topic never overtake each other.

    A broker may close the connection of who sends what it does not allow (MQTT 3.1.1, section 3.3.5). Messages that
    were on their way when a connection ended are therefore sent last, one at a time, so that the culprit shows.
    """

    def __init__(self, rate: float, limit: int) -> None:
        """`rate`: messages a second over all topics. `limit`: topics that may wait."""
        self._spacing = 1 / rate
        self._limit = limit
        self._waiting: dict[str, _Entry] = {}
        self._ready: dict[str, None] = {}
        self._sent: dict[str, tuple[_Entry, float]] = {}
        self._resting: set[str] = set()
        self._ends: list[tuple[float, str]] = []
        self._free = 0.0
        self.conflated = 0
        """Messages that were never sent, since a newer one for their topic came before their turn."""

    def __len__(self) -> int:
        """Messages that wait or are not acknowledged."""
        return len(self._waiting) + len(self._sent)

    def put(self, command: Command, interval: float) -> bool:
        """Have a message sent; its topic then rests for `interval` seconds. False: too many wait."""
        topic = command.topic
        known = self._waiting.get(topic)
        if known is None and len(self._waiting) >= self._limit:
            return False
        if known is not None and known.command != command:
            self.conflated += 1
        if known is None or known.command != command:
            self._waiting[topic] = _Entry(command, interval)
        self._file(topic)
        return True

    def due(self, now: float) -> Command | None:
        """A message whose turn it is. It counts as sent from now on."""
        while self._ends and self._ends[0][0] <= now:
            _, topic = heapq.heappop(self._ends)
            self._resting.discard(topic)
            self._file(topic)
        if not self._ready or now < self._free or self._must_wait():
            return None
        topic = next(iter(self._ready))
        del self._ready[topic]
        entry = self._waiting.pop(topic)
        self._sent[topic] = (entry, now)
        self._resting.add(topic)
        heapq.heappush(self._ends, (now + entry.interval, topic))
        self._free = now + self._spacing
        return entry.command

    def wait(self, now: float) -> float | None:
        """Seconds until `due` may have something, as far as time decides; None: it does not."""
        if not self._waiting or self._must_wait():
            return None
        if self._ready:
            return max(0.0, self._free - now)
        return max(0.0, self._free - now, self._ends[0][0] - now) if self._ends else None

    def done(self, topic: str) -> Command | None:
        """The message of this topic was acknowledged, or given up. Returns it."""
        sent = self._sent.pop(topic, None)
        self._file(topic)
        return None if sent is None else sent[0].command

    def unanswered_since(self) -> float | None:
        """When the message was sent that waits longest for its acknowledgement."""
        return next((sent for _, sent in self._sent.values()), None)

    def lost(self) -> list[Command]:
        """The connection is gone: what was not acknowledged is sent again, unless something newer waits.

        Returns what is given up: messages that were alone on their way whenever connections ended.
        """
        given_up = []
        for topic, (entry, _) in self._sent.items():
            if topic in self._waiting:
                continue
            if entry.losses + 1 >= _LOSSES:
                given_up.append(entry.command)
            else:
                self._waiting[topic] = entry._replace(losses=entry.losses + 1)
        self._sent.clear()
        self._ready = {topic: None for topic in self._waiting if topic not in self._resting}
        return given_up

    def withdraw(self, actuator: str) -> None:
        """An actuator is no more: what it would have sent is not sent."""
        for topic in [topic for topic, entry in self._waiting.items() if entry.command.actuator == actuator]:
            del self._waiting[topic]
            self._ready.pop(topic, None)

    def _must_wait(self) -> bool:
        """Whether an acknowledgement must come before anything is sent."""
        if not self._sent:
            return False
        suspected = any(entry.losses for entry, _ in self._sent.values())
        topic = next(iter(self._ready), None)
        return suspected or len(self._sent) >= WINDOW or (topic is not None and self._waiting[topic].losses > 0)

    def _file(self, topic: str) -> None:
        if topic in self._waiting and topic not in self._sent and topic not in self._resting:
            self._ready.setdefault(topic)
