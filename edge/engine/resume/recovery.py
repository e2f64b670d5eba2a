"""The history again: at start, with the subscriptions that were kept, so that they go on where they were.

The journal leads the graph from its snapshot to the present, change set by change set, as it came about. Subscriptions
join where they began, or at the snapshot where that came later, and are moved by the code that moved them before. So
each comes to the notification that it was told last, and what it was told on the way is known again.

A re-evaluated subscription may have skipped states, so its way is not known. It joins at the last position that was
written. If one change since then moved its result, there is one notification that it can have had. If several did, it
is not known which of them were notified together, and the subscription is not restored.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from edge.engine.engine import Engine
from edge.engine.journal.journal import Journal, JournalEntry
from edge.engine.requests import Notification, QueryRequest, Sink, SubscribeFailed
from edge.engine.resume.subscription_table import Start
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)

PATIENCE: Final = 10.0
"""Seconds that the start may take longer for the subscriptions; after that they are given up."""

MOST_ROWS: Final = 50_000
"""Rows of the last notifications, of all subscriptions together, that are known again; each is one row more."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A subscription of the process before, which goes on."""

    spuid: str
    request: QueryRequest
    variables: tuple[str, ...]
    told: int
    """Its last notification of before: nobody can have had a later one."""
    unread: Sequence[Notification]
    """Its last ones in order, and those that came of changes since the start."""


class Recovery:
    """Restores an engine from its journal, and holds the subscriptions until somebody takes them over."""

    def __init__(
        self, engine: Engine, journal: Journal, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`patience`: seconds of `clock`."""
        self._engine = engine
        self._journal = journal
        self._patience = patience
        self._clock = clock
        self._held: dict[str, tuple[QueryRequest, tuple[str, ...]]] = {}
        """Query and columns, by spuid."""
        self._told: dict[str, int] = {}
        self._notifications: deque[tuple[int, Notification]] = deque()
        """The last of them all, each with what it counts as."""
        self._rows = 0
        self._moved: dict[str, int] = {}
        """Notifications of the re-evaluated ones since they joined, until the history has been replayed."""
        self.reevaluated: dict[str, int] = {}
        """Last notification of each restored one that is re-evaluated, by spuid."""

    def run(self, starts: Sequence[Start]) -> list[str]:
        """Restore the graph, and these subscriptions with it. Returns the spuids of those that could not be.

        Raises what `Journal.restore` raises.
        """
        engine = self._engine
        if not starts:
            engine.restore(self._journal.restore())
            return []
        waiting = deque(sorted(starts, key=lambda start: start.journal))
        until = self._clock() + self._patience
        for sequence, entry in self._journal.history():
            while waiting and waiting[0].journal < sequence:
                self._resume(waiting.popleft())
            if not self._held:
                engine.restore((entry.changes,))
            elif not self._replay(entry) or self._clock() > until:
                _log.warning("subscriptions.given_up", extra={"count": len(self._held) + len(waiting)})
                self._give_up()
                waiting.clear()
        for start in waiting:
            self._resume(start)
        self.reevaluated = {spuid: engine.spus.last(spuid) or 0 for spuid in self._moved if spuid in self._held}
        self._moved.clear()
        self._told = {spuid: engine.spus.last(spuid) or 0 for spuid in self._held}
        return [start.kept.spuid for start in starts if start.kept.spuid not in self._held]

    def take_over(self, sink: Callable[[str, QueryRequest], Sink]) -> list[Restored]:
        """Have them told elsewhere from now on: `sink` of each spuid and query. To be called once."""
        unread: dict[str, list[Notification]] = {spuid: [] for spuid in self._held}
        for _, notification in self._notifications:
            if notification.spuid in unread:
                unread[notification.spuid].append(notification)
        self._notifications.clear()
        for spuid, (request, _) in self._held.items():
            self._engine.spus.redirect(spuid, sink(spuid, request))
        return [
            Restored(spuid, request, variables, self._told[spuid], unread[spuid])
            for spuid, (request, variables) in self._held.items()
        ]

    def _resume(self, start: Start) -> None:
        """A subscription joins. The time is of no importance to those that are kept."""
        kept = start.kept
        try:
            variables = self._engine.resume(kept.request, self._take, kept.spuid, start.sequence, now=0)
        except EdgeError as error:
            _log.warning("subscriptions.not_restored", extra={"spuid": kept.spuid, "reason": error.description})
        else:
            self._held[kept.spuid] = kept.request, variables
            if not self._engine.spus.is_boosted(kept.spuid):
                self._moved[kept.spuid] = 0

    def _replay(self, entry: JournalEntry) -> bool:
        """Apply an entry. False: it is applied, and the subscriptions cannot go on."""
        try:
            self._engine.replay(entry.changes, entry.at)
        except Exception:  # noqa: BLE001  a fault of ours with a subscription must not keep the gateway from starting
            _log.exception("subscriptions.fault")
            return False
        for spuid in [spuid for spuid, count in self._moved.items() if count > 1]:
            del self._moved[spuid]
            if self._held.pop(spuid, None) is not None:
                self._engine.unsubscribe(spuid)
        return True

    def _give_up(self) -> None:
        for spuid in list(self._held):
            self._engine.unsubscribe(spuid)
        self._held.clear()
        self._notifications.clear()

    def _take(self, item: Notification | SubscribeFailed) -> None:
        if isinstance(item, SubscribeFailed):
            del self._held[item.spuid]
            return
        if item.spuid in self._moved:
            self._moved[item.spuid] += 1
        rows = 1 + len(item.delta.added) + len(item.delta.removed)
        self._notifications.append((rows, item))
        self._rows += rows
        while self._rows > MOST_ROWS:
            self._rows -= self._notifications.popleft()[0]
