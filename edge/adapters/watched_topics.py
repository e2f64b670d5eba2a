"""The newest messages of the topics that an operator watches, to test a mapping. Of other topics nothing is kept."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edge.adapters.registry import SAMPLE
from edge.protocol.errors import InvalidRequest

Message = tuple[str, bytes]
"""Topic and payload; of a payload with more than `SAMPLE` bytes, one byte more than that."""

MOST: Final = 8
"""Topic filters that are watched at the same time."""
WATCHED: Final = 60.0
"""Seconds that a topic filter is watched after each request."""
_LONGEST: Final = 1_000
"""Characters of a topic filter."""


@dataclass(slots=True)
class _Watch:
    topic_filter: str
    matches: Callable[[str], object]
    end: float
    """Time of the clock at which it ends, unless a client asks again."""
    message: Message | None = None


class WatchedTopics:
    """The newest message of each watched topic filter. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds."""
        self.watches: tuple[_Watch, ...] = ()
        """Empty nearly always: a message then costs the check of this attribute."""
        self._clock = clock
        self._lock = threading.Lock()

    def offer(self, topic: str, payload: bytes) -> None:
        """Keep a message for the filters that match its topic."""
        now = self._clock()
        for each in self.watches:
            if each.end <= now:
                self._forget(now)
            elif each.matches(topic):
                each.message = (topic, payload[: SAMPLE + 1])

    def newest(self, topic_filter: str) -> Message | None:
        """Watch an MQTT topic filter, and return its newest message since the watch began; None without one.

        At most `MOST` filters are watched: a further one replaces that with the oldest request. Raises
        `InvalidRequest`.
        """
        matches, now = _pattern(topic_filter), self._clock()
        with self._lock:
            others = [each for each in self.watches if each.end > now and each.topic_filter != topic_filter]
            known = (each for each in self.watches if each.end > now and each.topic_filter == topic_filter)
            watch = next(known, None) or _Watch(topic_filter, matches, now)
            watch.end = now + WATCHED
            self.watches = (*others[-MOST + 1 :], watch)
        return watch.message

    def _forget(self, now: float) -> None:
        with self._lock:
            self.watches = tuple(each for each in self.watches if each.end > now)


def _pattern(topic_filter: str) -> Callable[[str], object]:
    """Return what matches the topics of a filter (MQTT 5, section 4.7). Raises `InvalidRequest`."""
    levels = topic_filter.split("/")
    if not 0 < len(topic_filter) <= _LONGEST or any(
        ("#" in level and (level != "#" or at != len(levels) - 1)) or ("+" in level and level != "+")
        for at, level in enumerate(levels)
    ):
        raise InvalidRequest(
            f'"topic" is not an MQTT topic filter such as room/+/temperature or room/#, of 1 to {_LONGEST:,} characters'
        )
    patterns = ["[^/]*" if level == "+" else re.escape(level) for level in levels]
    if levels[-1] == "#":  # also the level above it
        above = "/".join(patterns[:-1])
        return re.compile(f"{above}(?:/.*)?" if above else ".*", re.DOTALL).fullmatch
    return re.compile("/".join(patterns), re.DOTALL).fullmatch
