"""Long updates: work that fetches documents or is evaluated in a forked process, with a limited number at a time.

The writer forks between two commits, so a child process sees committed state. A thread of a small pool waits for each
child, and puts the work back into the queue when the child has ended. Another pool fetches documents, so that slow
servers do not delay evaluations.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from edge.engine.engine import Engine
from edge.engine.faults import contained
from edge.engine.queries.forked_evaluation import Child
from edge.engine.scheduling.request_queue import RequestQueue
from edge.engine.scheduling.work import Work
from edge.engine.updates.prepared_update import PreparedUpdate
from edge.engine.updates.update_attempt import Recorded, UpdateAttempt

_LOOK: Final = 0.05
"""Seconds between checks whether the mirror is filled, which WHERE clauses may need."""


@dataclass(slots=True)
class _Entry:
    work: Work
    updates: Sequence[PreparedUpdate]
    attempt: UpdateAttempt


class LongUpdates:
    """Long updates of one writer. All methods run on the writer thread."""

    def __init__(self, engine: Engine, queue: RequestQueue, workers: int) -> None:
        """`workers`: number of processes at a time."""
        self._engine = engine
        self._queue = queue
        self._workers = workers
        self._waiting: deque[_Entry] = deque()
        self._running = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._fetching: ThreadPoolExecutor | None = None

    def add(self, work: Work) -> None:
        """Evaluate work that was taken from the queue and raised `LongUpdate`. Later work of its client waits."""
        self._queue.hold(work)
        entry = _Entry(work, work.prepared(), work.attempt)
        if work.attempt.documents is None and any(update.plan.loads for update in entry.updates):
            if self._fetching is None:
                self._fetching = ThreadPoolExecutor(self._workers, thread_name_prefix="load")
            self._fetching.submit(self._fetch, entry)
        else:
            self._waiting.append(entry)

    @property
    def waiting(self) -> bool:
        """Whether work waits for a process."""
        return bool(self._waiting)

    @property
    def wait(self) -> float | None:
        """Seconds until `begin` must be called again even if no work is put back; None: no call is needed."""
        return _LOOK if self._waiting and self._running < self._workers else None

    def begin(self, now: int) -> None:
        """Start waiting work while process slots are free. Nothing may be uncommitted."""
        for _ in range(len(self._waiting)):
            if self._running >= self._workers:
                break
            entry = self._waiting.popleft()
            if any(update.plan.needs_mirror for update in entry.updates) and not self._engine.mirror_ready():
                # It waits for the mirror; later entries may be able to begin.
                self._waiting.append(entry)
            else:
                self._begin(entry, now)

    def close(self) -> None:
        """Shut down the threads. No work may wait or be evaluated."""
        for pool in (self._pool, self._fetching):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, entry: _Entry, now: int) -> None:
        attempt = entry.attempt
        attempt.tries += 1
        try:
            child = self._engine.attempts.evaluate(entry.updates, attempt, now)
        except BaseException as error:  # noqa: BLE001  the client gets it as if the writer had failed
            attempt.error = contained(error)
            self._queue.put_back(entry.work)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="long-update")
        with self._lock:
            self._running += 1
        self._pool.submit(self._wait, entry, child)

    def _fetch(self, entry: _Entry) -> None:
        """Fetch the documents of work and put it back into the queue. Runs on a fetching thread."""
        try:
            entry.attempt.documents = self._engine.attempts.fetch(entry.updates)
        except BaseException as error:  # noqa: BLE001  the client gets the error
            entry.attempt.error = contained(error)
        self._queue.put_back(entry.work)

    def _wait(self, entry: _Entry, child: Child[list[Recorded]]) -> None:
        """Wait for a child and put its work back into the queue. Runs on a pool thread."""
        found: list[Any] | None = None
        try:
            result = child.result()
            found = [recorded.quads() for recorded in result]
            entry.attempt.needed = sum(recorded.steps for recorded in result)
            entry.attempt.steps += entry.attempt.needed
        except BaseException as error:  # noqa: BLE001  the client gets the error
            entry.attempt.error = contained(error)
        entry.attempt.found = found
        with self._lock:
            self._running -= 1
        self._queue.put_back(entry.work)
