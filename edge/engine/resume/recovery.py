"""Recovery: restore the engine at start, with the durable subscriptions at their last notification.

The journal replays the graph from its snapshot to the present, change set by change set. Each subscription joins where
it began, or at the snapshot if that is later, and the same code as before updates it. So it reaches its last
notification, and the recent notifications are available again.

A re-evaluated subscription may have skipped states, so its notifications do not follow from the journal. It joins at
its last written position. If one change since then affected its result, there is only one notification that it can have
sent. After several changes it is unknown which of them were notified together, so it is not restored.
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
from edge.engine.requests import QueryRequest, Sink, SubscribeFailed, SubscriberNotification
from edge.engine.resume.subscription_table import Start
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)

PATIENCE: Final = 10.0
"""Seconds that recovery may add to the start. After that it gives the subscriptions up."""

MOST_ROWS: Final = 50_000
"""Upper bound of the rows in the recovered notifications of all subscriptions; each notification counts one row more.
"""


@dataclass(frozen=True, slots=True)
class RestoredSubscription:
    """A subscription of the previous process that continues."""

    spuid: str
    request: QueryRequest
    variables: tuple[str, ...]
    last_sequence: int
    """Its last notification in the previous process. No client can have a later one."""
    unread: Sequence[SubscriberNotification]
    """Its last notifications in order, including those for changes since the start."""


class Recovery:
    """Restores an engine from its journal, and collects notifications until `take_over`."""

    def __init__(
        self, engine: Engine, journal: Journal, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`patience`: seconds of `clock`."""
        self._engine = engine
        self._journal = journal
        self._patience = patience
        self._clock = clock
        self._held: dict[str, tuple[QueryRequest, tuple[str, ...]]] = {}
        """Query and variables, by spuid."""
        self._last_sequences: dict[str, int] = {}
        self._notifications: deque[tuple[int, SubscriberNotification]] = deque()
        """The last notifications of all subscriptions, each with its number of rows."""
        self._rows = 0
        self._moved: dict[str, int] = {}
        """By spuid of re-evaluated ones: notifications since they joined. Empty after the replay."""
        self.reevaluated: dict[str, int] = {}
        """By spuid: last notification of each restored subscription that is re-evaluated."""

    def run(self, starts: Sequence[Start]) -> list[str]:
        """Restore the graph and these subscriptions. Returns the spuids of those that could not be restored.

        Raises the errors of `Journal.restore`.
        """
        engine = self._engine
        if not starts:
            engine.restore(self._journal.restore())
            return []
        # The journal is read once, so the subscriptions have to join in the order of their positions.
        waiting = deque(sorted(starts, key=lambda start: start.journal))
        until = self._clock() + self._patience
        for sequence, entry in self._journal.history():
            # A subscription joins before the first change after its position.
            while waiting and waiting[0].journal < sequence:
                self._resume(waiting.popleft())
            # Before the first subscription joins, changes are loaded without delta evaluation, which is much cheaper.
            if not self._held:
                engine.restore((entry.changes,))
            elif not self._replay(entry) or self._clock() > until:
                _log.warning("subscriptions.given_up", extra={"count": len(self._held) + len(waiting)})
                self._give_up()
                waiting.clear()
        # These began after the last change of the journal.
        for start in waiting:
            self._resume(start)
        self.reevaluated = {
            spuid: engine.spus.registry.last(spuid) or 0 for spuid in self._moved if spuid in self._held
        }
        self._moved.clear()
        self._last_sequences = {spuid: engine.spus.registry.last(spuid) or 0 for spuid in self._held}
        return [start.subscription.spuid for start in starts if start.subscription.spuid not in self._held]

    def take_over(self, sink: Callable[[str, QueryRequest], Sink]) -> list[RestoredSubscription]:
        """Redirect the notifications to new sinks. Must be called once.

        `sink`: returns the sink for a spuid and query.
        """
        unread: dict[str, list[SubscriberNotification]] = {spuid: [] for spuid in self._held}
        for _, notification in self._notifications:
            # Subscriptions that failed during the replay have left notifications behind.
            if notification.spuid in unread:
                unread[notification.spuid].append(notification)
        self._notifications.clear()
        for spuid, (request, _) in self._held.items():
            # From here on, notifications go to the gates; `_take` is not called again for this subscription.
            self._engine.spus.registry.redirect(spuid, sink(spuid, request))
        return [
            RestoredSubscription(spuid, request, variables, self._last_sequences[spuid], unread[spuid])
            for spuid, (request, variables) in self._held.items()
        ]

    def _resume(self, start: Start) -> None:
        """Restart a subscription. `now=0`, since a durable query does not depend on the time."""
        subscription = start.subscription
        try:
            variables = self._engine.resume(subscription.request, self._take, subscription.spuid, start.sequence, now=0)
        except EdgeError as error:
            _log.warning("subscriptions.not_restored", extra={"spuid": subscription.spuid, "reason": error.description})
        else:
            self._held[subscription.spuid] = subscription.request, variables
            if not self._engine.spus.registry.is_incremental(subscription.spuid):
                self._moved[subscription.spuid] = 0

    def _replay(self, entry: JournalEntry) -> bool:
        """Apply an entry of the journal. Returns False if the entry was applied but the subscriptions failed."""
        try:
            self._engine.replay(entry.changes, entry.at)
        except Exception:  # noqa: BLE001  a fault in a subscription must not prevent the start
            _log.exception("subscriptions.fault")
            return False
        # Several changes moved these results: their notifications are ambiguous (see the module's docstring).
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

    def _take(self, item: SubscriberNotification | SubscribeFailed) -> None:
        if isinstance(item, SubscribeFailed):
            # Its collected notifications stay in the queue; `take_over` skips them.
            del self._held[item.spuid]
            return
        if item.spuid in self._moved:
            self._moved[item.spuid] += 1
        rows = 1 + len(item.delta.added) + len(item.delta.removed)
        self._notifications.append((rows, item))
        self._rows += rows
        while self._rows > MOST_ROWS:
            self._rows -= self._notifications.popleft()[0]
