"""Announcements of devices that Home Assistant reads itself: their values are not announced a second time."""

from __future__ import annotations

from collections import Counter
from typing import Final

from edge.discovery.announcement import BadAnnouncement, is_announcement, read_announcement
from edge.discovery.entities import observed_by

_MOST: Final = 20_000
"""Announcements that are known. Further ones are ignored."""


class ForeignAnnouncements:
    """Topics whose values others have announced."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}/"
        self._topics: dict[str, frozenset[str]] = {}
        """Topics of values by the topic of their announcement."""
        self._count: Counter[str] = Counter()

    def __contains__(self, topic: str) -> bool:
        return topic in self._count

    def is_one(self, topic: str) -> bool:
        """Whether this is the topic of an announcement."""
        return is_announcement(topic, self._prefix)

    def take(self, topic: str, payload: bytes) -> set[str]:
        """Note an announcement; an empty one is removed. Returns the topics that others announce since, or no more."""
        old, new = self._topics.get(topic, frozenset()), self._read(topic, payload)
        if not old and len(self._topics) >= _MOST:
            return set()
        if new:
            self._topics[topic] = new
        else:
            self._topics.pop(topic, None)
        before = {each for each in old ^ new if each in self._count}
        self._count.update(new - old)
        self._count.subtract(old - new)
        for each in old - new:
            if not self._count[each]:
                del self._count[each]
        return {each for each in old ^ new if (each in self._count) != (each in before)}

    def _read(self, topic: str, payload: bytes) -> frozenset[str]:
        if not payload:
            return frozenset()
        try:
            announcement = read_announcement(topic, self._prefix, payload.decode())
        except (BadAnnouncement, UnicodeDecodeError):
            return frozenset()  # Home Assistant does not understand it either
        return frozenset(observed.topic for entity in announcement.entities for observed in observed_by(entity))
