"""The queue in front of the writer: first come, first served; updates that wait share a commit (URQ, SRQ; section 4.2).

What is due by the clock joins the queue at its end when the writer comes for more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from edge.engine.work import Task, Work
from edge.protocol.errors import NotReady, TooManyRequests


class RequestQueue:
    """What waits for the writer. Any thread may put, one takes."""

    def __init__(self, max_pending_updates: int, max_batch: int) -> None:
        self._max_pending_updates = max_pending_updates
        self._max_batch = max_batch
        self._waiting: deque[Work | Task[Any]] = deque()
        self._ready = threading.Condition()
        self.pending_updates = 0
        """Updates of clients that wait or are being carried out."""
        self.open = True
        """Whether anything may be put."""

    def put(self, work: Work | Task[Any]) -> None:
        """Add to the end. Raises `NotReady` when closed, `TooManyRequests` when full."""
        with self._ready:
            if not self.open:
                raise NotReady("The gateway is stopping; try again when it is back")
            # A list that is longer than the limit by itself waits for an empty queue, or it could never be carried out.
            if (
                work.updates
                and self.pending_updates
                and self.pending_updates + work.updates > self._max_pending_updates
            ):
                raise TooManyRequests(
                    f"{self.pending_updates} updates are waiting (engine.max_pending_updates is "
                    f"{self._max_pending_updates}); try again later"
                )
            self.pending_updates += work.updates
            self._waiting.append(work)
            self._ready.notify()

    def take(self, wait: float | None, due: Callable[[], Iterable[Work]]) -> list[Work] | Task[Any] | None:
        """What to do next: a task, or the work that may share a commit. None: closed, and nothing is left.

        Waits no longer than `wait` seconds (None: for ever); the list is empty if nothing came. `due` gives the work
        whose time has come.
        """
        with self._ready:
            if not self._waiting and self.open:
                self._ready.wait(wait)
            if self.open:
                self._waiting.extend(due())
            if not self._waiting:
                return [] if self.open else None
            head = self._waiting.popleft()
            if isinstance(head, Task):
                return head
            batch = [head]
            size = max(1, head.updates)
            while self._waiting:
                work = self._waiting[0]
                if isinstance(work, Task) or size + max(1, work.updates) > self._max_batch:
                    break
                batch.append(work)
                size += max(1, work.updates)
                self._waiting.popleft()
            return batch

    def done(self, batch: Iterable[Work]) -> None:
        """Work that was taken has been carried out."""
        with self._ready:
            self.pending_updates -= sum(work.updates for work in batch)

    def close(self) -> None:
        """Take nothing more. What waits can still be taken; nothing becomes due."""
        with self._ready:
            self.open = False
            self._ready.notify()

    def refuse_rest(self) -> None:
        """Refuse what waits: nobody has been told that it was done."""
        with self._ready:
            left = list(self._waiting)
            self._waiting.clear()
        for work in left:
            work.failed(NotReady("The gateway stopped before the request's turn; send it again"))
