"""Writer of message batches: retries until the engine accepts them, so that no received message is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from edge.adapters.ingest import Ingest
from edge.adapters.messages import MqttMessage
from edge.adapters.planner import Arrival
from edge.adapters.receipts import IDENTIFIERS, RECEIPT
from edge.backoff import Backoff, Retry
from edge.protocol.errors import EdgeError, NotReady, StorageFailed, TooManyRequests

_log = logging.getLogger(__name__)

_LATER = (TooManyRequests, StorageFailed, NotReady)
"""Temporary errors, independent of the message: it is tried again."""

_MOST = RECEIPT * IDENTIFIERS
"""Maximum bytes of the receipts of one session."""


class WriterSettings(Protocol):
    """Settings of an adapter that the writer needs. Durations are in seconds."""

    @property
    def max_batch(self) -> int:
        """Maximum messages in one update of the engine."""

    @property
    def retry_min(self) -> float:
        """First pause while the engine cannot accept updates."""

    @property
    def retry_max(self) -> float:
        """Longest pause."""


class ReadingWriter:
    """Maps messages and writes their readings to the engine. Used by one thread."""

    def __init__(self, settings: WriterSettings, intake: Ingest, stopping: threading.Event, name: str = "mqtt") -> None:
        """`name`: name of the adapter in log lines."""
        self._name = name
        self._settings = settings
        self._intake = intake
        self._stopping = stopping
        self._unstored = bytearray()
        """Receipts of messages that had no reading or were refused. They are stored with the next commit, so that the
        stored receipts have no gap: a broker that falls back repeats these messages too.
        """

    def write(self, batch: list[MqttMessage]) -> bool:
        """Write the readings of messages with their receipts, in as few transactions as their size allows.

        Waits while the engine accepts no updates. A message that the engine refuses because of its content counts as
        bad. False: the adapter stopped before all messages were processed.
        """
        part: list[MqttMessage] = []
        arrivals: list[Arrival] = []
        for message in batch:
            read = self._read(message)
            if arrivals and len(arrivals) + len(read) > self._settings.max_batch:
                if not self._write(part, arrivals):
                    return False
                part, arrivals = [], []
            part.append(message)
            arrivals += read
        return self._write(part, arrivals)

    def _write(self, part: list[MqttMessage], arrivals: list[Arrival]) -> bool:
        receipts = b"".join(message.receipt for message in part)
        if not arrivals:
            self._keep(receipts)
            return True
        try:
            return self._commit(lambda: self._store(arrivals, receipts), len(arrivals))
        except EdgeError as error:
            reason = error.description
        except Exception as error:  # noqa: BLE001  an internal error in one message must not block later ones
            _log.exception(f"{self._name}.engine_fault")
            reason = f"a fault of the gateway: {error}"
        if len(part) == 1:
            self._intake.refuse(arrivals, reason)
            self._keep(receipts)
            return True
        return all(self._write([message], self._read(message)) for message in part)

    def _store(self, arrivals: list[Arrival], receipts: bytes) -> None:
        if self._intake.write(arrivals, bytes(self._unstored) + receipts):
            self._unstored.clear()
        else:
            self._keep(receipts)

    def _keep(self, receipts: bytes) -> None:
        self._unstored += receipts
        if len(self._unstored) > 2 * _MOST:
            del self._unstored[:-_MOST]

    def _read(self, message: MqttMessage) -> list[Arrival]:
        arrivals = self._intake.read(message.topic, message.payload, message.received)
        if not message.retain:
            return arrivals
        return self._intake.news(arrivals)

    def remember(self, receipt: bytes) -> bool:
        """Store a receipt, retrying while the engine cannot. False: the adapter stopped first."""
        self._keep(receipt)
        receipts = bytes(self._unstored)
        done = self._commit(lambda: self._intake.remember(receipts), 0)
        if done:
            self._unstored.clear()
        return done

    def _commit(self, write: Callable[[], None], readings: int) -> bool:
        retry = Retry(Backoff(self._settings.retry_min, self._settings.retry_max))
        while not self._stopping.is_set():
            try:
                write()
            except _LATER as error:
                if not retry.failures:
                    details = {"reason": error.description, "readings": readings}
                    _log.error(f"{self._name}.engine_behind", extra=details)
                self._stopping.wait(retry.failed())
            else:
                if retry.failures:
                    _log.info(f"{self._name}.engine_caught_up", extra={"readings": readings})
                return True
        return False
