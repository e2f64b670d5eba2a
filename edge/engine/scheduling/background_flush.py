"""Flush the journal on a thread of its own, while updates continue.

With the durability "interval" a flush is due every second. On an SD card it takes up to a few hundred milliseconds,
in which no update would run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from edge.engine.journal.journal import Journal
from edge.engine.journal.ledger import Ledger
from edge.engine.scheduling.work import Task, settle
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)


class BackgroundFlush:
    """The flushes of a journal, one at a time. Only the writer calls its methods."""

    def __init__(self, journal: Journal, ledger: Ledger | None, put: Callable[[Task[None]], None]) -> None:
        """`put`: gives the writer a task. It may raise an `EdgeError` when the gateway stops."""
        self._journal = journal
        self._ledger = ledger
        self._put = put
        self._thread = ThreadPoolExecutor(1, "flush")
        self._flush: Future[None] | None = None
        """The flush that was begun, until `end` has taken its result."""
        self._failing = False

    def begin(self, *, background: bool) -> None:
        """Flush all commits so far, in the background or before it returns.

        If the last flush still runs, it waits for it first: so a power cut loses the commits of two intervals at most.
        """
        self.end()
        self._journal.begin_flush()
        if self._ledger is not None:
            self._ledger.begin_flush()
        if background:
            self._flush = self._thread.submit(self._journal.sync)
            self._flush.add_done_callback(self._put_end)
        else:
            self._flush = Future()
            settle(self._flush, self._journal.sync)
            self.end()

    def end(self) -> None:
        """Take the result of the flush that was begun, if one was. Waits until it has ended."""
        if self._flush is None:
            return
        error = self._flush.exception()
        self._flush = None
        if error is not None:
            self._journal.flush_failed()
            if not self._failing:
                reason = error.description if isinstance(error, EdgeError) else repr(error)
                _log.error("journal.flush_failed", extra={"reason": reason})
        else:
            if self._ledger is not None:
                self._ledger.flushed()
            if self._failing:
                _log.info("journal.flush_recovered")
        self._failing = error is not None

    def close(self) -> None:
        """End the flush and the thread."""
        self.end()
        self._thread.shutdown()

    def _put_end(self, _: object) -> None:
        with contextlib.suppress(EdgeError):  # the gateway stops, and `close` takes the result
            self._put(Task(self._end_finished))

    def _end_finished(self) -> None:
        if self._flush is not None and self._flush.done():  # `begin` may have taken the result, and begun another
            self.end()
