"""Re-evaluation: evaluates subscribed queries without a delta rule off the writer thread, on committed states.

After a commit the writer only marks the affected subscriptions. Evaluation threads take marked subscriptions from a
fair queue, evaluate them on the mirror of committed states and compute the difference to the last result. The writer
delivers it. A subscription has at most one evaluation at a time. Commits during it mark the subscription again, so a
slow one skips states. Each difference leads exactly from one committed state to a later one, and after the last commit
the result is that of the last state, because of this invariant:

- An evaluation clears the mark before it opens the state. A commit becomes visible in the mirror before it sets the
mark. So a commit is either part of the evaluated state, or it leaves a mark.

The methods are grouped by the thread that may call them. Without evaluation threads (tests, the recovery at start,
benchmarks) `SpuManager.settle` evaluates on the calling thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edge.engine.admission.evaluation_queue import EvaluationQueue
from edge.engine.faults import Incidents, contained, without_frames
from edge.engine.queries.evaluator import World
from edge.engine.queries.subscription_index import Dependencies
from edge.engine.requests import Delta
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu, Usage
from edge.protocol.errors import NotReady

MAX_UNDELIVERED: Final = 64
"""Limit of undelivered results; beyond it no evaluation starts, because each result can be large."""

_RETRY: Final = 1.0
"""Seconds until the next attempt after the system could not start a process."""


@dataclass(frozen=True, slots=True)
class Job:
    """One evaluation to run."""

    spu: ReevaluatedSpu
    stale: bool
    """Whether to evaluate the query. False: new subscribers only need the known result."""
    at: int
    """Engine time of the last update that affects the query; it is the value of NOW()."""
    pending: tuple[PendingSubscriber, ...]
    client: str
    """Client whose budget pays for the evaluation."""
    version: int
    """Number of published updates before the evaluation."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Outcome of a job, for delivery by the writer."""

    job: Job
    delta: Delta | None = None
    """Difference for the existing subscribers."""
    whole: Delta | None = None
    """Whole result for new subscribers."""
    depends: Dependencies | None = None
    """Dependencies of the result, if they can change with it."""
    held: int = 0
    """Approximate bytes of the result."""
    error: Exception | None = None
    reason: str = ""
    """Description of the error for the subscribers."""


class Reevaluation:
    """Scheduler of the evaluations of all re-evaluated subscriptions."""

    def __init__(self, world: World, clock: Callable[[], float] = time.monotonic) -> None:
        """`world`: with the mirror of committed states. `clock`: in seconds."""
        self._world = world
        self._clock = clock
        self._queue: EvaluationQueue[ReevaluatedSpu] = EvaluationQueue()
        self._changed = threading.Condition()
        self._running = 0
        self._idle = 0
        """Number of threads that wait for a job."""
        self._finished: deque[Evaluated] = deque()
        self._requested = False
        """Whether a delivery was requested from the writer and has not started."""
        self._version = 0
        self._paused_until = 0.0
        self._incidents = -1, Incidents()
        """Faults of evaluations, and the number of published updates at which the list started."""
        self.total = Usage()
        """Cost of all evaluations so far. Any thread may read it."""
        self.threaded = False
        """Whether threads evaluate; otherwise `settle` does."""
        self.work_waits: Callable[[], None] = lambda: None
        """Called on the writer thread after a query was queued."""
        self.request_delivery: Callable[[], None] = lambda: None
        """Requests a call of `collect` on the writer thread. Called on any thread."""

    def limit(self, budget: float) -> None:
        """Set the budget of each client: see `EvaluationQueue`."""
        self._queue.limit(budget)

    # On the writer thread

    def published(self) -> None:
        """Note that an update is visible in the mirror. The marks follow."""
        self._version += 1

    @property
    def version(self) -> int:
        """Number of published updates."""
        return self._version

    def mark(self, spu: ReevaluatedSpu, at: int) -> None:
        """Mark a query for evaluation, because a committed update affects it. `at`: time of the update."""
        with self._changed:
            # One evaluation serves all marks since the last one started.
            if spu.stale:
                spu.usage.merged += 1
                self.total.merged += 1
            else:
                spu.marked_at = self._clock()
            spu.stale, spu.at = True, at
            self._consider(spu)

    def join(self, spu: ReevaluatedSpu, pending: PendingSubscriber, at: int) -> None:
        """Schedule the whole result for a new subscriber. `at`: the current time, for a first evaluation."""
        with self._changed:
            # The first subscriber needs an evaluation; later ones get the known result.
            if spu.known.empty and not spu.busy and not spu.stale:
                spu.stale, spu.at, spu.marked_at = True, at, self._clock()
            spu.pending.append(pending)
            self._consider(spu)

    def collect(self, most: int) -> list[Evaluated]:
        """Take at most `most` outcomes to deliver. If some remain, another delivery is requested."""
        with self._changed:
            found = [self._finished.popleft() for _ in range(min(most, len(self._finished)))]
            left = self._requested = bool(self._finished)
            # Evaluation threads stopped at the limit, and nothing else wakes them.
            if len(self._finished) + len(found) >= MAX_UNDELIVERED:
                self._changed.notify_all()
        # Outside the lock, because the callback takes the lock of the scheduler's queue.
        if left:
            self.request_delivery()
        return found

    def delivered(self, spu: ReevaluatedSpu) -> None:
        """Note that an outcome was delivered, so that the next evaluation of the query may start."""
        with self._changed:
            spu.busy = False
            self._consider(spu)

    def give_up(self, spu: ReevaluatedSpu) -> list[PendingSubscriber]:
        """Remove and return the new subscribers of a query that cannot be evaluated."""
        with self._changed:
            left = spu.pending.copy()
            spu.pending.clear()
            return left

    @property
    def pending(self) -> int:
        """Number of queries that wait, are being evaluated, or have undelivered results. Any thread may read it."""
        with self._changed:
            return len(self._queue) + self._running + len(self._finished)

    @property
    def finished(self) -> int:
        """Number of undelivered outcomes. Any thread may read it."""
        return len(self._finished)

    def _consider(self, spu: ReevaluatedSpu) -> None:
        """Queue a query if it needs an evaluation and has none. The caller holds the lock."""
        if spu.busy or spu.ended or not (spu.stale or spu.pending):
            return
        # From here until `delivered`, so that one query never has two evaluations and results stay in order.
        spu.busy = True
        self._queue.put({*spu.clients, *(each.subscriber.client for each in spu.pending)}, spu)
        self._changed.notify()
        # Threads are started on demand, only if no idle one can take the job.
        if len(self._queue) > self._idle:
            self.work_waits()

    # On evaluation threads

    def wait(self, width: Callable[[], int], open_: Callable[[], bool]) -> Job | None:
        """Wait for the next job, while at most `width()` jobs run. Return None when `open_()` is False."""
        with self._changed:
            while open_():
                now = self._clock()
                job = self._next(now, width())
                if job is not None:
                    return job
                self._idle += 1
                self._changed.wait(self._patience(now))
                self._idle -= 1
            return None

    def _patience(self, now: float) -> float | None:
        wait = self._queue.wait(now)
        if wait is not None and self._paused_until > now:
            return self._paused_until - now
        return wait or None  # zero: a client may go on, but the width or undelivered results prevent it

    def wake(self) -> None:
        """Wake all waiting threads, because a condition has changed."""
        with self._changed:
            self._changed.notify_all()

    def next(self, width: int = 1) -> Job | None:
        """Return the next job if one may start now, else None."""
        with self._changed:
            return self._next(self._clock(), width)

    def _next(self, now: float, width: int) -> Job | None:
        # Undelivered results hold whole tables in memory, so evaluation waits for delivery.
        if self._running >= width or len(self._finished) >= MAX_UNDELIVERED or now < self._paused_until:
            return None
        while (taken := self._queue.take(now)) is not None:
            client, spu = taken
            if spu.ended:
                continue
            # The marks are cleared before the state is opened: see the invariant in the module's docstring.
            job = Job(spu, spu.stale, spu.at, tuple(spu.pending), client, self._version)
            if job.stale:
                spu.usage.delay = self.total.delay = now - spu.marked_at
            spu.stale = False
            spu.pending.clear()
            self._running += 1
            return job
        return None

    def run(self, job: Job) -> Evaluated:
        """Run a job. Errors become part of the outcome."""
        spu, began = job.spu, self._clock()
        try:
            return self._evaluate(job)
        except BaseException as error:  # noqa: BLE001  `contained` raises again what must not be held back
            fault = contained(error)
            if isinstance(fault, NotReady):  # the system could not start a process
                self._paused_until = self._clock() + _RETRY
            reason = self._reason(fault, job)  # log here, because the frames of the error must not leave the thread
            return Evaluated(job, error=without_frames(fault), reason=reason)
        finally:
            seconds = self._clock() - began
            with self._changed:
                self._queue.charge(job.client, seconds, self._clock())
                for usage in (spu.usage, self.total):
                    usage.evaluations += job.stale
                    usage.seconds += seconds

    def _reason(self, fault: Exception, job: Job) -> str:
        """Log a fault, once for all queries that fail with it after the same update."""
        with self._changed:
            version, incidents = self._incidents
            if version != job.version:
                self._incidents = job.version, (incidents := Incidents())
            return incidents.reason(fault, "evaluating")

    def _evaluate(self, job: Job) -> Evaluated:
        spu = job.spu
        delta = depends = None
        first = spu.known.empty
        if job.stale:
            table = self._world.read(spu.evaluator, job.at)
            delta = spu.known.move(table)
            if spu.evaluator.moving:
                depends = spu.evaluator.dependencies(table)
        whole = None
        if job.pending:
            whole = delta if first else spu.known.whole()
        return Evaluated(job, delta, whole, depends, spu.known.held)

    def finish(self, outcome: Evaluated) -> None:
        """Pass an outcome to the writer."""
        with self._changed:
            self._running -= 1
            self._finished.append(outcome)
            ask = not self._requested
            self._requested = True
            self._changed.notify()
        if ask:
            self.request_delivery()
