"""The writer: carries out work in the order of the queue, one turn at a time.

It executes work of the client whose turn it is, piece by piece, and commits a batch when its time is over or no more
work may share the commit. Nothing that the work caused leaves the gateway before the commit. An update is processed
completely, subscriptions included, before the next one begins.

Turns run on the writer thread, or on the thread of an adapter that would otherwise wait for its update: then a reading
wakes one thread less. A lock makes them exclusive, and all code of a turn runs as if there were one writer thread.
"""

from __future__ import annotations

import contextlib
import logging
import math
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
from edge.engine.scheduling.background_flush import BackgroundFlush
from edge.engine.scheduling.background_snapshot import BackgroundSnapshot
from edge.engine.scheduling.compile_queue import CompileQueue
from edge.engine.scheduling.long_updates import LongUpdates
from edge.engine.scheduling.request_queue import RequestQueue
from edge.engine.scheduling.work import LongText, Rights, RunTimer, Task, Work, entries
from edge.engine.settings import EngineSettings
from edge.engine.store.changes import ChangeSet
from edge.engine.timers.timers import Timers
from edge.engine.updates.update_attempt import LongUpdate, Unfinished
from edge.engine.wakeups import together
from edge.protocol.errors import EdgeError, NotReady

_log = logging.getLogger(__name__)

_RETRY: Final = 10.0
"""Seconds between attempts to store something after a storage failure."""

_SHARED_TIME: Final = 3_000
"""Microseconds of a batch while several clients are active, on a fast disk."""
_COMMITS: Final = 4
"""On a slow disk: length of a batch as a multiple of the commit time. So commits take at most a fifth of the time."""
_FAST_COMMIT: Final = _SHARED_TIME // (2 * _COMMITS)
"""Microseconds that count for the first slow commit after fast ones. The count of each further one may double.

Single commits are slow even on a fast disk: in one of many, SQLite moves its log into the file. A batch of 4 times that
duration would delay clients for no gain.
"""
_SEVERAL: Final = 1_000_000
"""Microseconds for which a client counts as active after its last work."""


class Writer:
    """The writer thread. It owns the journal, the delayed updates and the durable subscriptions."""

    storing = False
    """Whether it waits for the disk."""
    storage_failing = ""
    """Reason of a failed last commit; empty if it succeeded."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        timers: Timers,
        subscriptions: DurableSubscriptions,
        queue: RequestQueue,
        settings: EngineSettings,
        clock: Clock,
        rights: Rights,
        ledger: Ledger | None,
        compiler: CompileQueue | None = None,
    ) -> None:
        """`compiler`: compiles long texts; None: they are compiled on this thread."""
        self._engine = engine
        self._journal = journal
        self._timers = timers
        self._durable = subscriptions
        self._queue = queue
        self._clock = clock
        self._rights = rights
        self._ledger = ledger
        self._compiler = compiler
        self._long = LongUpdates(engine, queue, settings.update_workers)
        self._max_batch = settings.max_batch
        self._max_batch_time = int(settings.max_batch_time * 1_000_000)
        self._disk_time = 0
        """Microseconds that a commit of a batch takes at the moment."""
        self._written_at = 0
        """Time at which all data of the last commit had been passed to SQLite."""
        self._last_source: str | None = None
        """Client of the last work."""
        self._several_until = 0
        """Time until which several clients count as active."""
        self._flush_interval = settings.flush_interval if settings.durability == "interval" else None
        self._flush = BackgroundFlush(journal, ledger, queue.put)
        self._flush_at = 0.0
        self._busy_since: int | None = None
        self._turn = threading.Lock()
        """Held during a turn."""
        self._sleeps_until = 0.0
        """Time at which the thread looks for work without being woken, in seconds of the steady clock."""
        self._over = False
        """Whether no turn may begin any more."""
        self._failed = False
        """Whether a turn raised an error, on whichever thread: no turn may begin any more."""
        self._threaded = False
        """Whether the thread was started."""
        self._untidy = False
        """Whether the last turn left work for `Engine.tidy`."""
        self._now = 0
        """Time of the batch, in microseconds since 1970."""
        self._retry_at = 0.0
        self._snapshot: BackgroundSnapshot | None = None
        self.committed: Callable[[Sequence[ChangeSet], int], None] | None = None
        """Called with the change sets of each commit and its time, in microseconds since 1970. It must not block."""
        timers.collect()
        for work in self._due():  # overdue ones join the queue before any new request
            queue.put(work)
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._threaded = True
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive() and not self._failed

    def join(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the end of the thread. Without a thread, end here.

        Nobody carries out the waiting requests of a simulation any more, so they are refused.
        """
        if self._thread.ident is not None:
            self._thread.join(timeout)
        elif not self._over:
            self._queue.refuse_rest()
            self._end()

    @property
    def busy_seconds(self) -> float:
        """Seconds of the current piece of work; 0 while the thread is idle.

        Each piece starts at zero: a writer that completes pieces is slow, only one that completes none is stuck.
        """
        since = self._busy_since
        return 0.0 if since is None else (self._clock.steady() - since) / 1_000_000

    def carry_out(self, *, wait: bool = False) -> None:
        """Run a turn on this thread, unless another thread runs one; that thread then carries out the waiting work.

        To be called after `RequestQueue.put` without `wake`. Does nothing if the writer has no thread. `wait`: wait for
        the end of the other thread's turn, and then run one.
        """
        if not self._threaded or self._failed or not self._turn.acquire(blocking=wait):
            return
        try:
            if self._over:
                return
            self.turn()
            pause = self._wait()
            sooner = math.isfinite(pause) and self._seconds() + pause < self._sleeps_until
        except BaseException:
            self._failed = True
            raise
        finally:
            self._turn.release()
        self._queue.wake(always=sooner)

    def _write(self) -> None:
        while not (self._failed or self._queue.finished):
            with self._turn:
                try:
                    self.turn()
                    wait = self._wait()
                except BaseException:
                    self._failed = True
                    raise
                self._sleeps_until = self._seconds() + wait
            self._queue.sleep(None if math.isinf(wait) else wait)
        self._end()

    def _end(self) -> None:
        with self._turn:
            self._over = True
            self._close()

    def _close(self) -> None:
        self._long.close()
        self._engine.spus.incremental.refuse(NotReady("The gateway is stopping; try again when it is back"))
        if self._snapshot is not None:
            self._snapshot.cancel()
        self._flush.close()
        contributions = partial(self._engine.contributions.close, self._journal)
        # The journal is closed last, because the others write to it.
        for close in (self._durable.close, contributions, self._journal.close):
            try:
                close()
            except EdgeError as error:
                _log.error("journal.close_failed", extra={"reason": error.description})

    def turn(self) -> bool:
        """Carry out waiting work up to one commit, and return whether there was any.

        A simulation calls it instead of starting the thread.
        """
        self._timers.collect()
        if self._long.waiting:
            self._long.begin(self._clock.wall())
        self._engine.spus.incremental.first_results.begin()
        work = self._queue.take(self._due)
        began = self._progress()
        large = False
        if isinstance(work, Task):
            work.run()
            self._queue.charge(work, self._progress() - began)
        elif work is not None:
            taken, done = self._execute_batch(work, began)
            self._finish(done)
            self._queue.done(taken)
            for each in done:
                for step in each.executed:
                    large = large or step.encoded is not None
        elif self._durable.urgent:  # subscriptions that begin at the same time share one commit
            self._store_subscriptions()
        self._untidy = self._engine.untidy
        # After a large change, which takes long at once, others come first.
        if self._untidy and not large:
            self._progress()
            self._engine.tidy()
            self._untidy = self._engine.untidy
        self._look_after_storage()
        self._busy_since = None
        return work is not None

    def _seconds(self) -> float:
        return self._clock.steady() / 1_000_000

    def _progress(self) -> int:
        """Note that a piece of work ends and another begins. Return the time."""
        now = self._busy_since = self._clock.steady()
        return now

    def _wait(self) -> float:
        """Return the seconds until the next turn is necessary even if no work arrives, or infinity."""
        if self._durable.urgent or self._untidy:
            return 0.0
        wait = _RETRY if self.storage_failing else math.inf
        if self._flush_interval is not None and self._journal.unflushed:
            wait = min(wait, self._flush_interval)
        first = self._engine.spus.incremental.first_results
        for seconds in (self._timers.wait(), self._long.wait, first.wait):
            if seconds is not None:
                wait = min(wait, seconds)
        return wait

    def _due(self) -> Sequence[Work]:
        compiler = self._compiler
        if not self._timers.idle_owners:
            return ()
        return [
            RunTimer(self._engine, self._timers, self._rights, waiting, compiler) for waiting in self._timers.offer()
        ]

    def _execute_batch(self, first: Work, began: int) -> tuple[list[Work], list[Work]]:
        """Execute work until the batch is full. `began`: the present time.

        Returns the work that was taken from the queue, and the part of it that did not fail.
        """
        before = began
        self._now = self._clock.wall()
        taken: list[Work] = []
        done: list[Work] = []
        room = self._max_batch
        work: Work | None = first
        while work is not None:
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
            now = self._progress()
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
        """Return the microseconds after which a batch is committed.

        A client should not wait for a large share of another client's work in a batch and for its long commit.
        """
        if now >= self._several_until:
            return self._max_batch_time
        return min(self._max_batch_time, max(_SHARED_TIME, _COMMITS * self._disk_time))

    def _put_back(self, work: Work, _: object) -> None:
        """Put work back into the queue. Runs on the thread that compiled its text."""
        self._queue.put_back(work)

    def _finish(self, done: Sequence[Work]) -> None:
        """Commit the executed work, then answer the clients."""
        now = self._now
        engine, timers = self._engine, self._timers
        executed = [step for work in done for step in work.executed]
        ledger = self._ledger if self._ledger is not None and self._ledger.changed else None
        try:
            stored = [entry for work in done for entry in entries(work, now)]
            writes = bool(stored or timers.changed or ledger is not None)
            if writes:
                self._commit(stored, self._write_others)
                time = self._progress() - self._written_at
                # A rise counts fully only if later commits confirm it. Usually nothing is called here.
                if time > _FAST_COMMIT and time > 2 * self._disk_time:
                    time = max(2 * self._disk_time, _FAST_COMMIT)
                self._disk_time = time
        except BaseException as raised:  # noqa: BLE001  after any error memory must not be ahead of the disk
            error = contained(raised)
            engine.undo(executed)
            timers.undo()
            self._note_storage(error)
            for work in done:
                _attempt(partial(work.failed, error))
            return
        if writes:
            self._durable.written()
            engine.contributions.written()
        if timers.changed:
            timers.written()
        if ledger is not None:
            ledger.written()
        if stored or ledger is not None:
            self._note_recovery()
        # The changes are durable: from here on queries see them, and clients get their answers.
        engine.show(executed)
        if self.committed is not None and executed:
            _attempt(partial(self.committed, [step.changes for step in executed], now))
        if self._engine.is_awaited(executed):
            self._publish(done)
            _answer(done)
        else:
            _answer(done)
            self._publish(done)

    def _publish(self, done: Sequence[Work]) -> None:
        """Notify the subscribers, and charge the time to the clients that caused the notifications."""
        before = self._progress()
        with together():
            for work in done:
                if not work.executed:
                    continue
                self._engine.notify(work.executed)
                now = self._progress()
                self._queue.charge(work, now - before)
                before = now
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
        if self._durable.changed:
            self._durable.write(connection)
        if self._engine.contributions.changed:
            self._engine.contributions.write(connection)
        if self._ledger is not None and self._ledger.changed:
            self._ledger.write(connection)
        self._written_at = self._clock.steady()

    def _note_storage(self, error: Exception) -> None:
        """Log once that updates cannot be stored, and not for each of them."""
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
        """Test whether the storage works again without waiting for an update."""
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
            self._flush.begin(background=self.alive)  # a simulation has no threads
        if self._journal.snapshot_due and self._snapshot is None:
            self._snapshot = BackgroundSnapshot(self._engine, self._put_snapshot)
            if self.alive:
                self._snapshot.start()
            else:  # a simulation has no threads
                self._snapshot.encode()
        if self._timers.anchor_changed:
            self._store_anchor()
        if self.storage_failing and self._seconds() >= self._retry_at:
            self._try_storage()

    def _store_snapshot(self, snapshot: BackgroundSnapshot) -> None:
        """Store an encoded snapshot. Runs as a task, so nothing is uncommitted."""
        subscriptions, spus = self._durable, self._engine.spus
        if snapshot.error is None and snapshot.behind and self.alive:
            snapshot.start()  # a large change came at the end: encode it on the thread, so that updates do not wait
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
            subscriptions.write_snapshot(file, spus.registry.last, spus.registry.is_current)
            contributions.write(file, whole=True)

        if self._journal.snapshot(bodies, write):
            subscriptions.written()
            contributions.written(whole=True)

    def _put_snapshot(self, snapshot: BackgroundSnapshot) -> None:
        with contextlib.suppress(EdgeError):  # the gateway stops: the next start reads a longer journal
            self._queue.put(Task(lambda: self._store_snapshot(snapshot)))

    def _store_subscriptions(self) -> None:
        self._durable.urgent = False
        try:
            self._journal.commit([], self._durable.write)
        except EdgeError:
            return  # the next update tries again; a restart before that notifies them from the beginning
        self._durable.written()

    def _store_anchor(self) -> None:
        try:
            self._journal.commit([], self._timers.write)
        except EdgeError:
            return  # the next delayed update or check tries again
        self._timers.written()


def _execute(work: Work, now: int) -> bool:
    try:
        work.execute(now)
    except (LongUpdate, LongText):
        raise
    except BaseException as error:  # noqa: BLE001  a bug must not stop the writer; the caller gets the error
        failure = contained(error)
        _attempt(lambda: work.failed(failure))
        return False
    return True


def _answer(done: Sequence[Work]) -> None:
    for work in done:
        _attempt(work.done)


def _attempt(answer: Callable[[], None]) -> None:
    """Answer one request. An error does not affect the other answers."""
    try:
        answer()
    except BaseException as error:  # noqa: BLE001  the work is committed or undone whether or not the answer arrives
        _log.error("request.answer_failed", exc_info=contained(error))
