"""The threads that answer queries, on what is committed, while the writer goes on.

What is sure to be answered soon is answered here. Everything else is answered apart, by processes that can be stopped,
and has threads of its own that wait for them: no query waits for one that may take long. Clients take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from edge.engine.admission.round_robin import RoundRobin
from edge.engine.clock import Clock
from edge.engine.faults import contained
from edge.engine.queries.forked_evaluation import ForkedEvaluator
from edge.engine.queries.query_processor import QueryProcessor, Question
from edge.engine.requests import Answer, QueryRequest
from edge.engine.scheduling.work import fail
from edge.engine.settings import EngineSettings
from edge.engine.sparql.plan_cache import LONGEST_TEXT
from edge.protocol.errors import NotReady, TooManyRequests

T = TypeVar("T")

_SETTING: Final = "engine.query_timeout"


class QueryThreads:
    """Answers queries. Any thread may ask; nobody waits."""

    def __init__(self, queries: QueryProcessor, settings: EngineSettings, clock: Clock) -> None:
        self._queries = queries
        self._apart = ForkedEvaluator(settings.max_query_memory)
        self._clock = clock
        self._seconds = settings.query_timeout
        self._here = _Line(settings.query_workers, settings.max_pending_queries, "query")
        self._long = _Line(settings.query_workers, settings.max_pending_queries, "long-query")

    @property
    def pending(self) -> int:
        """Queries that wait or are being answered."""
        return self._here.pending + self._long.pending

    def read(self, request: QueryRequest, read: Callable[[Answer], T], future: Future[T]) -> None:
        """Settle a future: see `Scheduler.read`."""
        who = request.source
        deadline = time.monotonic() + self._seconds

        def begin() -> None:
            if future.cancelled():
                return
            question = self._queries.question(request)
            if not question.small:
                self._long.put(who, future, lambda: go_on(question))
            elif future.set_running_or_notify_cancel():
                future.set_result(self._queries.run(question, read, self._clock.wall()))

        def go_on(question: Question | None) -> None:
            if future.set_running_or_notify_cancel():
                now, left = self._clock.wall(), deadline - time.monotonic()
                future.set_result(self._queries.run_apart(request, question, read, now, self._apart, left, _SETTING))

        # To check a long text takes long, too, and other threads wait for it.
        if len(request.sparql) > LONGEST_TEXT:
            self._long.put(who, future, lambda: go_on(None))
        else:
            self._here.put(who, future, begin)

    def close(self) -> None:
        """Finish what is being answered here, stop what is answered apart, refuse the rest."""
        self._here.close()
        self._long.close()
        self._apart.close()


class _Line:
    """Threads, and what waits for them."""

    def __init__(self, threads: int, limit: int, name: str) -> None:
        self._limit = limit
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._turns: RoundRobin[tuple[Future[Any], Callable[[], None]]] = RoundRobin(limit)
        self._open = True

    @property
    def pending(self) -> int:
        """What waits, and what is being done."""
        return self._turns.pending

    def put(self, who: str, future: Future[Any], action: Callable[[], None]) -> None:
        """Have something done that settles the future, or raises what does."""
        with self._lock:
            if not self._open:
                fail(future, _stopping())
            elif self._turns.put(who, (future, action)):
                self._pool.submit(self._run)
            else:
                reason = (
                    f"{self._turns.held(who)} queries of this client are waiting, {self._turns.pending} of all clients "
                    f"(engine.max_pending_queries is {self._limit}); one may have as many as it leaves to others"
                )
                fail(future, TooManyRequests(f"{reason}. Try again later", retry_after=1))

    def _run(self) -> None:
        with self._lock:
            taken = self._turns.take()
        if taken is None:  # closed
            return
        who, (future, action) = taken
        try:
            action()
        except BaseException as error:  # noqa: BLE001  whatever it is, the caller learns of it by the future
            if not future.cancelled():
                fail(future, contained(error))
        finally:
            with self._lock:
                self._turns.done(who)

    def close(self) -> None:
        """Refuse what waits; end the threads when they have done what they are at."""
        with self._lock:
            self._open = False
            left = []
            while (taken := self._turns.take()) is not None:
                left.append(taken)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for _, (future, _) in left:
            if not future.cancelled():
                fail(future, _stopping())


def _stopping() -> NotReady:
    return NotReady("The gateway is stopping; ask again when it is back")
