"""Outgoing messages of one client: sent at once while it reads, else queued within a limit and a byte quota."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from edge.engine.admission.byte_quota import Charge
from edge.engine.requests import SubscriberNotification
from edge.gates.waiting_messages import Message, WaitingMessages, answer_size, is_answer
from edge.protocol.errors import TooManyRequests
from edge.protocol.messages import notification_message

TRY_AGAIN_LATER = 1013
"""WebSocket close code for overload (IANA WebSocket Close Code Number Registry)."""
_STEP = 16 * 1024
"""Granularity in bytes of the charge for waiting messages."""
_FREE_BYTES = 32 * 1024
"""Unsent bytes that are not charged: a client that reads in time has about this much in its buffers."""


class ClientConnection(Protocol):
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
    """Sends the messages of one client. No method waits for the client, so slow clients do not delay others.

    While the client reads, messages are sent directly, without queue or task. A task exists only while messages wait,
    and for a long result, whose JSON is written in pieces between messages to other clients.

    Waiting notifications are merged (see `WaitingMessages`). If more than `limit` answers wait, the client receives an
    error and the connection is closed (`on_overflow` is called before).
    """

    def __init__(
        self,
        connection: ClientConnection,
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
        """`unmerged`, `on_merged`, `merge_after`, `now`: see `WaitingMessages`. `on_taken` is called when fewer
        messages wait.

        `kept`: characters of the last notifications of resumable subscriptions that are kept after sending. `charge`
        accounts for the waiting bytes; if the quota is exhausted, the queue overflows.
        """
        self._charge = charge
        self._connection = connection
        self._limit = limit
        self._on_overflow = on_overflow
        self._on_taken = on_taken
        self._queue = WaitingMessages(unmerged, merge_after, on_merged, now)
        self._sent = _SentNotifications(kept)
        self._sending = 0
        """Bytes of the notification that is being sent."""
        self._sending_answer = 0
        """Bytes of the answer that is being sent."""
        self._unsent = 0
        """Bytes that were sent directly and are not accepted yet."""
        self._writer: asyncio.Task[None] | None = None
        self.gone = False
        """Whether the client stopped accepting data."""
        self._closed = False

    def send(self, message: Message) -> None:
        """Send a message now, or as soon as the client accepts it."""
        if self._closed:
            return
        # Only without a writer task: it holds earlier messages, and overtaking them would break the order.
        if self._writer is None and not self.gone and self._connection.writable and self._goes_at_once(message):
            self._connection.write(self._text(message))
            unsent = self._connection.unsent
            if unsent > _FREE_BYTES:
                self._unsent = unsent
                self._wait()
            return
        if is_answer(message):
            if self.gone:  # the client may resume its subscriptions, but not its answers
                return
            if self._queue.answers >= self._limit:
                self._overflow()
                return
        self._queue.put(message)
        self._wait()

    @property
    def waiting(self) -> tuple[int, int]:
        """Number and bytes of the waiting answers; zero when the client is gone. The bytes include the answer that is
        being sent.
        """
        return (0, 0) if self.gone else (self._queue.answers, self._queue.answers_size + self._sending_answer)

    def remember(self, spuid: str) -> None:
        """Keep the last notifications of a subscription, so that the client can resume it."""
        self._sent.remember(spuid)

    def forget(self, spuid: str) -> None:
        """Stop keeping notifications of a subscription."""
        self._sent.forget(spuid)

    def unread(self) -> dict[str, list[SubscriberNotification]]:
        """Return the last sent and the waiting notifications by subscription, in order."""
        found: dict[str, list[SubscriberNotification]] = {}
        for notification in (*self._sent, *self._queue.notifications()):
            found.setdefault(notification.spuid, []).append(notification)
        return found

    def withdraw(self, spuid: str) -> None:
        """Discard the waiting notifications of a subscription."""
        self._queue.withdraw(spuid)

    def close(self) -> None:
        """Discard all waiting messages and stop sending.

        Data that the client has not accepted stays charged until `release`. If the quota is exhausted, the connection
        is aborted.
        """
        self._closed = True
        self._queue.clear()
        self._sent.clear()
        # The transport still holds what was written, so these bytes stay charged until `release`.
        self._sending, self._sending_answer, self._unsent = 0, 0, self._connection.unsent
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
        elif self._writer is None and not self.gone and (self._queue or self._unsent):
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def _goes_at_once(self, message: Message) -> bool:
        """Whether to send a message without waiting: its text is ready, or the quota does not allow it to wait."""
        if isinstance(message, str) or message.delta.written:
            return True
        if self._charge is None:
            return False
        # Try the charge and restore it: the probe must not hold quota when the message is sent directly.
        held = self._charge.size
        try:
            self._charge.set(held + message.delta.length + _STEP)
        except TooManyRequests:
            return True
        self._charge.set(held)
        return False

    def _text(self, message: Message) -> str:
        text = to_text(message)
        if self._sent.spuids and self._sent.add(message, len(text)):
            # Kept notifications give way to waiting messages when the quota is exhausted.
            while self._sent and not self._account():
                self._sent.drop()
        return text

    async def _write(self) -> None:
        if self._unsent:
            # Bytes of a direct write come first: the connection has them already.
            self.gone = not await self._connection.taken()
            self._unsent = 0
            self._account(check=False)
            self._on_taken()
        while self._queue and not self.gone:
            if self._queue.write_piece():
                await asyncio.sleep(0)  # lets others run; the message may be withdrawn meanwhile
                continue
            message = self._queue.take()
            answer = is_answer(message)
            self._sending_answer = answer_size(message) if answer else 0
            text = self._text(message)
            self._sending = 0 if answer else len(text)
            self._account(check=False)
            sending = self._connection.write_and_wait(text)
            del message, text  # the connection holds its own copy
            self.gone = not await sending
            self._sending = self._sending_answer = 0
            self._account(check=False)
            self._on_taken()
        self._writer = None

    def _account(self, *, check: bool = True) -> bool:
        """Charge for waiting, unaccepted and kept messages. False: the quota is exhausted."""
        if self._charge is None:
            return True
        held = self._queue.size + self._sending + self._sending_answer + self._unsent + self._sent.size
        try:
            # Rounded up to steps, so that small messages rarely change the charge.
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
        # First, so that the session can suspend resumable subscriptions before `close` discards their notifications.
        self._on_overflow()
        self.close()
        self._connection.write(error.to_json())
        self._connection.close(TRY_AGAIN_LATER, "answers are not read")


class _SentNotifications:
    """The last sent notifications of resumable subscriptions. The client may not have received them."""

    __slots__ = ("_limit", "_sent", "size", "spuids")

    def __init__(self, limit: int) -> None:
        """`limit` in characters."""
        self._limit = limit
        self.spuids: set[str] = set()
        """The resumable subscriptions."""
        self._sent: deque[tuple[SubscriberNotification, int]] = deque()
        """Each with the length of its text."""
        self.size = 0
        """Characters of their texts."""

    def __bool__(self) -> bool:
        return bool(self._sent)

    def __iter__(self) -> Iterator[SubscriberNotification]:
        return (notification for notification, _ in self._sent)

    def remember(self, spuid: str) -> None:
        """Keep the notifications of a subscription from now on."""
        self.spuids.add(spuid)

    def forget(self, spuid: str) -> None:
        """Add no more notifications of a subscription."""
        self.spuids.discard(spuid)

    def add(self, message: Message, length: int) -> bool:
        """Add a sent message if it is a notification of such a subscription, and drop the oldest ones beyond the limit.

        Returns whether it is one.
        """
        if isinstance(message, str) or message.spuid not in self.spuids:
            return False
        self._sent.append((message, length))
        self.size += length
        while self.size > self._limit:
            self.drop()
        return True

    def drop(self) -> None:
        """Drop the oldest notification."""
        self.size -= self._sent.popleft()[1]

    def clear(self) -> None:
        """Drop all notifications."""
        self._sent.clear()
        self.size = 0


def _nothing() -> None:
    pass
