"""Encoded notifications that are kept while the attempts to send them repeat."""

from __future__ import annotations

from typing import Final

from edge.streams.observer import StoredReport

MOST: Final = 16 * 1024 * 1024
"""Bytes of kept notifications and their reports."""


class KeptNotifications:
    """The last failed notification of each observer. The oldest ones are dropped beyond a bound. Not thread-safe."""

    def __init__(self, most: int = MOST) -> None:
        """`most`: bytes of all notifications and their reports."""
        self._most = most
        self._kept: dict[str, tuple[StoredReport, bytes]] = {}
        self.size = 0
        """Bytes of the kept notifications and their reports."""

    def find(self, observer: str, report: StoredReport) -> bytes | None:
        """Return the notification of a report. A report that was merged meanwhile has another one."""
        found = self._kept.get(observer)
        return found[1] if found is not None and found[0] == report else None

    def keep(self, observer: str, report: StoredReport, body: bytes) -> None:
        """Keep the notification of a report in place of the earlier one of the observer."""
        self.drop(observer)
        size = len(report.body) + len(body)
        if size > self._most:
            return
        self._kept[observer] = (report, body)
        self.size += size
        while self.size > self._most:
            self.drop(next(iter(self._kept)))

    def drop(self, observer: str) -> None:
        """Forget the notification of an observer, if one is kept."""
        found = self._kept.pop(observer, None)
        if found is not None:
            self.size -= len(found[0].body) + len(found[1])
