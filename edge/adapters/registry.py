"""Bounded lists of messages without effect, for the operator: unmapped topics and unreadable values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

EXCERPT = 200
"""Maximum bytes of a payload in a list."""


@dataclass(slots=True)
class _Entry:
    count: int
    excerpt: str
    last_seen: datetime


class _Register:
    """The most recent entries, at most `limit`, each with a count. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, ...], _Entry] = OrderedDict()
        self.total = 0
        """Count of all entries, including dropped ones."""

    def _count(self, key: tuple[str, ...], payload: bytes, seen: datetime, times: int = 1) -> None:
        with self._lock:
            self.total += times
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry(times, excerpt(payload), seen)
                if len(self._entries) > self._limit:
                    self._entries.popitem(last=False)
                return
            entry.count += times
            entry.excerpt = excerpt(payload)
            entry.last_seen = seen
            self._entries.move_to_end(key)

    def _listed(self, *names: str) -> list[dict[str, object]]:
        """Most recent first."""
        with self._lock:
            return [
                {
                    **dict(zip(names, key, strict=True)),
                    "count": entry.count,
                    "last_payload": entry.excerpt,
                    "last_seen": entry.last_seen.isoformat(timespec="milliseconds"),
                }
                for key, entry in reversed(self._entries.items())
            ]


class UnmappedTopics(_Register):
    """Topics without a matching mapping."""

    def add(self, topic: str, payload: bytes, seen: datetime) -> None:
        """Count one message."""
        self._count((topic,), payload, seen)

    def discard(self, topic: str) -> None:
        """Remove a topic that has a mapping now."""
        if (topic,) in self._entries:
            with self._lock:
                self._entries.pop((topic,), None)

    def listed(self) -> list[dict[str, object]]:
        """`topic`, `count`, `last_payload` (excerpt), `last_seen` (ISO 8601), most recent first."""
        return self._listed("topic")


class BadValues(_Register):
    """Values that a mapping matched but could not read, or that are not valid RDF."""

    def add(self, topic: str, mapping: str, reason: str, payload: bytes, seen: datetime, times: int = 1) -> None:
        """Count one bad value, or several of the same kind."""
        self._count((topic, mapping, reason), payload, seen, times)

    def listed(self) -> list[dict[str, object]]:
        """`topic`, `mapping`, `reason`, `count`, `last_payload`, `last_seen` (ISO 8601); most recent first."""
        return self._listed("topic", "mapping", "reason")


def excerpt(payload: bytes) -> str:
    """Return the beginning of a payload as text."""
    text = payload[:EXCERPT].decode("utf-8", errors="replace")
    return text + "…" if len(payload) > EXCERPT else text
