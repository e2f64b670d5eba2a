"""The queue in front of the writer; updates that wait share a commit (URQ, SRQ; SEPA paper, section 4.2).

First come, first served, but for clients with another priority. What is due by the clock joins the queue at its end
when the writer comes for more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from edge.engine.lanes import Lanes
from edge.engine.places import HOUSE, Places
from edge.engine.work import Task, Work
from edge.protocol.errors import NotReady, TooManyRequests


class RequestQueue:
    """What waits for the writer. Any thread may put, one takes."""

    def __init__(self, max_pending_updates: int, max_batch: int) -> None:
        self._max_batch = max_batch
        self._places = Places(max_pending_updates)
        self._waiting: Lanes[Work | Task[Any]] = Lanes()
        self._ready = threading.Condition()
        self.open = True
        """Whether anything may be put."""

    @property
    def pending_updates(self) -> int:
        """Updates that wait or are being carried out."""
        return self._places.taken

    def put(self, work: Work | Task[Any]) -> None:
        """Add to the end. Raises `NotReady` when closed, `TooManyRequests` when full, or for this client."""
        with self._ready:
            if not self.open:
                raise NotReady("The gateway is stopping; try again when it is back")
            if work.updates and not self._places.take(work.source, work.updates):
                raise self._full(work.source)
            self._waiting.put(work)
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
                for work in due():
                    self._waiting.put(work)
            if not self._waiting:
                return [] if self.open else None
            return self._next()

    def done(self, batch: Iterable[Work]) -> None:
        """Work that was taken has been carried out."""
        with self._ready:
            for work in batch:
                if work.updates:
                    self._places.give_back(work.source, work.updates)

    def close(self) -> None:
        """Take nothing more. What waits can still be taken; nothing becomes due."""
        with self._ready:
            self.open = False
            self._ready.notify()

    def refuse_rest(self) -> None:
        """Refuse what waits: nobody has been told that it was done."""
        with self._ready:
            left = self._waiting.clear()
        for work in left:
            work.failed(NotReady("The gateway stopped before the request's turn; send it again"))

    def _next(self) -> list[Work] | Task[Any]:
        size = 0

        def fits(work: Work | Task[Any], batch: list[Work | Task[Any]]) -> bool:
            nonlocal size
            if isinstance(work, Task) or isinstance(batch[0], Task):
                return False
            size = size or max(1, batch[0].updates)
            if size + max(1, work.updates) > self._max_batch:
                return False
            size += max(1, work.updates)
            return True

        first, *others = self._waiting.take(fits)
        return first if isinstance(first, Task) else [first, *others]  # type: ignore[list-item]

    def _full(self, source: str) -> TooManyRequests:
        held = self._places.held.get(source, 0)
        whose = f", {held} of them of this client" if source != HOUSE and held else ""
        return TooManyRequests(
            f"{self.pending_updates} updates are waiting{whose} (engine.max_pending_updates is {self._places.limit}); "
            "try again later",
            retry_after=1,
        )
