"""First results of incremental subscriptions: those that take long are evaluated in forked processes.

The writer gives a first result `FIRST_STEPS` steps. One that needs more waits here. Clients take turns, each has a
budget of evaluation time as for re-evaluated subscriptions, and one process at a time. The writer forks between two
commits, so a child sees committed state. A thread of a small pool waits for each child. Then the writer takes in what
the child found (`Beginning`), piece by piece. Each step on the writer is a task of the client that subscribes, which
takes turns with the requests of others and is charged for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from edge.engine.faults import contained, without_frames
from edge.engine.queries.forked_evaluation import Child
from edge.engine.queries.query_plans import Member
from edge.engine.subscriptions.beginning import Beginning
from edge.engine.subscriptions.evaluation_queue import EvaluationQueue
from edge.engine.subscriptions.spu import Joining
from edge.protocol.errors import NotReady

T = TypeVar("T")

FIRST_STEPS: Final = 5_000
"""Steps that a first result may take on the writer's thread: about 10 ms with its rows."""

DEMOTIONS: Final = 4
"""Processes at a time that find results for demotions (see there)."""

Started = tuple[Beginning, Child[list[list[bytes]]]]
"""A first result that is evaluated, and by whom."""

Submit = Callable[[str, Callable[[], None]], None]
"""Has the writer do something as a task of a client. Any thread."""


@dataclass(eq=False, slots=True)
class PendingFirstResult:
    """A first result that waits to be evaluated."""

    query: Member
    joining: Joining

    @property
    def client(self) -> str:
        """Who subscribes."""
        return self.joining.subscriber.client


class FirstResults:
    """All of one engine. Its methods are called on the writer's thread, unless they say otherwise."""

    def __init__(
        self,
        start: Callable[[PendingFirstResult], Started | None],
        take: Callable[[Beginning, Exception | None], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start` forks a process; None: none is needed. `take` takes in a piece, and returns whether more are left."""
        self._start = start
        self._take = take
        self._clock = clock
        self._queue: EvaluationQueue[PendingFirstResult] = EvaluationQueue()
        self._busy: dict[str, PendingFirstResult | None] = {}
        """Clients that have a process, or get one: for what, until it has begun."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._workers = 0
        self._submit: Submit | None = None

    def open(self, workers: int, budget: float, submit: Submit) -> None:
        """Have them evaluated outside from now on, by so many processes at a time. `budget`: see `EvaluationQueue`."""
        self._workers, self._queue.budget, self._submit = workers, budget, submit

    @property
    def steps(self) -> int | None:
        """Steps that a first result may take on the writer's thread; None: any number, there are no processes."""
        return None if self._submit is None else FIRST_STEPS

    def put(self, wanted: PendingFirstResult) -> None:
        """Have a first result evaluated outside."""
        with self._lock:
            self._queue.put([wanted.client], wanted)

    @property
    def waiting(self) -> int:
        """First results that wait for a process or have one."""
        with self._lock:
            return len(self._queue) + len(self._busy)

    @property
    def wait(self) -> float | None:
        """Seconds until `begin` is to be called again; None: it need not, unless something else happens."""
        with self._lock:
            return None if len(self._busy) >= self._workers else self._queue.wait(self._clock(), self._busy)

    def begin(self) -> None:
        """Begin what waits, as far as there are processes and budgets."""
        while (taken := self._next()) is not None:
            client, wanted = taken
            self._later(client, partial(self._fork, wanted))

    def fetch(self, client: str, read: Callable[[], T], take: Callable[[T | Exception], None]) -> None:
        """Read something on a thread of the pool, and have the writer do something with it."""
        self._threads().submit(self._fetch, client, read, take)

    def _fetch(self, client: str, read: Callable[[], T], take: Callable[[T | Exception], None]) -> None:
        found: T | Exception
        try:
            found = read()
        except BaseException as error:  # noqa: BLE001  whoever asked is told
            found = without_frames(contained(error))
        self._later(client, lambda: take(found))

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers + DEMOTIONS, thread_name_prefix="first-result")
        return self._pool

    def refuse(self, error: NotReady) -> None:
        """Refuse what waits, because the engine stops."""
        with self._lock:
            left = self._queue.clear() + [wanted for wanted in self._busy.values() if wanted is not None]
        for wanted in left:
            wanted.joining.ready(error)
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _next(self) -> tuple[str, PendingFirstResult] | None:
        with self._lock:
            if len(self._busy) >= self._workers:
                return None
            taken = self._queue.take(self._clock(), self._busy)
            if taken is not None:
                self._busy[taken[0]] = taken[1]
            return taken

    def _fork(self, wanted: PendingFirstResult) -> None:
        """Begin one. Nothing is uncommitted."""
        started = None
        try:
            started = self._start(wanted)
        except Exception as error:  # noqa: BLE001  whoever asked is told
            wanted.joining.ready(error)
        finally:
            if started is None:
                self._done(wanted.client, 0.0)
        if started is not None:
            with self._lock:
                self._busy[wanted.client] = None
            self._threads().submit(self._wait, wanted.client, *started)

    def _wait(self, client: str, beginning: Beginning, child: Child[list[list[bytes]]]) -> None:
        """On a thread of the pool: wait for a child, and have the writer take in what it found."""
        began, fault = self._clock(), None
        try:
            beginning.found(child.result())
        except BaseException as error:  # noqa: BLE001  whoever asked is told
            fault = without_frames(contained(error))
        self._later(client, partial(self._go_on, client, beginning, fault))
        self._done(client, self._clock() - began)

    def _done(self, client: str, seconds: float) -> None:
        with self._lock:
            self._busy.pop(client, None)
            self._queue.charge(client, seconds, self._clock())

    def _go_on(self, client: str, beginning: Beginning, fault: Exception | None) -> None:
        if self._take(beginning, fault):
            self._later(client, partial(self._go_on, client, beginning, None))

    def _later(self, client: str, action: Callable[[], None]) -> None:
        assert self._submit is not None  # noqa: S101
        self._submit(client, action)
