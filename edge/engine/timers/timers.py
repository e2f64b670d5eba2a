"""Delayed updates in memory: the pending ones, the due ones, and the last outcomes (SPS paper, section II.C).

Only times and ids are in memory; the texts are read when they are due. Changes are written in the commit of the work
that caused them, or undone with it. Not thread-safe: only the writer calls it.
"""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from edge.engine.admission.fair_share import FairShare
from edge.engine.clock import Clock
from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.timers.engine_time import EngineTime
from edge.engine.timers.timer_table import (
    ROW_OVERHEAD,
    PendingTimer,
    Statement,
    TimerRequest,
    TimerTable,
    key_of,
    named,
    owned,
)
from edge.protocol.access import Access
from edge.protocol.due_time import After, When
from edge.protocol.errors import EdgeError, Forbidden, NotFound, TooManyRequests
from edge.protocol.timers import TimerConfirmation, TimerRecord, TimerState

_LOOK: Final = 1.0
"""Seconds between checks of the machine's clock, which may be set at any time."""
_HOLD: Final = 1_000_000
"""Microseconds before updates that could not run because of a storage failure are tried again."""
_COLLECTED_AT_ONCE: Final = 250
"""Due updates that `collect` finds in one call: about a millisecond, and more than run before the next call."""
_FORGET_AT_ONCE: Final = 256
"""Outcomes that are deleted from the disk together."""


class Timers:
    """All delayed updates."""

    def __init__(
        self,
        table: TimerTable,
        clock: Clock,
        settings: EngineSettings,
        last_update: Callable[[], int] = lambda: 0,
    ) -> None:
        """Read the table. Raises `DataDirectoryRefused`.

        `last_update`: returns the wall clock time of the last update.
        """
        self._table = table
        self._clock = clock
        self._settings = settings
        self._waiting: dict[str, PendingTimer] = {}
        self._count = FairShare(settings.max_pending_timers)
        """Number of pending ones, by owner."""
        self._bytes = FairShare(settings.max_timer_bytes)
        """Bytes of their texts on disk, by owner."""
        self._heaps: dict[bool, list[PendingTimer]] = {True: [], False: []}
        self._due: dict[str, deque[PendingTimer]] = {}
        """Due ones by owner, in the order in which they run."""
        self.idle_owners: dict[str, None] = {}
        """Owners with due updates, none of which is in the request queue."""
        self._offered = 0
        """Number of those that were offered to the queue and are neither finished nor given back."""
        self._outcomes: dict[str, tuple[int, TimerRecord]] = {}
        self._number = self._outcome_number = self._forgotten = 0
        self._held_until = 0
        self._statements: list[Statement] = []
        self._fresh: dict[int, TimerRequest] = {}
        """Requests that are not in the table yet."""
        self._undo: list[Callable[[], None]] = []
        self._scale = EngineTime(clock, table.anchors(), table.latest(), last_update)
        self._read()

    def __len__(self) -> int:
        """Return the number of pending ones."""
        return len(self._waiting)

    def _read(self) -> None:
        oldest = self._scale.now()
        for waiting, since in self._table.waiting():
            oldest = min(oldest, since)
            downtime_credit = self._scale.downtime_credit(since) if waiting.relative else 0
            known = waiting._replace(due=waiting.due - downtime_credit) if downtime_credit else waiting
            self._enter(known)
            self._heaps[known.relative].append(known)
            self._number = max(self._number, known.number)
        self._scale.forget(oldest)
        self._credits = self._scale.credits
        for heap in self._heaps.values():
            heapq.heapify(heap)
        for number, key, timer in self._table.outcomes():
            self._outcomes.pop(key, None)
            self._outcomes[key] = number, timer
            self._outcome_number = number

    # Due times

    def arrival(self) -> tuple[int, int]:
        """Return the current engine time and wall clock time. Thread-safe."""
        return self._scale.now(), self._clock.wall()

    def wait(self) -> float | None:
        """Return the seconds until one may be due; None if none is pending."""
        if not self._waiting:
            return None
        first = [heap[0].due - self._now(relative) for relative, heap in self._heaps.items() if heap]
        if self.idle_owners:
            first.append(0)
        held = self._held_until - self._clock.steady()
        return min(_LOOK, max(0, held, min(first, default=0)) / 1_000_000)

    @property
    def due(self) -> int:
        """Number of due ones that are not finished, as far as `collect` found them."""
        return sum(map(len, self._due.values())) + self._offered

    def collect(self) -> None:
        """Move due ones, most overdue first, to the queues of their owners; at most `_COLLECTED_AT_ONCE`."""
        if not self._waiting or self._clock.steady() < self._held_until:
            return
        self._look()
        now = {relative: self._now(relative) for relative in self._heaps}
        for _ in range(_COLLECTED_AT_ONCE):
            heads = [(heap[0].due - now[relative], relative) for relative, heap in self._heaps.items() if heap]
            if not heads or min(heads)[0] > 0:
                break
            waiting = heapq.heappop(self._heaps[min(heads)[1]])
            # A heap may still contain cancelled or replaced ones.
            if self._waiting.get(waiting.key) is waiting:
                self._enter_due(waiting)

    def offer(self) -> list[PendingTimer]:
        """Return the next due one of each owner that has none in the request queue. Each must be run or given back.

        The request queue holds one per owner instead of all due ones, and shares its time between owners.
        """
        if not self.idle_owners or self._clock.steady() < self._held_until:
            return []
        offered = []
        # One at a time per owner, so that one owner's updates cannot fill the queue.
        for owner in self.idle_owners:
            theirs = self._due[owner]
            offered.append(theirs.popleft())
            if not theirs:
                del self._due[owner]
        self.idle_owners.clear()
        self._offered += len(offered)
        return offered

    def begin(self, waiting: PendingTimer) -> None:
        """Note that an offered one begins to run: the next one of its owner may be offered."""
        if waiting.owner in self._due:
            self.idle_owners[waiting.owner] = None

    def end(self) -> None:
        """Note that an offered one is finished and its outcome is stored."""
        self._offered -= 1

    def give_back(self, waiting: PendingTimer) -> None:
        """Return an offered one that could not run. It stays due and is offered again after `_HOLD`."""
        self._offered -= 1
        self._held_until = self._clock.steady() + _HOLD
        heapq.heappush(self._heaps[waiting.relative], waiting)

    def _enter_due(self, waiting: PendingTimer) -> None:
        owner = waiting.owner
        if owner not in self._due:
            self._due[owner] = deque()
            self.idle_owners[owner] = None
        self._due[owner].append(waiting)

    def too_late(self, waiting: PendingTimer) -> bool:
        """Return whether one is overdue by more than `max_lateness`."""
        limit = self._settings.max_lateness
        return bool(limit) and self._now(waiting.relative) - waiting.due > limit * 1_000_000

    def _look(self) -> None:
        """Check the clock. Credits for time that the machine was off bring the due times forward."""
        self._scale.look()
        for credit in self._scale.credits[len(self._credits) :]:
            numbers = self._table.given_before(credit.before)
            for key, waiting in self._waiting.items():
                if waiting.number in numbers:
                    self._waiting[key] = waiting._replace(due=waiting.due - credit.time)
            self._heaps[True] = [waiting for waiting in self._waiting.values() if waiting.relative]
            heapq.heapify(self._heaps[True])
        self._credits = self._scale.credits

    def _now(self, relative: bool) -> int:
        return self._scale.now() if relative else self._clock.wall()

    # Requests of clients

    def schedule(self, request: UpdateRequest, when: When, name: str, arrival: tuple[int, int]) -> TimerConfirmation:
        """Schedule an update, and replace a pending one with the same client and id. Raises `TooManyRequests`."""
        since, scheduled = arrival
        key = key_of(request.access.registration, name)
        before = self._waiting.get(key)
        if before is None:
            self._check_count(request.access.registration)
        size = len(request.sparql.encode()) + ROW_OVERHEAD
        self._check_bytes(request.access.registration, size - (0 if before is None else before.size))
        relative = isinstance(when, After)
        # Delays count in engine time, times of day by the wall clock.
        due = (since if isinstance(when, After) else 0) + when.microseconds
        if before is not None:
            self._remove(before)
        self._number += 1
        waiting = PendingTimer(due, self._number, key, relative, size)
        given = self._fresh[waiting.number] = TimerRequest(request, since, scheduled)
        self._statements.append(self._table.add(waiting, given))
        self._enter(waiting)
        self._undo.append(partial(self._leave, waiting))
        heapq.heappush(self._heaps[relative], waiting)
        return TimerConfirmation(name, due - since + scheduled if relative else due, before is not None)

    def cancel(self, name: str, access: Access, client: str | None) -> None:
        """Cancel a pending one.

        Raises `NotFound`, and `Forbidden` if `access` does not permit changes for `client`.
        """
        key = self._key(name, access, client)
        waiting = self._waiting.get(key)
        if waiting is None:
            raise self._not_found(key, name, "is pending")
        self.finish(waiting, self.given([waiting])[waiting.number], "cancelled")

    def look_up(self, name: str, access: Access, client: str | None) -> TimerRecord:
        """Return a pending one, or the outcome of a finished one. Raises `NotFound`, `Forbidden`."""
        key = self._key(name, access, client)
        waiting = self._waiting.get(key)
        if waiting is not None:
            return self._shown([waiting])[0]
        if key in self._outcomes:
            return self._outcomes[key][1]
        raise self._not_found(key, name, "is known")

    def listed(self, state: TimerState | None, limit: int, access: Access) -> list[TimerRecord]:
        """Return pending ones, next first, then outcomes, newest first; at most `limit`.

        Lists those of the client, or all of them if `access` permits administration.
        """
        found: list[TimerRecord] = []
        if state in (None, "pending"):
            waiting = (one for key, one in self._waiting.items() if access.operates or owned(key, access.registration))
            found = self._shown(heapq.nsmallest(limit, waiting, key=lambda one: one.due - self._now(one.relative)))
        if state != "pending":
            finished = (
                timer
                for key, (_, timer) in reversed(self._outcomes.items())
                if state in (None, timer.state) and (access.operates or owned(key, access.registration))
            )
            found += itertools.islice(finished, limit - len(found))
        return found

    def pending_ids(self, prefix: str) -> list[str]:
        """Return the ids of the gateway's own pending ones that begin with `prefix`."""
        return [key for key in self._waiting if key.startswith(prefix) and owned(key, "")]

    def is_waiting(self, waiting: PendingTimer) -> bool:
        """Return whether an offered one is still pending. It may have been cancelled or replaced."""
        return self._waiting.get(waiting.key) is waiting

    def given(self, several: Sequence[PendingTimer]) -> Mapping[int, TimerRequest]:
        """Return the requests of pending ones, by number. Raises `StorageFailed`."""
        return {**self._table.given([waiting.number for waiting in several]), **self._fresh}

    def finish(
        self,
        waiting: PendingTimer,
        given: TimerRequest,
        state: TimerState,
        changed: tuple[int, int] = (0, 0),
        error: EdgeError | None = None,
    ) -> None:
        """Replace a pending one by its outcome. `changed`: quads added and removed."""
        self._remove(waiting)
        self._outcome_number += 1
        number = self._outcome_number
        timer = TimerRecord(
            waiting.id,
            state,
            self._at(waiting),
            given.scheduled,
            client=given.request.access.client,
            finished=self._clock.wall(),
            added=changed[0],
            removed=changed[1],
            error=None if error is None else error.error,
            error_description=None if error is None else error.description,
        )
        self._statements.append(self._table.finish(number, waiting.owner, timer))
        before = self._outcomes.pop(waiting.key, None)
        self._outcomes[waiting.key] = number, timer
        self._undo.append(lambda: self._take_back(waiting.key, before))
        self._forget()

    # Together with a commit

    @property
    def changed(self) -> bool:
        """Whether there are changes to write."""
        return bool(self._statements)

    @property
    def anchor_changed(self) -> bool:
        """Whether the clock was set while a delay is pending. A restart must know that."""
        return self._scale.changed and bool(self._waiting)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the changes since the last `written`, in the open transaction."""
        for sql, parameters in self._statements:
            connection.execute(sql, parameters)
        self._scale.look()  # a delay must not be stored with an anchor that was taken before the clock was set
        if self._scale.changed:
            connection.execute(*self._table.anchor(self._scale.anchors))

    def write_anchor(self, connection: sqlite3.Connection) -> None:
        """Write the anchors of engine time only, as a test of the storage."""
        connection.execute(*self._table.anchor(self._scale.anchors))

    def written(self) -> None:
        """Note that the written changes are committed."""
        self._statements.clear()
        self._undo.clear()
        self._fresh.clear()
        self._scale.changed = False
        for heap in self._heaps.values():
            if len(heap) > 2 * len(self._waiting) + _FORGET_AT_ONCE:  # cancelled ones are still in the heap
                heap[:] = [one for one in heap if self._waiting.get(one.key) is one]
                heapq.heapify(heap)

    def undo(self) -> None:
        """Undo the changes since the last `written`."""
        self._statements.clear()
        for take_back in reversed(self._undo):
            take_back()
        self._undo.clear()
        self._fresh.clear()

    # Internals

    def _check_count(self, owner: str) -> None:
        """Check the quota: an owner may have as many as it leaves for others. Raises `TooManyRequests`."""
        if self._count.room(owner) < 1:
            raise TooManyRequests(
                f"{self._count.total} delayed updates are pending of {self._count.limit} (engine.max_pending_timers)"
                f"{_own(self._count, owner)}; cancel some, or try again later"
            )

    def _check_bytes(self, owner: str, more: int) -> None:
        """Check the quota of text bytes. Raises `TooManyRequests`."""
        if more > 0 and more > self._bytes.room(owner):
            raise TooManyRequests(
                f"The texts of delayed updates take {self._bytes.total} bytes of {self._bytes.limit} "
                f"(engine.max_timer_bytes){_own(self._bytes, owner)}; cancel some, send a shorter text, or try again "
                "later"
            )

    def _enter(self, waiting: PendingTimer) -> None:
        self._waiting[waiting.key] = waiting
        self._count.add(waiting.owner, 1)
        self._bytes.add(waiting.owner, waiting.size)

    def _leave(self, waiting: PendingTimer) -> None:
        del self._waiting[waiting.key]
        self._count.add(waiting.owner, -1)
        self._bytes.add(waiting.owner, -waiting.size)

    def _remove(self, waiting: PendingTimer) -> None:
        self._statements.append(self._table.remove(waiting))
        self._leave(waiting)
        self._undo.append(partial(self._enter, waiting))

    def _take_back(self, key: str, before: tuple[int, TimerRecord] | None) -> None:
        del self._outcomes[key]
        if before is not None:
            self._outcomes[key] = before

    def _forget(self) -> None:
        """Drop old outcomes; delete them from the disk in batches."""
        settings, outcomes = self._settings, self._outcomes
        oldest = self._clock.wall() - int(settings.timer_outcomes_for * 1_000_000)
        while outcomes:
            key, (number, timer) = next(iter(outcomes.items()))
            if len(outcomes) <= settings.max_timer_outcomes and (timer.finished or 0) >= oldest:
                break
            del outcomes[key]
            self._forgotten += 1
            if self._forgotten >= _FORGET_AT_ONCE:
                self._forgotten = 0
                self._statements.append(self._table.forget(number))

    def _at(self, waiting: PendingTimer) -> int:
        """Return the due time as wall clock time, by the clock as it is now."""
        return waiting.due - self._scale.now() + self._clock.wall() if waiting.relative else waiting.due

    def _shown(self, several: Sequence[PendingTimer]) -> list[TimerRecord]:
        found = self.given(several)
        return [
            TimerRecord(
                one.id, "pending", self._at(one), given.scheduled, given.request.sparql, given.request.access.client
            )
            for one, given in ((one, found[one.number]) for one in several)
        ]

    def _key(self, name: str, access: Access, client: str | None) -> str:
        """Return the key for an id: of the caller's own update or, with `client`, of another client's."""
        if client is None or client == access.client:
            return key_of(access.registration, name)
        if not access.operates:
            raise Forbidden("Only administrators may access delayed updates of other clients")
        waiting = [one for key, one in self._waiting.items() if named(key, name)]
        given = self.given(waiting)
        keys = [one.key for one in waiting if given[one.number].request.access.client == client]
        keys += [key for key, (_, timer) in self._outcomes.items() if named(key, name) and timer.client == client]
        if not keys:
            raise NotFound(f'No delayed update of the client "{client}" has the id "{name}"')
        return keys[0]

    def _not_found(self, key: str, name: str, state: str) -> NotFound:
        became = self._outcomes.get(key)
        outcome = "" if became is None else f": it is {became[1].state}"
        return NotFound(f'No delayed update with the id "{name}" {state}{outcome}; list them to see which there are')


def _own(share: FairShare, owner: str) -> str:
    """Return the part of an error message that names what the owner holds itself."""
    held = share.held(owner) if owner else 0
    return f", {held} of them of this client, which leaves as many for others" if held else ""
