"""Recent history of the gateway: starts and stops it, with the permissions of clients and the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from edge.config import Settings
from edge.engine.clock import SystemClock
from edge.engine.scheduling.scheduler import Scheduler
from edge.metrics import Metrics
from edge.protocol.access import Access
from edge.protocol.event_stream import NodeName, StreamNode, StreamOutline
from edge.protocol.series import SeriesExtent, SeriesRequest, SeriesResult
from edge.recent.recent_history import RecentHistory


class Recent:
    """The recent history, with permissions and metrics."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """The data directory is not touched before `start`."""
        clock = SystemClock(settings.engine.trust_clock)
        self._history = RecentHistory(settings.data_dir, settings.recent, clock)
        self._timeout = settings.shutdown.timeout * 0.2
        watch, history = metrics.watch, self._history
        watch("recent_bytes", "Disk space of the recent history in bytes.", lambda: history.bytes)
        watch("recent_up", "Whether recent values can be written: 1 or 0.", lambda: not history.failing)
        watch("recent_removed_files", "Files removed because of recent.max_bytes.", lambda: history.removed)
        watch("recent_damaged_files", "Damaged files and blocks found.", lambda: history.damaged)
        watch("recent_skipped_values", "Values that cannot be recorded.", lambda: history.skipped)
        watch("recent_lost_values", "Values lost because the disk failed.", lambda: history.lost)

    async def start(self, engine: Scheduler) -> None:
        """Record the changes of an engine. One in rescue mode has none; its recent history can still be read."""
        await asyncio.to_thread(self._history.start, None if engine.read_only else engine)

    async def stop(self) -> None:
        """Write all values. Called when the engine has ended, so that its last updates are included."""
        await asyncio.to_thread(self._history.stop, self._timeout)

    def series(self, request: SeriesRequest, access: Access, timeout: float) -> Sequence[SeriesResult]:
        """Return the requested series that the client may read. Raises `EdgeError`."""
        return self._history.read(request, access.reads, timeout)

    def available(self, access: Access, timeout: float) -> Sequence[SeriesExtent]:
        """Return all series that the client may read. Raises `EdgeError`."""
        return self._history.available(access.reads, timeout)

    def outline(self, timeout: float) -> StreamOutline:
        """Return the sections of the event stream. Raises `EdgeError`."""
        return self._history.outline(timeout)

    def node(self, name: NodeName, access: Access, timeout: float) -> StreamNode:
        """Return a section of the event stream, or a page as far as the client may read it. Raises `EdgeError`."""
        return self._history.node(name, access.reads, timeout)

    def to_message(self) -> Mapping[str, object]:
        """Return the state for the health report."""
        history = self._history
        return {
            "state": "fails" if history.failing else "records",
            "reason": history.failing,
            "bytes": history.bytes,
            "removed": history.removed,
            "damaged": history.damaged,
            "lost": history.lost,
        }
