"""What one client is sent: at once while it reads; merged and bounded while it does not."""

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
"""A notification, or any other message as JSON text."""

TRY_AGAIN_LATER = 1013
"""The WebSocket close code of a server that sheds load (IANA WebSocket Close Code Number Registry)."""


_STEP = 16 * 1024
"""Bytes in which what waits is accounted for."""
_UNCOUNTED = 32 * 1024
"""Bytes on their way to a client that keeps up."""


class Connection(Protocol):
    """One client's connection as a session sees it."""

    @property
    def writable(self) -> bool:
        """Whether the client takes what it is sent, as far as one can tell now."""

    @property
    def unsent(self) -> int:
        """Bytes of memory for what was written and the client has not taken."""

    def write(self, text: str) -> None:
        """Send without waiting. A connection that is closed ignores it."""

    async def write_and_wait(self, text: str) -> bool:
        """Send, and wait until the client has taken it. False: the connection is closed, or dead and was closed."""

    async def taken(self) -> bool:
        """Wait until the client has taken what was written. False: likewise."""

    def close(self, code: int, reason: str) -> None:
        """Begin to close; return at once."""

    def abort(self) -> None:
        """Close at once; what the client has not taken is lost."""


def to_text(message: Message) -> str:
    """A message as JSON text. The results in it are written once and shared by all subscribers of a query."""
    if isinstance(message, str):
        return message
    return notification_message(message.spuid, message.alias, message.sequence, *message.delta.json, message.merged)


class Outgoing:
    """The way to one client. Nothing here ever waits for it, so it delays nobody else.

    While the client reads, a message goes straight out: no queue, no task. As soon as it does not, messages wait; a
    task exists only then, and for a long result, whose JSON is written in pieces between what others are sent. A
    client that is only busy gets its notifications one by one. It is slow when one of them has waited for more than
    `merge_after` seconds: then all of its subscription that wait go as one. And once `unmerged` characters of their
    results wait, a notification is merged with the last one of its subscription.
    Answers, sequence 0 among them, are never merged: beyond `limit` of them the client is told and its connection
    closed (`on_overflow` is called before).
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
        """`on_merged` is called for each notification that is merged with one that waits, `on_taken` when less waits.

        `kept`: characters of the last notifications of resumable subscriptions that are kept after they were sent.
        `charge`: what the bytes that wait count for; where they may not, it is as if too many answers waited.
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
        self._nets: dict[str, MergedDelta] = {}
        """The last that waits of each subscription, by its spuid."""
        self._notifications = 0
        """How many wait."""
        self._length = 0
        """Characters of their results when they came."""
        self._merged_size = 0
        """Bytes that they take beyond that."""
        self._answers_size = 0
        """Bytes of the answers that wait, and of the one that is being taken."""
        self._taking = 0
        """Bytes of the notification that is being taken."""
        self._unsent = 0
        """Bytes of what went out at once and is being taken."""
        self._writing: Message | MergedDelta | None = None
        """What is next, and has its JSON written. It is merged with nothing more."""
        self._remembered: set[str] = set()
        self._sent: deque[tuple[Notification, int]] = deque()
        """The last notifications of resumable subscriptions, and their lengths: the client may not have had them."""
        self._sent_length = 0
        self._writer: asyncio.Task[None] | None = None
        self.gone = False
        """Whether the client was found to take nothing any more."""
        self._closed = False

    def send(self, message: Message) -> None:
        """Send a message now or as soon as the client takes it."""
        if self._closed:
            return
        if self._writer is None and not self.gone and self._connection.writable and self._goes_at_once(message):
            self._connection.write(self._text(message))
            unsent = self._connection.unsent
            if unsent > _UNCOUNTED:
                self._unsent = unsent
                self._wait()
            return
        if isinstance(message, Notification) and message.sequence:
            self._merge(message)
        elif self.gone:  # it may come back to its subscriptions, not to its answers
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
        """How many answers wait for the client, and their bytes. None do when it is gone."""
        return (0, 0) if self.gone else (len(self._waiting) - self._notifications, self._answers_size)

    def remember(self, spuid: str) -> None:
        """Be able to tell what the client may not have received of a subscription."""
        self._remembered.add(spuid)

    def forget(self, spuid: str) -> None:
        """That is not asked for any more."""
        self._remembered.discard(spuid)

    def unread(self) -> dict[str, list[Notification]]:
        """By subscription, in order: the last notifications that went out, and what waits."""
        found: dict[str, list[Notification]] = {}
        waiting = (net.notification() for net in self._waiting if isinstance(net, MergedDelta))
        for notification in (*(sent for sent, _ in self._sent), *waiting):
            found.setdefault(notification.spuid, []).append(notification)
        return found

    def close(self) -> None:
        """Forget what waits; send nothing more.

        What the client has not taken counts until `release`. Where that is too much the connection is aborted.
        """
        self._closed = True
        self._waiting.clear()
        self._nets.clear()
        self._notifications = self._length = self._merged_size = self._answers_size = self._sent_length = 0
        self._sent.clear()
        self._taking, self._unsent = 0, self._connection.unsent
        if not self._account():
            self._connection.abort()
        self._on_taken()
        self._on_overflow = self._on_taken = _nothing  # of a session that refers to this, too
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None  # its error will refer to this

    def release(self) -> None:
        """Hold nothing any more: the connection has ended."""
        if self._charge is not None:
            self._charge.release()

    def _wait(self) -> None:
        """Account for what waits, and have it sent when the client takes it."""
        if not self._account():
            self._overflow()
        elif self._writer is None and not self.gone and (self._waiting or self._unsent):
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def _goes_at_once(self, message: Message) -> bool:
        """Whether its text can be had at once, or may not wait until it is written in pieces: it would be too much."""
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
        net = self._nets.get(notification.spuid)
        if net is not None and self._length >= self._unmerged and net is not self._writing:
            before = net.size
            net.add(notification)
            self._merged_size += net.size - before
            self._on_merged()
            return
        net = self._nets[notification.spuid] = MergedDelta(notification, self._now())
        self._notifications += 1
        self._length += net.length
        self._merged_size += net.size - net.length
        self._waiting.append(net)

    def _next(self) -> Message:
        message = self._waiting.popleft()
        if not isinstance(message, MergedDelta):
            return message
        self._leave(message)
        if self._nets.get(message.spuid) is message:
            del self._nets[message.spuid]
        elif self._now() - message.since > self._merge_after and not message.settle().delta.long:
            for later in self.withdraw(message.spuid):
                message.add(later.notification())
                self._on_merged()
        return message.notification()

    def withdraw(self, spuid: str) -> list[MergedDelta]:
        """Take out what waits of a subscription."""
        if self._nets.pop(spuid, None) is None:
            return []
        found = [net for net in self._waiting if isinstance(net, MergedDelta) and net.spuid == spuid]
        self._waiting = deque(
            each for each in self._waiting if not isinstance(each, MergedDelta) or each.spuid != spuid
        )
        for net in found:
            self._leave(net)
        return found

    def _leave(self, net: MergedDelta) -> None:
        self._notifications -= 1
        self._length -= net.length
        self._merged_size -= net.size - net.length

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
                await asyncio.sleep(0)  # others have their turn, and it may be withdrawn meanwhile
                continue
            message = self._next()
            self._writing = None
            answer = _size(message) if isinstance(message, str) or not message.sequence else 0
            text = self._text(message)
            self._taking = 0 if answer else len(text)
            self._account(check=False)
            sending = self._connection.write_and_wait(text)
            del message, text  # the connection has its own copy, and lets go of these
            self.gone = not await sending
            self._answers_size -= answer
            self._taking = 0
            self._account(check=False)
            self._on_taken()
        self._writer = self._writing = None

    def _account(self, *, check: bool = True) -> bool:
        """Charge for what waits or is being taken, and for what was sent last and is kept. False: that is too much."""
        if self._charge is None:
            return True
        held = self._answers_size + self._taking + self._unsent + self._length + self._merged_size + self._sent_length
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
    """Bytes of memory that an answer takes."""
    if isinstance(answer, str):
        return sys.getsizeof(answer)
    return answer.delta.length if answer.delta.long else sum(map(sys.getsizeof, answer.delta.json))


def _write_piece(message: Message | MergedDelta) -> bool:
    """Write a piece of the JSON of a message. False: all of it is written, or can be at once."""
    if isinstance(message, MergedDelta):
        message = message.settle()
    if not isinstance(message, Notification) or message.delta.written:
        return False
    message.delta.write_piece()
    return True
