"""Rate limit of log lines: one mechanism for every line that clients can cause again and again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

BURST: Final = 20
"""Lines that one source may write at once."""
INTERVAL: Final = 30.0
"""Seconds until a source may write one more line."""
QUIET: Final = 60.0
"""Seconds after the last suppressed line of a source, from which on a summary reports how many there were."""
_SOURCES: Final = 1000
"""Tracked sources; fewer statements log. Beyond this number all are reset."""

_Source = tuple[str, str, int]


@dataclass(slots=True)
class _Bucket:
    """Token bucket of one source."""

    tokens: float
    updated: float
    suppressed: int = 0
    event: str = ""
    """Text of the last suppressed line."""


class LineLimit:
    """Token bucket for each source of log lines; a source is a logger and the statement that logs.

    Libraries put client addresses and ids into their texts, so the text cannot identify a source. Lines of level debug
    always pass: an operator who asks for them wants all of them.
    """

    def __init__(self) -> None:
        self._buckets: dict[_Source, _Bucket] = {}

    def passes(self, record: logging.LogRecord) -> bool:
        """Whether to write a record. The first one after a gap gets the member `suppressed`, the length of the gap."""
        if record.levelno < logging.INFO:
            return True
        bucket = self._bucket(record)
        # The machine's clock may be set back; a time that is in the future then counts as now.
        elapsed = max(0.0, record.created - bucket.updated)
        bucket.tokens = min(BURST, bucket.tokens + elapsed / INTERVAL)
        bucket.updated = record.created
        if bucket.tokens < 1:
            bucket.suppressed += 1
            bucket.event = str(record.msg)[:200]
            return False
        bucket.tokens -= 1
        if bucket.suppressed:
            record.suppressed = bucket.suppressed
            bucket.suppressed = 0
        return True

    def summaries(self, now: float | None = None) -> Iterator[logging.LogRecord]:
        """Yield a record for each source that has been quiet since it was suppressed; None: for all sources."""
        for (name, path, line), bucket in self._buckets.items():
            if bucket.suppressed and (now is None or now - bucket.updated >= QUIET):
                record = logging.LogRecord(name, logging.WARNING, path, line, "log.suppressed", (), None)
                record.of = bucket.event
                record.suppressed = bucket.suppressed
                bucket.suppressed = 0
                yield record

    def _bucket(self, record: logging.LogRecord) -> _Bucket:
        source = (record.name, record.pathname, record.lineno)
        bucket = self._buckets.get(source)
        if bucket is None:
            if len(self._buckets) >= _SOURCES:
                self._buckets.clear()
            bucket = self._buckets[source] = _Bucket(BURST, record.created)
        return bucket
