"""The writer: one thread that carries out what was asked, in the order of the queue.

It takes one piece of work after the other, each time the one whose turn it is, and commits them together when the time
of a batch is over or nothing more may share the commit. Nothing that a piece caused leaves before that. An update is
processed to its end, subscriptions included, before the next begins.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from edge.engine.clock import Clock
from edge.engine.engine import Engine
from edge.engine.faults import contained
from edge.engine.journal.codec import NotRestorable
from edge.engine.journal.journal import Journal, JournalEntry
from edge.engine.journal.ledger import Ledger
from edge.engine.resume.durable_subscriptions import DurableSubscriptions
from edge.engine.scheduling.background_snapshot import BackgroundSnapshot
from edge.engine.scheduling.compile_queue import CompileQueue
from edge.engine.scheduling.long_updates import LongUpdates
from edge.engine.scheduling.request_queue import RequestQueue
from edge.engine.scheduling.work import Fire, LongText, Rights, Task, Work, entries
from edge.engine.settings import EngineSettings
from edge.engine.timers.timers import Timers
from edge.engine.updates.attempt import LongUpdate, Unfinished
from edge.protocol.errors import EdgeError, NotReady

_log = logging.getLogger(__name__)

_RETRY: Final = 10.0
"""Seconds until it is tried whether something can be stored again."""

_SHARED_TIME: Final = 5_000
"""Microseconds for which a batch goes on while there are several clients, where the disk is fast."""
_COMMITS: Final = 4
"""Where it is slow: how many times as long as the disk takes for a commit. So that is a fifth of the time at most."""
_SEVERAL: Final = 1_000_000
"""Microseconds for which a client counts after its last work."""


class Writer:
    """The thread, and what it looks after: the journal, the delayed updates and the subscriptions that are kept."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        timers: Timers,
        kept: DurableSubscriptions,
        queue: RequestQueue,
        settings: EngineSettings,
        clock: Clock,
        rights: Rights,
        ledger: Ledger | None,
        compiler: CompileQueue | None = None,
    ) -> None:
        """`compiler`: where long texts are compiled; None: here."""
        self._engine = engine
        self._journal = journal
        self._timers = timers
        self._kept = kept
        self._queue = queue
        self._clock = clock
        self._rights = rights
        self._ledger = ledger
        self._compiler = compiler
        self._long = LongUpdates(engine, queue, settings.update_workers)
        self._max_batch = settings.max_batch
        self._max_batch_time = int(settings.max_batch_time * 1_000_000)
        self._disk_time = 0
        """Microseconds that the disk took for the last commit of a batch."""
        self._written_at = 0
        """When all of it had been handed over."""
        self._last_source: str | None = None
        """The client of the last work."""
        self._several_until = 0
        """How long that and another one count."""
        self._flush_interval = settings.flush_interval if settings.durability == "interval" else None
        self._flush_at = 0.0
        self._flush_failing = False
        self._busy_since: int | None = None
        self._now = 0
        """The time of the batch, in microseconds since 1970."""
        self._retry_at = 0.0
        self._snapshot: BackgroundSnapshot | None = None
        self.storing = False
        """Whether it waits for the disk."""
        self.storage_failing = ""
        """Why the last commit failed; empty: it did not."""
        timers.collect()
        for work in self._due():  # overdue ones are in the queue before all that is asked from now on
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
        """How long it has been at the piece of work that it does now; 0 while it waits for something to do.

        Each piece starts at zero: a writer that completes pieces is slow, and only one that does not is stuck.
        """
        since = self._busy_since
        return 0.0 if since is None else (self._clock.steady() - since) / 1_000_000

    def _write(self) -> None:
        while not self._queue.finished:
            self.turn(self._wait())
        self._long.close()
        self._engine.spus.refuse_first(NotReady("The gateway is stopping; try again when it is back"))
        if self._snapshot is not None:
            self._snapshot.cancel()
        contributions = partial(self._engine.contributions.close, self._journal)
        for close in (self._kept.close, contributions, self._journal.close):
            try:
                close()
            except EdgeError as error:
                _log.error("journal.close_failed", extra={"reason": error.description})

    def turn(self, wait: float | None) -> None:
        """Carry out what waits, up to one commit; nothing if no work comes within `wait` seconds (None: no limit).

        The thread does this all the time. A simulation calls it instead of starting the thread.
        """
        self._timers.collect()
        self._long.begin(self._clock.wall())
        self._engine.spus.first_results.begin()
        work = self._queue.take(wait, self._due)
        self._progress()
        if isinstance(work, Task):
            began = self._clock.steady()
            work.run()
            self._queue.charge(work, self._clock.steady() - began)
        elif work is not None:
            taken, done = self._execute_batch(work)
            self._finish(done)
            self._queue.done(taken)
        elif self._kept.urgent:  # many that begin at once are one commit
            self._store_kept()
        self._progress()
        if self._engine.untidy:
            self._engine.tidy()
        self._look_after_storage()
        self._busy_since = None

    def _seconds(self) -> float:
        return self._clock.steady() / 1_000_000

    def _progress(self) -> None:
        """A piece of work ends, and another begins."""
        self._busy_since = self._clock.steady()

    def _wait(self) -> float | None:
        if self._kept.urgent or self._engine.untidy:
            return 0.0
        retry = _RETRY if self.storage_failing else None
        flush = self._flush_interval if self._journal.unflushed else None
        first = self._engine.spus.first_results
        times = [
            seconds
            for seconds in (flush, self._timers.wait(), retry, self._long.wait, first.wait)
            if seconds is not None
        ]
        return min(times, default=None)

    def _due(self) -> list[Work]:
        compiler = self._compiler
        return [Fire(self._engine, self._timers, self._rights, waiting, compiler) for waiting in self._timers.offer()]

    def _execute_batch(self, first: Work) -> tuple[list[Work], list[Work]]:
        """Execute work, one piece after the other, until the batch is full.

        Returns all that was taken from the queue, and what of it did not fail.
        """
        began = before = self._clock.steady()
        self._now = self._clock.wall()
        taken: list[Work] = []
        done: list[Work] = []
        room = self._max_batch
        work: Work | None = first
        while work is not None:
            self._progress()
            staged = work.staged
            try:
                if _execute(work, self._now):
                    done.append(work)
                taken.append(work)
            except Unfinished:
                self._queue.again(work)
            except LongUpdate:
                self._long.add(work)
            except LongText as text:
                self._queue.hold(work)
                text.compiled.add_done_callback(partial(self._put_back, work))
            room -= max(1, work.updates)
            now = self._clock.steady()
            if work.source != self._last_source:
                if self._last_source is not None:
                    self._several_until = now + _SEVERAL
                self._last_source = work.source
            self._queue.charge(work, now - before, work.attempt.steps)
            work.attempt.steps = 0
            before = now
            work = None
            if not staged and room > 0 and now < began + self._batch_time(now):
                work = self._queue.take_more(room, self._due)
        return taken, done

    def _batch_time(self, now: int) -> int:
        """Microseconds after which a batch is committed.

        A client is not to wait for much that another one has in a batch, and whose commit takes as long again.
        """
        if now >= self._several_until:
            return self._max_batch_time
        return min(self._max_batch_time, max(_SHARED_TIME, _COMMITS * self._disk_time))

    def _put_back(self, work: Work, _: object) -> None:
        """On the thread that compiled its text."""
        self._queue.put_back(work)

    def _finish(self, done: Sequence[Work]) -> None:
        """Commit what was executed, and then report it."""
        now = self._now
        engine, timers = self._engine, self._timers
        executed = [step for work in done for step in work.executed]
        ledger = self._ledger if self._ledger is not None and self._ledger.changed else None
        self._progress()
        try:
            stored = [entry for work in done for entry in entries(work, now)]
            writes = bool(stored or timers.changed or ledger is not None)
            if writes:
                self._commit(stored, self._write_others)
                self._disk_time = self._clock.steady() - self._written_at
        except BaseException as raised:  # noqa: BLE001  whatever kept it from the disk, memory must not be ahead of it
            error = contained(raised)
            engine.undo(executed)
            timers.undo()
            self._note_storage(error)
            for work in done:
                _attempt(partial(work.failed, error))
            return
        self._progress()
        if writes:
            self._kept.written()
            engine.contributions.written()
        if timers.changed:
            timers.written()
        if ledger is not None:
            ledger.written()
        if stored or ledger is not None:
            self._note_recovery()
        engine.show(executed)
        for work in done:
            _attempt(work.done)
        self._publish(done)

    def _publish(self, done: Sequence[Work]) -> None:
        """Notify the subscribers. What that takes is charged to the clients that caused it."""
        before = self._clock.steady()
        for work in done:
            if not work.executed:
                continue
            self._engine.notify(work.executed)
            now = self._clock.steady()
            self._queue.charge(work, now - before)
            before = now
            self._progress()
        self._engine.notified()

    def _commit(self, stored: Sequence[JournalEntry], others: Callable[[sqlite3.Connection], None]) -> None:
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
        if self._engine.contributions.changed:
            self._engine.contributions.write(connection)
        if self._ledger is not None and self._ledger.changed:
            self._ledger.write(connection)
        self._written_at = self._clock.steady()

    def _note_storage(self, error: Exception) -> None:
        """Log once that updates cannot be stored, not for each of them."""
        if not isinstance(error, EdgeError):
            _log.exception("journal.commit_fault")
        elif not self.storage_failing:
            _log.error("journal.commit_failed", extra={"reason": error.description})
        self.storage_failing = str(error)
        self._retry_at = self._seconds() + _RETRY

    def _note_recovery(self) -> None:
        if self.storage_failing:
            self.storage_failing = ""
            _log.info("journal.commit_recovered")

    def _try_storage(self) -> None:
        """Whether something can be stored again, where nobody asks for it."""
        self._retry_at = self._seconds() + _RETRY
        try:
            self._commit([], self._timers.write_anchor)
        except EdgeError as error:
            self.storage_failing = str(error)
        else:
            self._note_recovery()

    def _look_after_storage(self) -> None:
        if self._flush_interval is not None and self._journal.unflushed and self._seconds() >= self._flush_at:
            self._flush_at = self._seconds() + self._flush_interval
            self._flush()
        if self._journal.snapshot_due and self._snapshot is None:
            self._snapshot = BackgroundSnapshot(self._engine, self._put_snapshot)
            if self.alive:
                self._snapshot.start()
            else:  # a simulation, which has no threads
                self._snapshot.encode()
        if self._timers.anchor_changed:
            self._store_anchor()
        if self.storage_failing and self._seconds() >= self._retry_at:
            self._try_storage()

    def _store_snapshot(self, snapshot: BackgroundSnapshot) -> None:
        """Store a snapshot that has been encoded. Runs as a task, so nothing is uncommitted."""
        kept, spus = self._kept, self._engine.spus
        if snapshot.error is None and snapshot.behind and self.alive:
            snapshot.start()  # a large change came when all was encoded: updates are not to wait for that
            return
        self._snapshot = None
        if snapshot.error is not None:
            snapshot.cancel()
            self._journal.snapshot_failed(repr(snapshot.error))
            return
        try:
            bodies = snapshot.bodies()
        except NotRestorable as error:
            self._journal.snapshot_failed(str(error))
            return
        contributions = self._engine.contributions

        def write(file: sqlite3.Connection) -> None:
            kept.write_snapshot(file, spus.last, spus.is_current)
            contributions.write(file, whole=True)

        if self._journal.snapshot(bodies, write):
            kept.written()
            contributions.written(whole=True)

    def _put_snapshot(self, snapshot: BackgroundSnapshot) -> None:
        with contextlib.suppress(EdgeError):  # the gateway stops: the next start has a longer journal
            self._queue.put(Task(lambda: self._store_snapshot(snapshot)))

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
        self._timers.written()

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
    except (LongUpdate, LongText):
        raise
    except BaseException as error:  # noqa: BLE001  a fault of ours must not stop the writer; the caller learns of it
        failure = contained(error)
        _attempt(lambda: work.failed(failure))
        return False
    return True


def _attempt(answer: Callable[[], None]) -> None:
    """Answer one request. If that raises, the others are answered all the same."""
    try:
        answer()
    except BaseException as error:  # noqa: BLE001  the work is committed or undone whatever becomes of the answer
        _log.error("request.answer_failed", exc_info=contained(error))
