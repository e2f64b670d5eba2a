"""Long updates: work whose documents are fetched, or that is evaluated in a forked process, a few at a time.

The writer forks between two commits, so a child sees committed state. A thread of a small pool waits for each child,
and puts the work back into the queue when the child has ended. Documents are fetched by threads of another pool, so
that no slow server keeps updates from being evaluated.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from edge.engine.engine import Engine, PreparedUpdate
from edge.engine.faults import contained
from edge.engine.queries.forked_evaluation import Child
from edge.engine.scheduling.request_queue import RequestQueue
from edge.engine.scheduling.work import Work
from edge.engine.updates.attempt import Attempt, Recorded

_LOOK: Final = 0.05
"""Seconds after which it is looked whether the mirror has been filled, which WHERE clauses may need."""


@dataclass(slots=True)
class _Entry:
    work: Work
    updates: Sequence[PreparedUpdate]
    attempt: Attempt


class LongUpdates:
    """All of one writer. Its methods are called on the writer's thread."""

    def __init__(self, engine: Engine, queue: RequestQueue, workers: int) -> None:
        """`workers`: processes at a time."""
        self._engine = engine
        self._queue = queue
        self._workers = workers
        self._line: deque[_Entry] = deque()
        self._running = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._fetching: ThreadPoolExecutor | None = None

    def add(self, work: Work) -> None:
        """Have work evaluated that was taken from the queue and raised `LongUpdate`. Its client waits for it."""
        self._queue.hold(work)
        entry = _Entry(work, work.prepared(), work.attempt)
        if work.attempt.documents is None and any(update.plan.loads for update in entry.updates):
            if self._fetching is None:
                self._fetching = ThreadPoolExecutor(self._workers, thread_name_prefix="load")
            self._fetching.submit(self._fetch, entry)
        else:
            self._line.append(entry)

    @property
    def wait(self) -> float | None:
        """Seconds until `begin` is to be called again, though no work is put back; None: it need not."""
        return _LOOK if self._line and self._running < self._workers else None

    def begin(self, now: int) -> None:
        """Begin what waits, as far as there are processes to be had. Nothing may be uncommitted."""
        for _ in range(len(self._line)):
            if self._running >= self._workers:
                break
            entry = self._line.popleft()
            if any(update.plan.needs_mirror for update in entry.updates) and not self._engine.mirror_ready():
                self._line.append(entry)
            else:
                self._begin(entry, now)

    def close(self) -> None:
        """End the threads. Nothing waits or is evaluated any more."""
        for pool in (self._pool, self._fetching):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, entry: _Entry, now: int) -> None:
        attempt = entry.attempt
        attempt.tries += 1
        try:
            child = self._engine.evaluate_outside(entry.updates, attempt, now)
        except BaseException as error:  # noqa: BLE001  whoever asked is told, as if it had failed in the writer
            attempt.error = contained(error)
            self._queue.put_back(entry.work)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="long-update")
        with self._lock:
            self._running += 1
        self._pool.submit(self._wait, entry, child)

    def _fetch(self, entry: _Entry) -> None:
        """On a thread: fetch the documents of work, and put it back into the queue."""
        try:
            entry.attempt.documents = self._engine.fetch(entry.updates)
        except BaseException as error:  # noqa: BLE001  whoever asked is told
            entry.attempt.error = contained(error)
        self._queue.put_back(entry.work)

    def _wait(self, entry: _Entry, child: Child[list[Recorded]]) -> None:
        """On a thread of the pool: wait for a child, and put its work back into the queue."""
        found: list[Any] | None = None
        try:
            result = child.result()
            found = [recorded.quads() for recorded in result]
            entry.attempt.needed = sum(recorded.steps for recorded in result)
            entry.attempt.steps += entry.attempt.needed
        except BaseException as error:  # noqa: BLE001  whoever asked is told
            entry.attempt.error = contained(error)
        entry.attempt.found = found
        with self._lock:
            self._running -= 1
        self._queue.put_back(entry.work)
