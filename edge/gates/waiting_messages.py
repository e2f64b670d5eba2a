"""Waiting messages of one client: a queue that merges notifications of the same subscription (conflation)."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator

from edge.engine.requests import SubscriberNotification
from edge.gates.conflation import MergedDelta

Message = SubscriberNotification | str
"""A notification, or another message as JSON text."""


def is_answer(message: Message) -> bool:
    """Whether a message answers a request. Sequence 0 does: it is the response to the subscribe request."""
    return isinstance(message, str) or not message.sequence


def answer_size(answer: Message) -> int:
    """Return the memory of an answer in bytes."""
    if isinstance(answer, str):
        return sys.getsizeof(answer)
    return answer.delta.length if answer.delta.long else sum(map(sys.getsizeof, answer.delta.json))


class WaitingMessages:
    """Messages in order. Answers are never merged.

    Two rules merge notifications. When `unmerged` characters of results wait, a new notification is merged with the
    last one of its subscription. When a notification has waited for more than `merge_after` seconds, the client counts
    as slow, and the notification is sent merged with all later ones of its subscription.
    """

    __slots__ = (
        "_answers_size",
        "_deltas",
        "_length",
        "_merge_after",
        "_merged_size",
        "_notifications",
        "_now",
        "_on_merged",
        "_unmerged",
        "_waiting",
        "_writing",
    )

    def __init__(
        self,
        unmerged: int,
        merge_after: float,
        on_merged: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_merged` is called for each merged notification."""
        self._unmerged = unmerged
        self._merge_after = merge_after
        self._on_merged = on_merged
        self._now = now
        self._waiting: deque[Message | MergedDelta] = deque()
        self._deltas: dict[str, MergedDelta] = {}
        """The last waiting delta of each subscription, by spuid."""
        self._writing: Message | MergedDelta | None = None
        """The next message while its JSON is being written. Nothing is merged into it any more."""
        self._notifications = 0
        """Number of waiting notifications."""
        self._length = 0
        """Characters of their results before merging."""
        self._merged_size = 0
        """Bytes of memory beyond that."""
        self._answers_size = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def answers(self) -> int:
        """Number of answers."""
        return len(self._waiting) - self._notifications

    @property
    def answers_size(self) -> int:
        """Memory of the answers in bytes."""
        return self._answers_size

    @property
    def size(self) -> int:
        """Memory of all messages in bytes."""
        return self._answers_size + self._length + self._merged_size

    def put(self, message: Message) -> None:
        """Append a message, or merge it with the last one of its subscription."""
        if isinstance(message, str) or is_answer(message):
            self._waiting.append(message)
            self._answers_size += answer_size(message)
        else:
            self._put_notification(message)

    def _put_notification(self, notification: SubscriberNotification) -> None:
        merged = self._deltas.get(notification.spuid)
        # Part of the JSON of `_writing` may be complete already, so nothing is merged into it.
        if merged is not None and self._length >= self._unmerged and merged is not self._writing:
            before = merged.size
            merged.add(notification)
            self._merged_size += merged.size - before
            self._on_merged()
            return
        merged = self._deltas[notification.spuid] = MergedDelta(notification, self._now())
        self._notifications += 1
        self._length += merged.length
        # `_length` counts the characters and `_merged_size` the rest, so that `_leave` subtracts both exactly.
        self._merged_size += merged.size - merged.length
        self._waiting.append(merged)

    def write_piece(self) -> bool:
        """Write a piece of the next message's JSON. False: it is complete, or can be completed at once."""
        message = self._writing = self._waiting[0]
        if isinstance(message, MergedDelta):
            message = message.settle()
        if not isinstance(message, SubscriberNotification) or message.delta.written:
            return False
        message.delta.write_piece()
        return True

    def take(self) -> Message:
        """Remove the next message."""
        self._writing = None
        message = self._waiting.popleft()
        if not isinstance(message, MergedDelta):
            self._answers_size -= answer_size(message)
            return message
        self._leave(message)
        if self._deltas.get(message.spuid) is message:
            del self._deltas[message.spuid]
        elif self._now() - message.since > self._merge_after and not message.settle().delta.long:
            for later in self.withdraw(message.spuid):
                message.add(later.notification())
                self._on_merged()
        return message.notification()

    def withdraw(self, spuid: str) -> list[MergedDelta]:
        """Remove the notifications of a subscription."""
        if self._deltas.pop(spuid, None) is None:
            return []
        found = [merged for merged in self._waiting if isinstance(merged, MergedDelta) and merged.spuid == spuid]
        self._waiting = deque(
            each for each in self._waiting if not isinstance(each, MergedDelta) or each.spuid != spuid
        )
        for merged in found:
            self._leave(merged)
        if self._writing in found:
            self._writing = None
        return found

    def notifications(self) -> Iterator[SubscriberNotification]:
        """Yield the notifications, in order."""
        return (merged.notification() for merged in self._waiting if isinstance(merged, MergedDelta))

    def clear(self) -> None:
        """Discard all messages."""
        self._waiting.clear()
        self._deltas.clear()
        self._writing = None
        self._notifications = self._length = self._merged_size = self._answers_size = 0

    def _leave(self, merged: MergedDelta) -> None:
        self._notifications -= 1
        self._length -= merged.length
        self._merged_size -= merged.size - merged.length
