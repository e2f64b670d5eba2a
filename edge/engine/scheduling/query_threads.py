"""Query threads: answer queries on committed state while the writer continues.

Certainly cheap queries are answered on these threads. All others are evaluated in forked processes, which can be
stopped, and have separate threads that wait for them. So no cheap query waits for an expensive one. Clients take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from edge.engine.admission.round_robin import RoundRobin
from edge.engine.admission.slots import Slots
from edge.engine.clock import Clock
from edge.engine.faults import contained
from edge.engine.queries.forked_evaluation import ForkedEvaluator
from edge.engine.queries.oxigraph_queries import COUNTED_LIMIT
from edge.engine.queries.query_processor import CheckedQuery, QueryProcessor
from edge.engine.requests import Answer, QueryRequest
from edge.engine.scheduling.work import fail
from edge.engine.settings import EngineSettings
from edge.engine.sparql.plan_cache import LONGEST_TEXT
from edge.protocol.errors import NotReady, TooManyRequests

T = TypeVar("T")


class QueryThreads:
    """Answers queries. Thread-safe; no call blocks."""

    def __init__(self, queries: QueryProcessor, settings: EngineSettings, clock: Clock) -> None:
        self._queries = queries
        self._forked = ForkedEvaluator(settings.max_query_memory)
        self._clock = clock
        self._seconds = settings.query_timeout
        self._cheap = _TaskPool(settings.query_workers, settings.max_pending_queries, "query")
        self._long = _TaskPool(settings.query_workers, settings.max_pending_queries, "long-query")

    @property
    def pending(self) -> int:
        """Number of queries that wait or are being answered."""
        return self._cheap.pending + self._long.pending

    @property
    def most_pending(self) -> int:
        """The larger number of the two queues, each of which has the limit `max_pending_queries`."""
        return max(self._cheap.pending, self._long.pending)

    def read(self, request: QueryRequest, read: Callable[[Answer], T], future: Future[T]) -> None:
        """Settle a future with the answer of a query: see `Scheduler.read`."""
        client = request.source
        deadline = time.monotonic() + self._seconds

        def begin() -> None:
            if future.cancelled():
                return
            question = self._queries.question(request)
            if not question.small:
                self._long.put(client, future, lambda: answer_forked(question))
            elif future.set_running_or_notify_cancel():
                future.set_result(self._queries.run(question, read, self._clock.wall()))

        def answer_forked(question: CheckedQuery | None) -> None:
            if future.set_running_or_notify_cancel():
                now, left = self._clock.wall(), deadline - time.monotonic()
                future.set_result(
                    self._queries.run_forked(request, question, read, now, self._forked, left, COUNTED_LIMIT)
                )

        # The syntax check of a long text is slow as well, and holds the GIL.
        if len(request.sparql) > LONGEST_TEXT:
            self._long.put(client, future, lambda: answer_forked(None))
        else:
            self._cheap.put(client, future, begin)

    def close(self) -> None:
        """Finish the queries on these threads, stop the forked ones, and refuse the waiting ones."""
        self._cheap.close()
        self._long.close()
        self._forked.close()


class _TaskPool:
    """A thread pool with a round-robin queue."""

    def __init__(self, threads: int, limit: int, name: str) -> None:
        self._limit = limit
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._turns: RoundRobin[tuple[Future[Any], Callable[[], None]]] = RoundRobin()
        self._slots = Slots(limit)
        self._open = True

    @property
    def pending(self) -> int:
        """Number of tasks that wait or run."""
        return self._slots.taken

    def put(self, client: str, future: Future[Any], action: Callable[[], None]) -> None:
        """Run `action`, which settles the future or raises the error for it."""
        with self._lock:
            if not self._open:
                fail(future, _stopping())
            elif self._slots.take(client, 1):
                self._turns.put(client, (future, action))
                # One run for each item. The round-robin queue decides which item a run takes.
                self._pool.submit(self._run)
            else:
                reason = (
                    f"{self._slots.held(client)} queries of this client are waiting, {self._slots.taken} of all "
                    f"clients (engine.max_pending_queries is {self._limit}); one client may have as many as it leaves "
                    "for others"
                )
                fail(future, TooManyRequests(f"{reason}. Try again later", retry_after=1))

    def _run(self) -> None:
        with self._lock:
            taken = self._turns.take()
        if taken is None:  # closed
            return
        client, (future, action) = taken
        try:
            action()
        except BaseException as error:  # noqa: BLE001  the future passes any error to the caller
            if not future.cancelled():
                fail(future, contained(error))
        finally:
            with self._lock:
                self._slots.give_back(client, 1)

    def close(self) -> None:
        """Refuse waiting tasks, and shut down the threads after their current tasks."""
        with self._lock:
            self._open = False
            left = self._turns.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for future, _ in left:
            if not future.cancelled():
                fail(future, _stopping())


def _stopping() -> NotReady:
    return NotReady("The gateway is stopping; ask again when it is back")
