"""Suspended subscription: the changes that a client without a connection has missed, for its resumption."""

from __future__ import annotations

from collections.abc import Sequence

from edge.engine.requests import Delta, QueryRequest, Sink, SubscribeFailed, SubscriberNotification
from edge.gates.conflation import MergedDelta, size_of


class SwitchableSink:
    """Sink of one subscription, whose receiver can change: a client, a later client, or none."""

    __slots__ = ("to",)

    def __init__(self, to: Sink) -> None:
        self.to = to

    def take(self, item: SubscriberNotification | SubscribeFailed) -> None:
        """Forward an item to the current receiver."""
        self.to(item)


class SuspendedSubscription:
    """A subscription without a connection: its possibly unreceived notifications, and a merged delta of later ones."""

    def __init__(
        self,
        sink: SwitchableSink,
        query: QueryRequest,
        spuid: str,
        variables: tuple[str, ...],
        last_sequence: int,
        unread: Sequence[SubscriberNotification],
    ) -> None:
        """`last_sequence`: last sent notification. `unread`: the last notifications, sent or waiting, in order."""
        self.sink = sink
        self.query = query
        self.spuid = spuid
        self.variables = variables
        self.sequence = max(last_sequence, unread[-1].sequence) if unread else last_sequence
        """Number of the last notification."""
        self._last_sequence = last_sequence
        self._unread = unread
        self._unread_size = sum([size_of(missed.delta) for missed in unread])
        self._merged: MergedDelta | None = None

    @property
    def size(self) -> int:
        """Approximate memory of the changes that the client may have missed, in bytes."""
        return self._unread_size + (0 if self._merged is None else self._merged.size)

    def add(self, notification: SubscriberNotification) -> None:
        """Merge a new notification."""
        self.sequence = notification.sequence
        if self._merged is None:
            self._merged = MergedDelta(notification)
        else:
            self._merged.add(notification)

    def since(self, alias: str | None, sequence: int) -> SubscriberNotification | None:
        """Return one notification with all changes after `sequence`. None: these changes are not available any more."""
        # The client names a notification that it cannot have received.
        if sequence > self._last_sequence:
            return None
        merged = MergedDelta(
            SubscriberNotification(self.spuid, alias, sequence, Delta(self.variables, (), ()), merged=0)
        )
        for missed in self._unread if self._merged is None else (*self._unread, self._merged.notification()):
            if missed.sequence > merged.sequence:
                # A gap: the notifications before this one were dropped.
                if missed.sequence - missed.merged != merged.sequence:
                    return None
                merged.add(missed)
        return merged.notification() if merged.sequence == self.sequence else None
