"""Outgoing messages of one client: sent at once while it reads; else queued, merged and bounded."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from edge.engine.admission.byte_quota import Charge
from edge.engine.requests import Notification
from edge.gates.conflation import MergedDelta
from edge.protocol.errors import TooManyRequests
from edge.protocol.messages import notification_message

Message = Notification | str
"""A notification, or another message as JSON text."""

TRY_AGAIN_LATER = 1013
"""WebSocket close code for overload (IANA WebSocket Close Code Number Registry)."""


_STEP = 16 * 1024
"""Granularity in bytes of the charge for waiting messages."""
_FREE_BYTES = 32 * 1024
"""Unsent bytes that are not charged: a client that reads in time has about this much in its buffers."""


class Connection(Protocol):
    """Interface of a client's connection for the session."""

    @property
    def writable(self) -> bool:
        """Whether the client currently accepts data, as far as known."""

    @property
    def unsent(self) -> int:
        """Memory of written data that the client has not accepted, in bytes."""

    def write(self, text: str) -> None:
        """Send without waiting. Ignored if the connection is closed."""

    async def write_and_wait(self, text: str) -> bool:
        """Send, and wait until the client has accepted the data. False: the connection is closed, or was closed as
        dead.
        """

    async def taken(self) -> bool:
        """Wait until the client has accepted all written data. False: as in `write_and_wait`."""

    def close(self, code: int, reason: str) -> None:
        """Start to close; returns at once."""

    def abort(self) -> None:
        """Close at once, without sending the remaining data."""


def to_text(message: Message) -> str:
    """Return a message as JSON text. All subscribers of a query share the JSON of its results."""
    if isinstance(message, str):
        return message
    return notification_message(message.spuid, message.alias, message.sequence, *message.delta.json, message.merged)


class Outgoing:
    """Queue of messages to one client. No method waits for the client, so slow clients do not delay others.

    While the client reads, messages are sent directly, without queue or task. A task exists only while messages wait,
    and for a long result, whose JSON is written in pieces between messages to other clients.

    A client that is only busy gets its notifications one by one. It counts as slow when a notification has waited for
    more than `merge_after` seconds: then all waiting notifications of that subscription are merged. When `unmerged`
    characters of results wait, each new notification is merged with the last one of its subscription.

    Answers, including sequence 0, are never merged. If more than `limit` of them wait, the client receives an error
    and the connection is closed (`on_overflow` is called before).
    """

    def __init__(
        self,
        connection: Connection,
        limit: int,
        unmerged: int,
        on_overflow: Callable[[], None],
        on_merged: Callable[[], None],
        on_taken: Callable[[], None] = lambda: None,
        *,
        merge_after: float,
        kept: int = 0,
        charge: Charge | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_merged` is called for each merged notification, `on_taken` when fewer messages wait.

        `kept`: characters of the last notifications of resumable subscriptions that are kept after sending. `charge`
        accounts for the waiting bytes; if the quota is exhausted, the queue overflows.
        """
        self._charge = charge
        self._connection = connection
        self._limit = limit
        self._unmerged = unmerged
        self._on_overflow = on_overflow
        self._on_merged = on_merged
        self._on_taken = on_taken
        self._merge_after = merge_after
        self._kept = kept
        self._now = now
        self._waiting: deque[Message | MergedDelta] = deque()
        self._deltas: dict[str, MergedDelta] = {}
        """The last waiting delta of each subscription, by spuid."""
        self._notifications = 0
        """Number of waiting notifications."""
        self._length = 0
        """Characters of their results before merging."""
        self._merged_size = 0
        """Bytes of memory beyond that."""
        self._answers_size = 0
        """Bytes of the waiting answers, and of the answer that is being sent."""
        self._sending = 0
        """Bytes of the notification that is being sent."""
        self._unsent = 0
        """Bytes that were sent directly and are not accepted yet."""
        self._writing: Message | MergedDelta | None = None
        """The next message while its JSON is being written. Nothing is merged into it any more."""
        self._remembered: set[str] = set()
        self._sent: deque[tuple[Notification, int]] = deque()
        """The last notifications of resumable subscriptions with their lengths. The client may not have received
        them.
        """
        self._sent_length = 0
        self._writer: asyncio.Task[None] | None = None
        self.gone = False
        """Whether the client stopped accepting data."""
        self._closed = False

    def send(self, message: Message) -> None:
        """Send a message now, or as soon as the client accepts it."""
        if self._closed:
            return
        if self._writer is None and not self.gone and self._connection.writable and self._goes_at_once(message):
            self._connection.write(self._text(message))
            unsent = self._connection.unsent
            if unsent > _FREE_BYTES:
                self._unsent = unsent
                self._wait()
            return
        if isinstance(message, Notification) and message.sequence:
            self._merge(message)
        elif self.gone:  # the client may resume its subscriptions, but not its answers
            return
        elif len(self._waiting) - self._notifications >= self._limit:
            self._overflow()
            return
        else:
            self._waiting.append(message)
            self._answers_size += _size(message)
        self._wait()

    @property
    def waiting(self) -> tuple[int, int]:
        """Number and bytes of the waiting answers; zero when the client is gone."""
        return (0, 0) if self.gone else (len(self._waiting) - self._notifications, self._answers_size)

    def remember(self, spuid: str) -> None:
        """Keep the last notifications of a subscription, so that the client can resume it."""
        self._remembered.add(spuid)

    def forget(self, spuid: str) -> None:
        """Stop keeping notifications of a subscription."""
        self._remembered.discard(spuid)

    def unread(self) -> dict[str, list[Notification]]:
        """Return the last sent and the waiting notifications by subscription, in order."""
        found: dict[str, list[Notification]] = {}
        waiting = (merged.notification() for merged in self._waiting if isinstance(merged, MergedDelta))
        for notification in (*(sent for sent, _ in self._sent), *waiting):
            found.setdefault(notification.spuid, []).append(notification)
        return found

    def close(self) -> None:
        """Discard all waiting messages and stop sending.

        Data that the client has not accepted stays charged until `release`. If the quota is exhausted, the connection
        is aborted.
        """
        self._closed = True
        self._waiting.clear()
        self._deltas.clear()
        self._notifications = self._length = self._merged_size = self._answers_size = self._sent_length = 0
        self._sent.clear()
        self._sending, self._unsent = 0, self._connection.unsent
        if not self._account():
            self._connection.abort()
        self._on_taken()
        self._on_overflow = self._on_taken = _nothing  # break the reference cycle with the session
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None  # its exception would refer to this object

    def release(self) -> None:
        """Release the charge: the connection has ended."""
        if self._charge is not None:
            self._charge.release()

    def _wait(self) -> None:
        """Charge for the waiting messages, and start to send them when the client accepts data."""
        if not self._account():
            self._overflow()
        elif self._writer is None and not self.gone and (self._waiting or self._unsent):
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def _goes_at_once(self, message: Message) -> bool:
        """Whether to send a message without waiting: its text is ready, or the quota does not allow it to wait."""
        if isinstance(message, str) or message.delta.written:
            return True
        if self._charge is None:
            return False
        held = self._charge.size
        try:
            self._charge.set(held + message.delta.length + _STEP)
        except TooManyRequests:
            return True
        self._charge.set(held)
        return False

    def _merge(self, notification: Notification) -> None:
        merged = self._deltas.get(notification.spuid)
        if merged is not None and self._length >= self._unmerged and merged is not self._writing:
            before = merged.size
            merged.add(notification)
            self._merged_size += merged.size - before
            self._on_merged()
            return
        merged = self._deltas[notification.spuid] = MergedDelta(notification, self._now())
        self._notifications += 1
        self._length += merged.length
        self._merged_size += merged.size - merged.length
        self._waiting.append(merged)

    def _next(self) -> Message:
        message = self._waiting.popleft()
        if not isinstance(message, MergedDelta):
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
        """Remove the waiting notifications of a subscription."""
        if self._deltas.pop(spuid, None) is None:
            return []
        found = [merged for merged in self._waiting if isinstance(merged, MergedDelta) and merged.spuid == spuid]
        self._waiting = deque(
            each for each in self._waiting if not isinstance(each, MergedDelta) or each.spuid != spuid
        )
        for merged in found:
            self._leave(merged)
        return found

    def _leave(self, merged: MergedDelta) -> None:
        self._notifications -= 1
        self._length -= merged.length
        self._merged_size -= merged.size - merged.length

    def _text(self, message: Message) -> str:
        text = to_text(message)
        if self._remembered and isinstance(message, Notification) and message.spuid in self._remembered:
            self._sent.append((message, len(text)))
            self._sent_length += len(text)
            while self._sent and (self._sent_length > self._kept or not self._account()):
                self._sent_length -= self._sent.popleft()[1]
        return text

    async def _write(self) -> None:
        if self._unsent:
            self.gone = not await self._connection.taken()
            self._unsent = 0
            self._account(check=False)
            self._on_taken()
        while self._waiting and not self.gone:
            self._writing = self._waiting[0]
            if _write_piece(self._writing):
                await asyncio.sleep(0)  # lets others run; the message may be withdrawn meanwhile
                continue
            message = self._next()
            self._writing = None
            answer = _size(message) if isinstance(message, str) or not message.sequence else 0
            text = self._text(message)
            self._sending = 0 if answer else len(text)
            self._account(check=False)
            sending = self._connection.write_and_wait(text)
            del message, text  # the connection holds its own copy
            self.gone = not await sending
            self._answers_size -= answer
            self._sending = 0
            self._account(check=False)
            self._on_taken()
        self._writer = self._writing = None

    def _account(self, *, check: bool = True) -> bool:
        """Charge for waiting, unaccepted and kept messages. False: the quota is exhausted."""
        if self._charge is None:
            return True
        held = self._answers_size + self._sending + self._unsent + self._length + self._merged_size + self._sent_length
        try:
            self._charge.set(-(-held // _STEP) * _STEP, check=check)
        except TooManyRequests:
            return False
        return True

    def _overflow(self) -> None:
        error = TooManyRequests(
            f"More than {self._limit} answers, or more bytes than limits.max_client_bytes and limits.max_total_bytes "
            "allow, wait for this connection, which does not read them: it is closed. Connect again; read faster, or "
            "ask for less on one connection"
        )
        self._on_overflow()
        self.close()
        self._connection.write(error.to_json())
        self._connection.close(TRY_AGAIN_LATER, "answers are not read")


def _nothing() -> None:
    pass


def _size(answer: Message) -> int:
    """Return the memory of an answer in bytes."""
    if isinstance(answer, str):
        return sys.getsizeof(answer)
    return answer.delta.length if answer.delta.long else sum(map(sys.getsizeof, answer.delta.json))


def _write_piece(message: Message | MergedDelta) -> bool:
    """Write a piece of a message's JSON. False: it is complete, or can be completed at once."""
    if isinstance(message, MergedDelta):
        message = message.settle()
    if not isinstance(message, Notification) or message.delta.written:
        return False
    message.delta.write_piece()
    return True
