"""First results of incremental subscriptions: long ones are evaluated in forked processes.

The writer gives a first result `FIRST_STEPS` steps. A longer one waits here. A fair queue with a budget of evaluation
time for each client decides the order, and each client has at most one process at a time. The writer forks between two
commits, so a child sees a committed state. A thread of a small pool waits for each child. Then the writer merges the
child's result (`DeferredFirstResult`), piece by piece. Each step on the writer is a task of the subscribing client: it
takes turns with the requests of others and is charged to its client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from edge.engine.admission.evaluation_queue import EvaluationQueue
from edge.engine.faults import contained, without_frames
from edge.engine.queries.forked_evaluation import Child
from edge.engine.queries.query_plans import PlanMember
from edge.engine.subscriptions.deferred_first_result import DeferredFirstResult
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber
from edge.protocol.errors import NotReady

T = TypeVar("T")

FIRST_STEPS: Final = 5_000
"""Steps of a first result on the writer's thread: about 10 ms with its rows."""

DEMOTIONS: Final = 4
"""Limit of concurrent processes that find results for demotions and refreshes."""

Started = tuple[IncrementalSpu, DeferredFirstResult, Child[list[list[bytes]]]]
"""An SPU, its first result in progress, and the process that evaluates it."""

Submit = Callable[[str, Callable[[], None]], None]
"""Runs an action on the writer thread as a task of a client. Callable on any thread."""


@dataclass(eq=False, slots=True)
class PendingFirstResult:
    """A first result that waits for its evaluation."""

    query: PlanMember
    pending: PendingSubscriber

    @property
    def client(self) -> str:
        """Client that subscribes."""
        return self.pending.subscriber.client


class FirstResults:
    """First results of one engine. Methods run on the writer's thread unless stated otherwise."""

    def __init__(
        self,
        start: Callable[[PendingFirstResult], Started | None],
        take: Callable[[IncrementalSpu, DeferredFirstResult, Exception | None], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start` forks a process if one is needed. `take` merges a piece and returns whether more pieces follow."""
        self._start = start
        self._take = take
        self._clock = clock
        self._queue: EvaluationQueue[PendingFirstResult] = EvaluationQueue()
        self._none_waits = True
        """Whether `_queue` is empty. The writer looks at it twice a turn, without the lock."""
        self._busy: dict[str, PendingFirstResult | None] = {}
        """Clients with a process. The value is the pending first result until its process runs."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._workers = 0
        self._submit: Submit | None = None

    def open(self, workers: int, budget: float, submit: Submit) -> None:
        """Enable forked processes, at most `workers` at a time. `budget`: see `EvaluationQueue`."""
        self._workers, self._submit = workers, submit
        self._queue.limit(budget)

    @property
    def steps(self) -> int | None:
        """Step budget of a first result on the writer's thread; None (no limit) without forked processes."""
        return None if self._submit is None else FIRST_STEPS

    def put(self, wanted: PendingFirstResult) -> None:
        """Queue a first result for a forked process."""
        with self._lock:
            self._queue.put([wanted.client], wanted)
            self._none_waits = False

    @property
    def waiting(self) -> int:
        """Number of first results that wait for a process or have one."""
        with self._lock:
            return len(self._queue) + len(self._busy)

    @property
    def wait(self) -> float | None:
        """Seconds until the next call of `begin`; None if none is needed before another event."""
        if self._none_waits:
            return None
        with self._lock:
            if len(self._busy) >= self._workers:
                return None
            return self._queue.wait(self._clock(), self._busy)

    def begin(self) -> None:
        """Start waiting evaluations, as far as processes and budgets allow."""
        while not self._none_waits and (taken := self._next()) is not None:
            client, wanted = taken
            self._later(client, partial(self._fork, wanted))

    def fetch(self, client: str, read: Callable[[], T], take: Callable[[T | Exception], None]) -> None:
        """Call `read` on a thread of the pool, and then `take` with its result on the writer thread."""
        self._threads().submit(self._fetch, client, read, take)

    def _fetch(self, client: str, read: Callable[[], T], take: Callable[[T | Exception], None]) -> None:
        found: T | Exception
        try:
            found = read()
        except BaseException as error:  # noqa: BLE001  `take` receives the error
            found = without_frames(contained(error))
        self._later(client, lambda: take(found))

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers + DEMOTIONS, thread_name_prefix="first-result")
        return self._pool

    def refuse(self, error: NotReady) -> None:
        """Reject all waiting subscribers, because the engine stops."""
        with self._lock:
            self._none_waits = True
            left = self._queue.clear() + [wanted for wanted in self._busy.values() if wanted is not None]
        for wanted in left:
            wanted.pending.ready(error)
        if self._pool is not None:
            # The children are killed elsewhere. Waiting for them here would delay the stop.
            self._pool.shutdown(wait=False)

    def _next(self) -> tuple[str, PendingFirstResult] | None:
        with self._lock:
            if len(self._busy) >= self._workers:
                return None
            taken = self._queue.take(self._clock(), self._busy)
            self._none_waits = not self._queue
            if taken is not None:
                # From here on the client counts as busy, although its process starts later on the writer.
                self._busy[taken[0]] = taken[1]
            return taken

    def _fork(self, wanted: PendingFirstResult) -> None:
        """Start one evaluation. No transaction is uncommitted."""
        started = None
        try:
            started = self._start(wanted)
        except Exception as error:  # noqa: BLE001  the subscriber receives the error
            wanted.pending.ready(error)
        finally:
            # No process runs: the client may have its next turn, at no charge.
            if started is None:
                self._done(wanted.client, 0.0)
        if started is not None:
            with self._lock:
                self._busy[wanted.client] = None
            self._threads().submit(self._wait, wanted.client, *started)

    def _wait(
        self, client: str, spu: IncrementalSpu, deferred: DeferredFirstResult, child: Child[list[list[bytes]]]
    ) -> None:
        """Wait for a child on a thread of the pool, and have the writer merge its result."""
        began, fault = self._clock(), None
        try:
            deferred.found(child.result())
        except BaseException as error:  # noqa: BLE001  the subscriber receives the error
            fault = without_frames(contained(error))
        self._later(client, partial(self._go_on, client, spu, deferred, fault))
        self._done(client, self._clock() - began)

    def _done(self, client: str, seconds: float) -> None:
        with self._lock:
            self._busy.pop(client, None)
            self._queue.charge(client, seconds, self._clock())

    def _go_on(self, client: str, spu: IncrementalSpu, deferred: DeferredFirstResult, fault: Exception | None) -> None:
        if self._take(spu, deferred, fault):
            self._later(client, partial(self._go_on, client, spu, deferred, None))

    def _later(self, client: str, action: Callable[[], None]) -> None:
        assert self._submit is not None  # noqa: S101
        self._submit(client, action)
