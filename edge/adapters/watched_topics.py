"""The newest messages of the topics that an operator watches, to test a mapping. Of other topics nothing is kept."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edge.adapters.registry import SAMPLE
from edge.protocol.errors import InvalidRequest, TooManyRequests

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

        Raises `InvalidRequest`, and `TooManyRequests` if `MOST` other filters are watched.
        """
        matches, now = _pattern(topic_filter), self._clock()
        with self._lock:
            running = tuple(each for each in self.watches if each.end > now)
            watch = next((each for each in running if each.topic_filter == topic_filter), None)
            if watch is None:
                if len(running) >= MOST:
                    wait = math.ceil(min(each.end for each in running) - now)
                    raise TooManyRequests(
                        f"{MOST} topic filters are watched already; one of them ends {WATCHED:.0f} s after its last"
                        " request. Try again later, or watch one filter with wildcards",
                        retry_after=wait,
                    )
                watch = _Watch(topic_filter, matches, now)
                running = (*running, watch)
            watch.end = now + WATCHED
            self.watches = running
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
    # A wildcard at the beginning does not match topics of the broker itself, such as $SYS.
    start = r"(?!\$)" if levels[0] in ("+", "#") else ""
    if levels == ["#"]:
        return re.compile(f"{start}.*", re.DOTALL).fullmatch
    if levels[-1] == "#":  # also the level above it
        above = "/".join(patterns[:-1])
        return re.compile(f"{start}{above}(?:/.*)?", re.DOTALL).fullmatch
    return re.compile(start + "/".join(patterns), re.DOTALL).fullmatch
