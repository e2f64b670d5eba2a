"""The request queue of the writer (URQ and SRQ of the SEPA paper, section 4.2).

Clients take turns (`fair_queue`). Due delayed updates join the queue as work of their owners.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from edge.engine.admission.fair_queue import LEAST_COST, FairQueue
from edge.engine.admission.fair_share import GATEWAY
from edge.engine.admission.slots import Slots
from edge.engine.admission.token_bucket import TokenBuckets
from edge.engine.clock import Clock
from edge.engine.scheduling.work import Task, Work
from edge.protocol.errors import NotReady, TooManyRequests

Due = Callable[[], Iterable[Work]]
"""Returns work that has become due."""


class RequestQueue:
    """Queue of work for the writer. Any thread may put; only the writer takes."""

    def __init__(self, max_pending_updates: int, clock: Clock, rate: TokenBuckets | None = None) -> None:
        """`rate`: limit of the steps of one client's updates; None: unlimited."""
        self._rate = rate or TokenBuckets(0, 0)
        self._slots = Slots(max_pending_updates)
        self._clock = clock
        self._waiting: FairQueue[Work | Task[Any]] = FairQueue(self._late)
        # Reentrant, because a text that was compiled meanwhile calls back at once (`_enter`).
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)
        """Notified for a `sleep`. All other uses enter the lock itself, which Python does without a call."""
        self.open = True
        """Whether the queue accepts work."""
        self._refusing = False
        """Whether work is not continued either."""
        self._called = False
        """Whether `wake` was called since the last `sleep`."""

    @property
    def pending_updates(self) -> int:
        """Number of updates that wait or are being carried out."""
        return self._slots.taken

    @property
    def finished(self) -> bool:
        """Whether the queue is closed and all work is done."""
        with self._lock:
            return not self.open and self._waiting.empty

    @property
    def oldest_seconds(self) -> float:
        """Seconds that the oldest waiting work has waited; 0 if none waits."""
        with self._lock:
            oldest = min((work.queued_at for work in self._waiting), default=None)
        return 0.0 if oldest is None else max(0, self._clock.steady() - oldest) / 1_000_000

    def put(self, work: Work | Task[Any], *, wake: bool = True) -> None:
        """Append work. Raises `NotReady` if closed, and `TooManyRequests` if no slot is free.

        `wake`: whether to end a `sleep`.
        """
        with self._lock:
            if not self.open:
                raise NotReady("The gateway is stopping; try again when it is back")
            if work.updates and not self._slots.take(work.source, work.updates):
                raise self._full(work.source)
            self._enter(work)
            if wake:
                self._ready.notify()

    def sleep(self, seconds: float | None) -> None:
        """Wait for work, for `wake` or `close`, at most `seconds` (None: no limit)."""
        with self._lock:
            if not (self._called or self._waiting) and (self.open or not self._waiting.empty):
                self._ready.wait(seconds)
            self._called = False

    def wake(self, *, always: bool) -> None:
        """End a `sleep`, or the next one. `always=False`: only if work waits."""
        with self._lock:
            if always or self._waiting:
                self._called = True
                self._ready.notify()

    def take(self, due: Due) -> Work | Task[Any] | None:
        """Return the next work; None: none waits. Does not block."""
        with self._lock:
            self._enter_due(due)
            return self._waiting.take()

    def take_more(self, room: int, due: Due) -> Work | None:
        """Return the next work if it adds at most `room` updates to the commit, else None. Does not block."""

        def fits(work: Work | Task[Any]) -> bool:
            return isinstance(work, Work) and max(1, work.updates) <= room and not work.staged

        with self._lock:
            self._enter_due(due)
            return self._waiting.take(fits)  # type: ignore[return-value]

    def charge(self, work: Work | Task[Any], cost: int, steps: int = 0) -> None:
        """Charge the client of work for microseconds of the writer's time, and for steps."""
        with self._lock:
            self._waiting.charge(work.source, max(LEAST_COST, cost))
            if steps and self._rate.limits(work.source):
                self._rate.spend(work.source, steps, self._clock.steady() / 1_000_000)
                self._waiting.look_late(work.source)

    def hold(self, work: Work) -> None:
        """Note that taken work is evaluated elsewhere: its client waits until `put_back`, other clients do not."""
        with self._lock:
            self._waiting.hold(work)

    def put_back(self, work: Work) -> None:
        """Return held work to the front of its client's items. Thread-safe."""
        with self._lock:
            self._waiting.put_back(work)
            self._ready.notify()

    def again(self, work: Work) -> None:
        """Continue taken work at the next turn of its client."""
        with self._lock:
            if not self._refusing:
                self._waiting.hold(work)
                self._waiting.put_back(work)
                return
        work.failed(_stopped())

    def done(self, batch: Iterable[Work]) -> None:
        """Note that taken work has been carried out."""
        with self._lock:
            for work in batch:
                if work.updates:
                    self._slots.give_back(work.source, work.updates)

    def close(self) -> None:
        """Accept no more work. Waiting work can still be taken; delayed updates no longer become due."""
        with self._lock:
            self.open = False
            self._ready.notify()

    def refuse_rest(self) -> None:
        """Refuse the requests that wait. None of them was confirmed."""
        with self._lock:
            self._refusing = True
            left = self._waiting.clear()
            self._ready.notify()
        for work in left:
            work.failed(_stopped())

    def _late(self, source: str) -> bool:
        """Return whether a client exceeds its step rate."""
        return self._rate.limits(source) and self._rate.delay(source, self._clock.steady() / 1_000_000) > 0

    def _enter(self, work: Work | Task[Any]) -> None:
        # Before `put` reads it: the queue reads it again if it changes at any later time.
        late = not work.ready
        work.queued_at = self._clock.steady()
        self._waiting.put(work)
        if late:
            source = work.source  # a callback with the work itself would create a reference cycle through its future
            work.when_ready(lambda: self._look_again(source))

    def _enter_due(self, due: Due) -> None:
        if self.open:
            for work in due():
                self._enter(work)

    def _look_again(self, source: str) -> None:
        with self._lock:
            self._waiting.look_again(source)
            self._ready.notify()

    def _full(self, source: str) -> TooManyRequests:
        held = self._slots.held(source)
        whose = f", {held} of them of this client" if source != GATEWAY and held else ""
        return TooManyRequests(
            f"{self.pending_updates} updates are waiting{whose} (engine.max_pending_updates is {self._slots.limit}); "
            "try again later",
            retry_after=1,
        )


def _stopped() -> NotReady:
    return NotReady("The gateway stopped before the request's turn; send it again")
