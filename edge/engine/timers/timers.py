"""Delayed updates in memory: which wait, which are due, and what became of the last ones (SPS paper, section II.C).

Only their times and ids are in memory; their texts are read when they are due. What changes here is written with the
commit of what caused it, or undone with it. One caller at a time, the writer.
"""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from edge.engine.clock import Clock
from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.timers.engine_time import EngineTime
from edge.engine.timers.timer_table import (
    BESIDE_TEXT,
    PendingTimer,
    Statement,
    TimerRequest,
    TimerTable,
    key_of,
    named,
    owned,
)
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, Forbidden, NotFound, TooManyRequests
from edge.protocol.moments import After, When
from edge.protocol.timers import Scheduled, Timer, TimerState

_LOOK: Final = 1.0
"""Seconds after which the machine's clock is looked at again: somebody may have set it."""
_HOLD: Final = 1_000_000
"""Microseconds until those that could not be run, because nothing could be stored, are tried again."""
_COLLECTED_AT_ONCE: Final = 250
"""Due updates that `collect` finds in one call, however many became due at once: a millisecond, and more than are run
before the next call."""
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
        """Reads the table. `last_update`: what the clock showed at the last update. Raises `DataDirectoryRefused`."""
        self._table = table
        self._clock = clock
        self._settings = settings
        self._waiting: dict[str, PendingTimer] = {}
        self._held: Counter[str] = Counter()
        """How many wait of each owner."""
        self._bytes: Counter[str] = Counter()
        """Bytes of their texts on disk, by owner."""
        self._all_bytes = 0
        self._heaps: dict[bool, list[PendingTimer]] = {True: [], False: []}
        self._due: dict[str, deque[PendingTimer]] = {}
        """By owner, those whose time has come, in the order in which they run."""
        self._next: dict[str, None] = {}
        """The owners among these of which the queue holds none."""
        self._offered = 0
        """Those that were given to the queue and are neither finished nor given back."""
        self._outcomes: dict[str, tuple[int, Timer]] = {}
        self._number = self._outcome_number = self._forgotten = 0
        self._held_until = 0
        self._statements: list[Statement] = []
        self._fresh: dict[int, TimerRequest] = {}
        """What is not in the table yet."""
        self._undo: list[Callable[[], None]] = []
        self._scale = EngineTime(clock, table.anchors(), table.latest(), last_update)
        self._read()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def _read(self) -> None:
        oldest = self._scale.now()
        for waiting, since in self._table.waiting():
            oldest = min(oldest, since)
            owed = self._scale.owed(since) if waiting.relative else 0
            known = waiting._replace(due=waiting.due - owed) if owed else waiting
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

    # When

    def arrival(self) -> tuple[int, int]:
        """Now: engine time, and what the machine's clock shows. Any thread."""
        return self._scale.now(), self._clock.wall()

    def wait(self) -> float | None:
        """Seconds until one may be due; None: none waits."""
        if not self._waiting:
            return None
        first = [heap[0].due - self._now(relative) for relative, heap in self._heaps.items() if heap]
        if self._next:
            first.append(0)
        held = self._held_until - self._clock.steady()
        return min(_LOOK, max(0, held, min(first, default=0)) / 1_000_000)

    @property
    def due(self) -> int:
        """How many are due and not finished, as far as they have been collected."""
        return sum(map(len, self._due.values())) + self._offered

    def collect(self) -> None:
        """Find those whose time has come, `_COLLECTED_AT_ONCE` at most, the one first that is overdue most."""
        if not self._waiting or self._clock.steady() < self._held_until:
            return
        self._look()
        now = {relative: self._now(relative) for relative in self._heaps}
        for _ in range(_COLLECTED_AT_ONCE):
            heads = [(heap[0].due - now[relative], relative) for relative, heap in self._heaps.items() if heap]
            if not heads or min(heads)[0] > 0:
                break
            waiting = heapq.heappop(self._heaps[min(heads)[1]])
            if self._waiting.get(waiting.key) is waiting:
                self._enter_due(waiting)

    def offer(self) -> list[PendingTimer]:
        """The next one of each owner of which the queue holds none. Each is to be fired, or given back.

        The queue holds one of each owner, not all that are due, and shares its time between owners.
        """
        if not self._next or self._clock.steady() < self._held_until:
            return []
        offered = []
        for owner in self._next:
            theirs = self._due[owner]
            offered.append(theirs.popleft())
            if not theirs:
                del self._due[owner]
        self._next.clear()
        self._offered += len(offered)
        return offered

    def begin(self, waiting: PendingTimer) -> None:
        """One that was offered has its turn: the next one of its owner may be offered."""
        if waiting.owner in self._due:
            self._next[waiting.owner] = None

    def end(self) -> None:
        """One that was offered is finished, and that is stored."""
        self._offered -= 1

    def give_back(self, waiting: PendingTimer) -> None:
        """One that was offered could not be fired; it is still due, in a moment."""
        self._offered -= 1
        self._held_until = self._clock.steady() + _HOLD
        heapq.heappush(self._heaps[waiting.relative], waiting)

    def _enter_due(self, waiting: PendingTimer) -> None:
        owner = waiting.owner
        if owner not in self._due:
            self._due[owner] = deque()
            self._next[owner] = None
        self._due[owner].append(waiting)

    def too_late(self, waiting: PendingTimer) -> bool:
        """Whether it is overdue by more than the settings allow."""
        limit = self._settings.max_lateness
        return bool(limit) and self._now(waiting.relative) - waiting.due > limit * 1_000_000

    def _look(self) -> None:
        """See to the clock. Delays that turn out to be owed time, because the machine was off, are nearer their end."""
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

    # What is asked of them

    def schedule(self, request: UpdateRequest, when: When, name: str, arrival: tuple[int, int]) -> Scheduled:
        """Have an update run later. One of the same client and id that waits is replaced. Raises `TooManyRequests`."""
        since, scheduled = arrival
        key = key_of(request.access.registration, name)
        before = self._waiting.get(key)
        if before is None:
            self._check_room(request.access.registration)
        size = len(request.sparql.encode()) + BESIDE_TEXT
        self._check_bytes(request.access.registration, size - (0 if before is None else before.size))
        relative = isinstance(when, After)
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
        return Scheduled(name, due - since + scheduled if relative else due, before is not None)

    def cancel(self, name: str, who: Access, client: str | None) -> None:
        """Have one not run. Raises `NotFound`; `Forbidden` where `who` may not ask for those of `client`."""
        key = self._key(name, who, client)
        waiting = self._waiting.get(key)
        if waiting is None:
            raise self._not_found(key, name, "is pending")
        self.finish(waiting, self.given([waiting])[waiting.number], "cancelled")

    def look_up(self, name: str, who: Access, client: str | None) -> Timer:
        """One that waits, or what became of it. Raises `NotFound`, `Forbidden` as `cancel` does."""
        key = self._key(name, who, client)
        waiting = self._waiting.get(key)
        if waiting is not None:
            return self._shown([waiting])[0]
        if key in self._outcomes:
            return self._outcomes[key][1]
        raise self._not_found(key, name, "is known")

    def listed(self, state: TimerState | None, limit: int, who: Access) -> list[Timer]:
        """Those that wait, the first one first, then what became of others, the last one first; `limit` at the most.

        Its own, or everybody's where `who` may administer.
        """
        found: list[Timer] = []
        if state in (None, "pending"):
            waiting = (one for key, one in self._waiting.items() if who.operates or owned(key, who.registration))
            found = self._shown(heapq.nsmallest(limit, waiting, key=lambda one: one.due - self._now(one.relative)))
        if state != "pending":
            finished = (
                timer
                for key, (_, timer) in reversed(self._outcomes.items())
                if state in (None, timer.state) and (who.operates or owned(key, who.registration))
            )
            found += itertools.islice(finished, limit - len(found))
        return found

    def is_waiting(self, waiting: PendingTimer) -> bool:
        """Whether one that was taken is still to be run: it may have been cancelled or replaced since."""
        return self._waiting.get(waiting.key) is waiting

    def given(self, several: Sequence[PendingTimer]) -> Mapping[int, TimerRequest]:
        """What they are, by number. Raises `StorageFailed`."""
        return {**self._table.given([waiting.number for waiting in several]), **self._fresh}

    def finish(
        self,
        waiting: PendingTimer,
        given: TimerRequest,
        state: TimerState,
        changed: tuple[int, int] = (0, 0),
        error: EdgeError | None = None,
    ) -> None:
        """One waits no more; this became of it. `changed`: quads added and removed."""
        self._remove(waiting)
        self._outcome_number += 1
        number = self._outcome_number
        timer = Timer(
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
        """Whether there is something to write."""
        return bool(self._statements)

    @property
    def anchor_changed(self) -> bool:
        """Whether somebody set the machine's clock while a delay runs, which must be known after a restart."""
        return self._scale.changed and bool(self._waiting)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what changed since `kept`, in the transaction that is open."""
        for sql, parameters in self._statements:
            connection.execute(sql, parameters)
        self._scale.look()  # a delay must not be stored beside a moment on a clock that has been set since
        if self._scale.changed:
            connection.execute(*self._table.anchor(self._scale.anchors))

    def write_anchor(self, connection: sqlite3.Connection) -> None:
        """Write what time it is, which can be written at any time."""
        connection.execute(*self._table.anchor(self._scale.anchors))

    def kept(self) -> None:
        """What was written is on disk."""
        self._statements.clear()
        self._undo.clear()
        self._fresh.clear()
        self._scale.changed = False
        for heap in self._heaps.values():
            if len(heap) > 2 * len(self._waiting) + _FORGET_AT_ONCE:  # what was cancelled is still in there
                heap[:] = [one for one in heap if self._waiting.get(one.key) is one]
                heapq.heapify(heap)

    def undo(self) -> None:
        """Take back what changed since `kept`."""
        self._statements.clear()
        for take_back in reversed(self._undo):
            take_back()
        self._undo.clear()
        self._fresh.clear()

    # Inside

    def _check_room(self, owner: str) -> None:
        """Whether there is room for one more of an owner: as many as are left for others. Raises `TooManyRequests`."""
        limit, held = self._settings.max_pending_timers, self._held[owner] if owner else 0
        if len(self._waiting) + held >= limit:
            whose = f", {held} of them of this client, which leaves as many to others" if held else ""
            raise TooManyRequests(
                f"{len(self._waiting)} delayed updates are pending of {limit} (engine.max_pending_timers){whose}; "
                "cancel some, or try again later"
            )

    def _check_bytes(self, owner: str, more: int) -> None:
        """The same for the bytes of their texts. Raises `TooManyRequests`."""
        limit, held = self._settings.max_timer_bytes, self._bytes[owner] if owner else 0
        if more > 0 and self._all_bytes + held + more > limit:
            whose = f", {held} of them of this client, which leaves as many to others" if held else ""
            raise TooManyRequests(
                f"The texts of delayed updates take {self._all_bytes} bytes of {limit} (engine.max_timer_bytes)"
                f"{whose}; cancel some, send a shorter text, or try again later"
            )

    def _enter(self, waiting: PendingTimer) -> None:
        self._waiting[waiting.key] = waiting
        self._held[waiting.owner] += 1
        self._bytes[waiting.owner] += waiting.size
        self._all_bytes += waiting.size

    def _leave(self, waiting: PendingTimer) -> None:
        del self._waiting[waiting.key]
        self._held[waiting.owner] -= 1
        self._bytes[waiting.owner] -= waiting.size
        self._all_bytes -= waiting.size
        if not self._held[waiting.owner]:
            del self._held[waiting.owner], self._bytes[waiting.owner]

    def _remove(self, waiting: PendingTimer) -> None:
        self._statements.append(self._table.remove(waiting))
        self._leave(waiting)
        self._undo.append(partial(self._enter, waiting))

    def _take_back(self, key: str, before: tuple[int, Timer] | None) -> None:
        del self._outcomes[key]
        if before is not None:
            self._outcomes[key] = before

    def _forget(self) -> None:
        """Forget the outcomes that are old, on disk many at a time."""
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
        """When it is to run, as the machine's clock shows now."""
        return waiting.due - self._scale.now() + self._clock.wall() if waiting.relative else waiting.due

    def _shown(self, several: Sequence[PendingTimer]) -> list[Timer]:
        found = self.given(several)
        return [
            Timer(one.id, "pending", self._at(one), given.scheduled, given.request.sparql, given.request.access.client)
            for one, given in ((one, found[one.number]) for one in several)
        ]

    def _key(self, name: str, who: Access, client: str | None) -> str:
        """Under which `who` finds the one of this name: its own, or with `client` that of somebody else."""
        if client is None or client == who.client:
            return key_of(who.registration, name)
        if not who.operates:
            raise Forbidden("Delayed updates of other clients are for those who may administer")
        waiting = [one for key, one in self._waiting.items() if named(key, name)]
        given = self.given(waiting)
        keys = [one.key for one in waiting if given[one.number].request.access.client == client]
        keys += [key for key, (_, timer) in self._outcomes.items() if named(key, name) and timer.client == client]
        if not keys:
            raise NotFound(f'No delayed update of the client "{client}" has the id "{name}"')
        return keys[0]

    def _not_found(self, key: str, name: str, what: str) -> NotFound:
        became = self._outcomes.get(key)
        told = "" if became is None else f": it is {became[1].state}"
        return NotFound(f'No delayed update with the id "{name}" {what}{told}; list them to see which there are')
