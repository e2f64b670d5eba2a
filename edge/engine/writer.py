"""The writer: one thread that carries out what was asked, in the order of the queue.

Work that waited shares one commit; nothing that it caused leaves before that. An update is processed to its end,
subscriptions included, before the next begins.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from edge.engine.clock import Clock
from edge.engine.engine import Engine
from edge.engine.journal import Entry, Journal
from edge.engine.kept import KeptSubscriptions
from edge.engine.ledger import Ledger
from edge.engine.request_queue import RequestQueue
from edge.engine.settings import EngineSettings
from edge.engine.timers import Timers
from edge.engine.work import Fire, Rights, Task, Work, entries
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)

_RETRY: Final = 10.0
"""Seconds until it is tried whether something can be stored again."""


class Writer:
    """The thread, and what it looks after: the journal, the delayed updates and the subscriptions that are kept."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        timers: Timers,
        kept: KeptSubscriptions,
        queue: RequestQueue,
        settings: EngineSettings,
        clock: Clock,
        rights: Rights,
        ledger: Ledger | None,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._timers = timers
        self._kept = kept
        self._queue = queue
        self._clock = clock
        self._rights = rights
        self._ledger = ledger
        self._flush_interval = settings.flush_interval if settings.durability == "interval" else None
        self._flush_at = 0.0
        self._flush_failing = False
        self._busy_since: float | None = None
        self._retry_at = 0.0
        self.storing = False
        """Whether it waits for the disk."""
        self.storage_failing = ""
        """Why the last commit failed; empty: it did not."""
        for work in self._due():  # overdue ones go before all that is asked from now on
            queue.put(work)
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it works."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait until it has ended, `timeout` seconds at the most."""
        self._thread.join(timeout)

    @property
    def busy_seconds(self) -> float:
        """How long it has been at what it does now; 0 while it waits for something to do."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def _write(self) -> None:
        while True:
            work = self._queue.take(self._wait(), self._due)
            if work is None:
                break
            self._busy_since = time.monotonic()
            if isinstance(work, Task):
                work.run()
            elif work:
                self._run(work)
                self._queue.done(work)
            elif self._kept.urgent:  # many that begin at once are one commit
                self._store_kept()
            self._look_after_storage()
            self._busy_since = None
        for close in (self._kept.close, self._journal.close):
            try:
                close()
            except EdgeError as error:
                _log.error("journal.close_failed", extra={"reason": error.description})

    def _wait(self) -> float | None:
        if self._kept.urgent:
            return 0.0
        retry = _RETRY if self.storage_failing else None
        times = [seconds for seconds in (self._flush_interval, self._timers.wait(), retry) if seconds is not None]
        return min(times, default=None)

    def _due(self) -> list[Work]:
        return [Fire(self._engine, self._timers, self._rights, waiting) for waiting in self._timers.due()]

    def _run(self, batch: Sequence[Work]) -> None:
        now = self._clock.wall()
        engine, timers = self._engine, self._timers
        done = [work for work in batch if _execute(work, now)]
        stored = [entry for work in done for entry in entries(work, now)]
        executed = [step for work in done for step in work.executed]
        ledger = self._ledger if self._ledger is not None and self._ledger.changed else None
        writes = bool(stored or timers.changed or ledger is not None)
        try:
            if writes:
                others = timers.changed or self._kept.changed or ledger is not None
                self._commit(stored, self._write_others if others else None)
        except Exception as error:  # noqa: BLE001  whatever kept it from the disk, memory must not be ahead of it
            engine.undo(executed)
            timers.undo()
            self._note_storage(error)
            for work in done:
                work.failed(error)
            return
        if writes:
            self._kept.written()
        if timers.changed:
            timers.kept()
        if ledger is not None:
            ledger.written()
        if stored or ledger is not None:
            self._note_recovery()
        engine.show(executed)
        for work in done:
            work.done()
        engine.publish(executed)

    def _commit(self, stored: Sequence[Entry], others: Callable[[sqlite3.Connection], None] | None) -> None:
        self.storing = True
        try:
            self._journal.commit(stored, others)
        finally:
            self.storing = False

    def _write_others(self, connection: sqlite3.Connection) -> None:
        if self._timers.changed:
            self._timers.write(connection)
        if self._kept.changed:
            self._kept.write(connection)
        if self._ledger is not None and self._ledger.changed:
            self._ledger.write(connection)

    def _note_storage(self, error: Exception) -> None:
        """Log once that updates cannot be stored, not for each of them."""
        if not isinstance(error, EdgeError):
            _log.exception("journal.commit_fault")
        elif not self.storage_failing:
            _log.error("journal.commit_failed", extra={"reason": error.description})
        self.storage_failing = str(error)
        self._retry_at = time.monotonic() + _RETRY

    def _note_recovery(self) -> None:
        if self.storage_failing:
            self.storage_failing = ""
            _log.info("journal.commit_recovered")

    def _try_storage(self) -> None:
        """Whether something can be stored again, where nobody asks for it."""
        self._retry_at = time.monotonic() + _RETRY
        try:
            self._commit([], self._timers.write_anchor)
        except EdgeError as error:
            self.storage_failing = str(error)
        else:
            self._note_recovery()

    def _look_after_storage(self) -> None:
        if self._flush_interval is not None and time.monotonic() >= self._flush_at:
            self._flush_at = time.monotonic() + self._flush_interval
            self._flush()
        if self._journal.snapshot_due:
            self._snapshot()
        if self._timers.anchor_changed:
            self._store_anchor()
        if self.storage_failing and time.monotonic() >= self._retry_at:
            self._try_storage()

    def _snapshot(self) -> None:
        graph, kept, last = self._engine.graph, self._kept, self._engine.spus.last
        if self._journal.snapshot(graph.quads(), graph.named_graphs(), lambda file: kept.write_snapshot(file, last)):
            kept.written()

    def _store_kept(self) -> None:
        self._kept.urgent = False
        try:
            self._journal.commit([], self._kept.write)
        except EdgeError:
            return  # as with the next update: until then they are told anew after a restart
        self._kept.written()

    def _store_anchor(self) -> None:
        try:
            self._journal.commit([], self._timers.write)
        except EdgeError:
            return  # as with the next delayed update, or the next look
        self._timers.kept()

    def _flush(self) -> None:
        try:
            self._journal.flush()
        except EdgeError as error:
            if not self._flush_failing:
                _log.error("journal.flush_failed", extra={"reason": error.description})
            self._flush_failing = True
        else:
            if self._ledger is not None:
                self._ledger.flushed()
            if self._flush_failing:
                _log.info("journal.flush_recovered")
            self._flush_failing = False


def _execute(work: Work, now: int) -> bool:
    try:
        work.execute(now)
    except Exception as error:  # noqa: BLE001  a fault of ours must not stop the writer; the caller learns of it
        work.failed(error)
        return False
    return True
