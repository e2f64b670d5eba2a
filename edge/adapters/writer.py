"""Writer of readings: maps waiting messages and submits them to the engine, until it accepts them."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from edge.adapters.ingest import Ingest
from edge.adapters.message_batch import MessageBatch, divide
from edge.adapters.messages import MessageQueue, MqttMessage
from edge.adapters.planner import Arrival, PlannedUpdates
from edge.adapters.redelivery import IDENTIFIERS, NEW_SESSION, RECEIPT, part_of
from edge.backoff import Backoff, Retry
from edge.engine.wakeups import wake_now
from edge.protocol.errors import EdgeError, NotReady, StorageFailed, TooManyRequests

_log = logging.getLogger(__name__)

_LATER = (TooManyRequests, StorageFailed, NotReady)
"""Temporary errors, independent of the message: it is tried again."""

_MOST = RECEIPT * IDENTIFIERS
"""Maximum bytes of the receipts of one session."""

PART: Final = 50
"""Maximum readings of a divided message in one transaction, for which other clients wait. 50 readings take 5 to 8 ms of
processor time on a PC. With smaller parts, commits would take a large share of the time.
"""


class WriterSettings(Protocol):
    """Settings of an adapter that the writer needs. Durations are in seconds."""

    @property
    def max_batch(self) -> int:
        """Messages or readings with which a batch is full."""

    @property
    def retry_min(self) -> float:
        """First pause while the engine cannot accept updates."""

    @property
    def retry_max(self) -> float:
        """Longest pause."""


class ReadingWriter:
    """Writes the messages of a queue to the engine in order, one batch at a time.

    The owner calls `turn` from one thread, which maps, submits, and usually carries out the batch as well. If
    the engine is busy, its writer thread completes the batch and calls `done`; only if more waits, or if the
    batch failed, it calls `wake`, so that the owner calls `turn` again.
    """

    def __init__(
        self,
        settings: WriterSettings,
        ingest: Ingest,
        queue: MessageQueue,
        name: str,
        *,
        done: Callable[[Sequence[MqttMessage]], None],
        wake: Callable[[], None],
    ) -> None:
        """`name`: name of the adapter in log lines. `done` receives processed messages; it must not block."""
        self._name = name
        self._settings = settings
        self._ingest = ingest
        self._queue = queue
        self._done = done
        self._wake = wake
        self._taken: deque[MqttMessage] = deque()
        """Messages of the queue that are mapped next."""
        self._ready: deque[MessageBatch] = deque()
        """Batches that come before other messages: the parts of a message, a new session, or the messages of a refused
        batch, one by one.
        """
        self._failed: MessageBatch | None = None
        """A batch to be tried again."""
        self._again = 0.0
        """Time of that attempt."""
        self._part = min(PART, settings.max_batch)
        self._retry = Retry(Backoff(settings.retry_min, settings.retry_max))
        self._busy = False
        """Whether the engine works on a batch. Until then, `turn` leaves all other attributes alone."""
        self._submitting = False
        self._unstored = bytearray()
        """Receipts of messages that had no reading or were refused. They are stored with the next commit, so that the
        stored receipts have no gap: a broker that falls back repeats these messages too.
        """

    @property
    def idle(self) -> bool:
        """Whether all messages are processed."""
        return not (self._busy or self._waits)

    @property
    def taken(self) -> int:
        """Messages and batches that it has taken from the queue, and not yet submitted."""
        return len(self._taken) + len(self._ready) + (self._failed is not None)

    @property
    def _waits(self) -> bool:
        return bool(self._failed or self._ready or self._taken or len(self._queue))

    def turn(self) -> float:
        """Map and submit waiting messages until a batch is under way.

        Returns the seconds until a failed batch is tried again, or infinity.
        """
        while not self._busy and self._waits:
            wake_now()  # subscribers of the previous batch need not wait for this one
            pause = self._again - time.monotonic() if self._failed else 0.0
            if pause > 0:
                return pause
            batch = self._failed or self._next()
            if batch is None:
                break
            self._failed = None
            self._submit(batch)
            # Readings have priority, so the next part would go before the updates of clients that wait by now.
            if batch.committed and not self._busy:
                wake_now()
                self._ingest.carry_out_others()
        return math.inf

    def _next(self) -> MessageBatch | None:
        """Return the next batch. The receipt of a message must be in the commit of its last readings."""
        if self._ready:
            return self._ready.popleft()
        limit = self._settings.max_batch
        batch, size = MessageBatch(), 0
        while len(batch.messages) < limit and size < limit:
            mapped = self._map_next()
            if mapped is None:
                break
            message, arrivals = mapped
            size += len(arrivals)
            batch.add(message, arrivals)
        if batch.messages:
            return batch
        return self._ready.popleft() if self._ready else None

    def _map_next(self) -> tuple[MqttMessage, list[Arrival]] | None:
        """Return the next message with its readings. None: none waits, or it shares no batch and is in `_ready`."""
        if not self._taken:
            if not len(self._queue):
                return None
            self._taken.extend(self._queue.take(self._settings.max_batch))
        message = self._taken.popleft()
        if message.receipt == NEW_SESSION:
            self._ready.append(MessageBatch([message], [[]]))
            return None
        arrivals = self._map(message)
        return None if arrivals is None else (message, arrivals)

    def _map(self, message: MqttMessage) -> list[Arrival] | None:
        """Return the readings of a message. None: they are divided into parts, which are in `_ready`."""
        try:
            arrivals = self._ingest.read(
                message.topic,
                message.payload,
                message.received,
                retained=message.retain,
                historical=message.historical,
            )
            if message.committed:
                del arrivals[: message.committed]
            # After a reconnection a broker sends retained messages again; only new readings among them count.
            written = self._ingest.news(arrivals) if message.retain else arrivals
            if len(written) <= self._part:
                return written
            self._ready += divide(message, arrivals, written, self._part)
        except Exception as error:  # noqa: BLE001  an internal error in one message must not block later ones
            reason = self._fault(error)
            self._ingest.bad_values.add(message.topic, "", reason, message.payload, message.received)
            return []
        return None

    def _submit(self, batch: MessageBatch) -> None:
        receipts = b"".join([message.receipt for message in batch.messages])
        if batch.committed:
            receipts = part_of(batch.committed, receipts)
        arrivals = batch.arrivals
        # Messages without readings cause no commit of their own; their receipts follow with the next one.
        if not (arrivals or batch.is_new_session):
            self._keep(receipts)
            self._done(batch.messages)
            return
        self._busy = self._submitting = True
        settle = partial(self._settle, batch, receipts)
        try:
            if arrivals:
                self._ingest.submit(arrivals, bytes(self._unstored) + receipts, settle)
            else:
                self._ingest.remember(bytes(self._unstored) + receipts, settle)
        except Exception as error:
            # A turn of the engine can also fail after it has settled this batch, which must not be processed again.
            if not self._busy:
                raise
            settle(error)
        finally:
            self._submitting = False

    def _settle(self, batch: MessageBatch, receipts: bytes, outcome: PlannedUpdates | Exception | None) -> None:
        """Complete a batch. `outcome`: its plan, None if it has no readings, or an error.

        Runs on the thread that carried it out, this one or the engine's writer thread, so it must not block.
        """
        try:
            if isinstance(outcome, Exception):
                self._handle(batch, receipts, outcome)
            else:
                self._complete(batch, receipts, outcome)
        finally:
            self._busy = False
            # While `turn` submits, it looks itself.
            if not self._submitting and (self._waits or self._queue.closed):
                self._wake()

    def _complete(self, batch: MessageBatch, receipts: bytes, plan: PlannedUpdates | None) -> None:
        if self._retry.failures:
            self._retry.succeeded()
            _log.info(f"{self._name}.engine_caught_up", extra={"readings": len(batch.arrivals)})
        if plan is None or self._ingest.written(plan):
            self._unstored.clear()
        elif not batch.committed:
            self._keep(receipts)
        if not batch.committed:
            self._done(batch.messages)

    def _handle(self, batch: MessageBatch, receipts: bytes, error: BaseException) -> None:
        """Handle a failed batch: try it again, or its messages one by one, or count the message as bad."""
        if isinstance(error, _LATER) or batch.is_new_session:
            # One log line for each outage, not for each attempt.
            if not self._retry.failures:
                details = {"reason": _reason(error), "readings": len(batch.arrivals)}
                _log.error(f"{self._name}.engine_behind", extra=details)
            self._again = time.monotonic() + self._retry.failed()
            self._failed = batch
            return
        reason = error.description if isinstance(error, EdgeError) else self._fault(error)
        # Alone, the message itself must be the cause. Otherwise each is tried alone, so that one bad message costs no
        # other.
        if len(batch.messages) == 1:
            self._ingest.refuse(batch.arrivals, reason)
            # Of a refused part nothing is stored: the next commit has the count of a later part, or the receipt.
            if not batch.committed:
                self._keep(receipts)
                self._done(batch.messages)
            return
        alone = [MessageBatch([one], [arrivals]) for one, arrivals in zip(batch.messages, batch.readings, strict=True)]
        # Before the parts of a later message.
        self._ready.extendleft(reversed(alone))

    def _fault(self, error: BaseException) -> str:
        _log.error(f"{self._name}.engine_fault", exc_info=error)
        return f"a fault of the gateway: {error}"

    def _keep(self, receipts: bytes) -> None:
        self._unstored += receipts
        # At twice the limit, so that the copy of the tail is amortised over many messages.
        if len(self._unstored) > 2 * _MOST:
            del self._unstored[:-_MOST]


def _reason(error: BaseException) -> str:
    return error.description if isinstance(error, EdgeError) else str(error)
