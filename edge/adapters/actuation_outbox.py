"""Queue of commands: keeps the newest command of each topic until it is acknowledged, with rate limits."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from edge.mapping.actuators import Command

WINDOW = 20
"""Maximum number of unacknowledged messages; paho and common brokers accept this many by default."""


_LOSSES = 3
"""Number of lost connections after which an unacknowledged message is discarded as their probable cause."""


class _Entry(NamedTuple):
    command: Command
    interval: float
    losses: int = 0
    """Connections that were lost while the command was unacknowledged."""


class ActuationQueue:
    """Bounded queue of commands. Not thread-safe. It reads no clock: `now` is passed in seconds.

    Only the newest command of each topic waits, at the position of the first. It is sent after the previous command
    is acknowledged and the interval of the topic has passed. Commands of one topic therefore never overtake each
    other.

    A broker may close the connection when it refuses a message (MQTT 3.1.1, section 3.3.5). Messages that were
    unacknowledged when a connection was lost are therefore sent last and one at a time, to find the cause.
    """

    def __init__(self, rate: float, limit: int) -> None:
        """`rate`: messages per second over all topics. `limit`: maximum number of waiting topics."""
        self._spacing = 1 / rate
        self._limit = limit
        self._waiting: dict[str, _Entry] = {}
        self._ready: dict[str, None] = {}
        self._sent: dict[str, tuple[_Entry, float]] = {}
        self._resting: set[str] = set()
        self._ends: list[tuple[float, str]] = []
        self._free = 0.0
        self.conflated = 0
        """Commands that a newer one with the same topic replaced before they were sent."""

    def __len__(self) -> int:
        """Commands that wait or are not acknowledged."""
        return len(self._waiting) + len(self._sent)

    @property
    def is_ready(self) -> bool:
        """Whether a command waits for nothing but the rate limit and acknowledgements of other topics."""
        return bool(self._ready)

    def put(self, command: Command, interval: float) -> bool:
        """Queue a command; its topic then pauses for `interval` seconds. False: the queue is full."""
        topic = command.topic
        known = self._waiting.get(topic)
        if known is None and len(self._waiting) >= self._limit:
            return False
        if known is not None and known.command != command:
            self.conflated += 1
        if known is None or known.command != command:
            self._waiting[topic] = _Entry(command, interval)
        self._update_ready(topic)
        return True

    def due(self, now: float) -> Command | None:
        """Return the next command to send, or None. It counts as sent from now on."""
        while self._ends and self._ends[0][0] <= now:
            _, topic = heapq.heappop(self._ends)
            self._resting.discard(topic)
            self._update_ready(topic)
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
        """Return the seconds until `due` can return a command; None: that depends on an acknowledgement."""
        if not self._waiting or self._must_wait():
            return None
        if self._ready:
            return max(0.0, self._free - now)
        return max(0.0, self._free - now, self._ends[0][0] - now) if self._ends else None

    def done(self, topic: str) -> Command | None:
        """Remove the sent command of this topic after its acknowledgement or refusal. Returns it."""
        sent = self._sent.pop(topic, None)
        self._update_ready(topic)
        return None if sent is None else sent[0].command

    def put_back(self, topic: str) -> None:
        """Queue the sent command of this topic again, unless a newer one waits."""
        sent = self._sent.pop(topic, None)
        if sent is not None:
            self._waiting.setdefault(topic, sent[0])
        self._update_ready(topic)

    def unanswered_since(self) -> float | None:
        """Time at which the oldest unacknowledged command was sent; None without one."""
        return next((sent for _, sent in self._sent.values()), None)

    def lost(self) -> list[Command]:
        """Queue unacknowledged commands again after the connection was lost, unless a newer one waits.

        Returns the discarded commands: those that were sent alone each time a connection was lost.
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

    def discard_equal(self, command: Command) -> None:
        """Discard a command that waits, because an equal one has arrived."""
        known = self._waiting.get(command.topic)
        if known is not None and known.command == command:
            del self._waiting[command.topic]
            self._ready.pop(command.topic, None)

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        for topic in [topic for topic, entry in self._waiting.items() if entry.command.actuator == actuator]:
            del self._waiting[topic]
            self._ready.pop(topic, None)

    def discard(self, topic: str) -> bool:
        """Discard the waiting command of a topic. Returns whether there was one."""
        self._ready.pop(topic, None)
        return self._waiting.pop(topic, None) is not None

    def _must_wait(self) -> bool:
        """Whether nothing can be sent before an acknowledgement."""
        if not self._sent:
            return False
        suspected = any(entry.losses for entry, _ in self._sent.values())
        topic = next(iter(self._ready), None)
        return suspected or len(self._sent) >= WINDOW or (topic is not None and self._waiting[topic].losses > 0)

    def _update_ready(self, topic: str) -> None:
        if topic in self._waiting and topic not in self._sent and topic not in self._resting:
            self._ready.setdefault(topic)
