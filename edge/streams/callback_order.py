"""Order in which observers get their turns, so that no slow or dead host delays the others. Pure.

Three measures work together:

- Hosts take turns, and the observers of one host take turns within it.
- One host has at most a few requests at the same time.
- Observers whose last attempt got no answer share half of the slots, and those that were answered have three quarters.
  A thousand dead hosts therefore cannot occupy all slots until their deadlines.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Final

SLOTS: Final = 16
"""Requests at the same time."""
PER_HOST: Final = 4
"""Requests to one host at the same time."""


class AttemptState(IntEnum):
    """What the last attempt for an observer tells about the next one. The order is that of precedence."""

    ANSWERING = 0
    """It got an answer, of any status."""
    NEW = 1
    """It is the first one."""
    SILENT = 2
    """It got no answer in time, or the connection failed."""


class _Host:
    """Observers of one host and port."""

    __slots__ = ("active", "observers", "queued", "ready", "silent")

    def __init__(self) -> None:
        self.observers = 0
        self.active = 0
        self.silent = 0
        """Observers in a row that were answered before and now were not."""
        self.ready: tuple[deque[str], ...] = tuple(deque() for _ in AttemptState)
        self.queued = [False for _ in AttemptState]
        """Whether it waits for a turn, for each state."""


class _Observer:
    __slots__ = ("active", "host", "key", "state")

    def __init__(self, key: str, host: _Host) -> None:
        self.key = key
        self.host = host
        self.state = AttemptState.NEW
        self.active: bool | None = None
        """Whether its running request is counted as one of an answering host; None: it has none."""


class CallbackOrder:
    """Observers that wait for a turn. Each operation takes constant time, except after a host has failed."""

    def __init__(self, slots: int = SLOTS, per_host: int = PER_HOST) -> None:
        self._slots = slots
        self._per_host = per_host
        self._most = {True: max(1, slots - slots // 4), False: max(1, slots // 2)}
        """Requests of answering hosts (True) and of others (False)."""
        self._active = {True: 0, False: 0}
        self._hosts: dict[str, _Host] = {}
        self._observers: dict[str, _Observer] = {}
        self._queues: tuple[deque[_Host], ...] = tuple(deque() for _ in AttemptState)

    @property
    def active(self) -> int:
        """Number of observers that have a turn now."""
        return self._active[True] + self._active[False]

    def add(self, observer: str, host: str) -> None:
        """Add an observer. `host`: name and port."""
        self._observers[observer] = _Observer(host, self._enter(host))

    def remove(self, observer: str) -> None:
        """Remove an observer, and end its turn."""
        known = self._observers.pop(observer)
        self._end(known)
        for ready in known.host.ready:
            if observer in ready:
                ready.remove(observer)
        self._leave(known)

    def move(self, observer: str, host: str, *, is_first: bool) -> None:
        """Let the next request of an observer go to this host. It must neither wait nor have a turn.

        `is_first`: whether it cannot be expected that this request is answered like the one before.
        """
        known = self._observers[observer]
        if is_first:
            known.state = max(known.state, AttemptState.NEW)
        if known.key != host:
            self._leave(known)
            known.key, known.host = host, self._enter(host)

    def ready(self, observer: str) -> None:
        """Let an observer wait for a turn. It must neither wait nor have one already."""
        known = self._observers[observer]
        state = known.state
        if state is AttemptState.ANSWERING and self._is_down(known.host):
            state = AttemptState.SILENT
        known.host.ready[state].append(observer)
        self._queue(known.host, state)

    def take(self) -> str | None:
        """Return the observer that has its turn now; None: no one waits, or no slot is free."""
        for state, queue in zip(AttemptState, self._queues, strict=True):
            answering = state is AttemptState.ANSWERING
            # Checked in each round, because a host at its limit leaves the queue without a turn.
            while queue and self.active < self._slots and self._active[answering] < self._most[answering]:
                host = queue.popleft()
                host.queued[state] = False
                if host.active < self._per_host and host.ready[state]:
                    return self._begin(host, state)
        return None

    def finished(self, observer: str) -> None:
        """End a turn."""
        self._end(self._observers[observer])

    def answered(self, observer: str, answered: bool) -> None:
        """Note whether the host answered a request of an observer."""
        known = self._observers[observer]
        host = known.host
        # Observers that were silent before tell nothing new: one URL that hangs must not slow down its whole host.
        if answered:
            host.silent = 0
        elif known.state is AttemptState.ANSWERING:
            host.silent += 1
        known.state = AttemptState.ANSWERING if answered else AttemptState.SILENT
        if self._is_down(host):
            waiting = host.ready[AttemptState.ANSWERING]
            host.ready[AttemptState.SILENT].extend(waiting)
            waiting.clear()
            self._queue(host, AttemptState.SILENT)

    def found(self, observer: str) -> None:
        """Note that a host answered a request of another kind, such as a discovery. The state stays."""
        self._observers[observer].host.silent = 0

    def _enter(self, host: str) -> _Host:
        entry = self._hosts.setdefault(host, _Host())
        entry.observers += 1
        return entry

    def _leave(self, known: _Observer) -> None:
        known.host.observers -= 1
        if not known.host.observers:
            del self._hosts[known.key]

    def _is_down(self, host: _Host) -> bool:
        """Return whether the host seems to be down, so that the others of its observers need not find that out too."""
        return host.silent >= self._per_host

    def _begin(self, host: _Host, state: AttemptState) -> str:
        observer = host.ready[state].popleft()
        known = self._observers[observer]
        known.active = state is AttemptState.ANSWERING
        self._active[known.active] += 1
        host.active += 1
        self._queue(host, state)
        return observer

    def _end(self, known: _Observer) -> None:
        if known.active is None:
            return
        self._active[known.active] -= 1
        known.active = None
        known.host.active -= 1
        for state in AttemptState:
            self._queue(known.host, state)

    def _queue(self, host: _Host, state: AttemptState) -> None:
        if host.ready[state] and not host.queued[state] and host.active < self._per_host:
            host.queued[state] = True
            self._queues[state].append(host)
