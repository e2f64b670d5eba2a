"""Bounded lists of messages without effect, for the operator: unmapped topics and unreadable values."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

EXCERPT = 200
"""Maximum bytes of a payload in a list."""
SAMPLE = 4096
"""Maximum bytes of an unmapped payload that is kept whole, as a sample for a mapping."""


@dataclass(slots=True)
class _Entry:
    count: int
    payload: bytes
    """Of the last message: one byte more than the limit, if it is longer."""
    last_seen: datetime

    def listed(self) -> dict[str, object]:
        return {
            "count": self.count,
            "last_payload": excerpt(self.payload),
            "last_seen": self.last_seen.isoformat(timespec="milliseconds"),
        }


class _Register:
    """The most recent entries, at most `limit`, each with a count. Thread-safe."""

    _most = EXCERPT
    """Bytes of a payload that an entry keeps."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, ...], _Entry] = OrderedDict()
        self.total = 0
        """Count of all entries, including dropped ones."""

    def _count(self, key: tuple[str, ...], payload: bytes, seen: datetime, times: int = 1) -> None:
        payload = payload[: self._most + 1]
        with self._lock:
            self.total += times
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry(times, payload, seen)
                if len(self._entries) > self._limit:
                    self._entries.popitem(last=False)
                return
            entry.count += times
            entry.payload = payload
            entry.last_seen = seen
            self._entries.move_to_end(key)

    def _listed(self, *names: str) -> list[dict[str, object]]:
        """Most recent first."""
        with self._lock:
            return [
                {**dict(zip(names, key, strict=True)), **entry.listed()}
                for key, entry in reversed(self._entries.items())
            ]


class UnmappedTopics(_Register):
    """Topics without a matching mapping."""

    _most = SAMPLE

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

    def sample(self, topic: str) -> dict[str, object] | None:
        """Return the entry of a topic with its last payload: `hex`, and `payload` if it is text. None: it has no entry.

        Both are null if the payload is longer than `SAMPLE` bytes.
        """
        with self._lock:
            entry = self._entries.get((topic,))
        if entry is None:
            return None
        return {"topic": topic, **entry.listed(), **whole(entry.payload)}


class BadValues(_Register):
    """Values that a mapping matched but could not read, or that are not valid RDF."""

    def add(self, topic: str, mapping: str, reason: str, payload: bytes, seen: datetime, times: int = 1) -> None:
        """Count one bad value, or several of the same kind."""
        self._count((topic, mapping, reason), payload, seen, times)

    def listed(self) -> list[dict[str, object]]:
        """`topic`, `mapping`, `reason`, `count`, `last_payload`, `last_seen` (ISO 8601); most recent first."""
        return self._listed("topic", "mapping", "reason")


def whole(payload: bytes) -> dict[str, object]:
    """Return a payload as `hex`, and as `payload` if it is text; of more than `SAMPLE` bytes, both null."""
    found: dict[str, object] = {"payload": None, "hex": None}
    if len(payload) <= SAMPLE:
        found["hex"] = payload.hex()
        with contextlib.suppress(UnicodeDecodeError):
            found["payload"] = payload.decode()
    return found


def excerpt(payload: bytes) -> str:
    """Return the beginning of a payload as text."""
    text = payload[:EXCERPT].decode("utf-8", errors="replace")
    return text + "…" if len(payload) > EXCERPT else text
