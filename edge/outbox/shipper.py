"""Thread that ships segments to the landing zone and deletes acknowledged observations.

The shipper asks the landing zone in each round which segments it has, and keeps no record of its own. A gateway that
was killed therefore continues correctly, and segments that were quarantined or lost there are sent again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from edge.backoff import Backoff, Retry
from edge.outbox.landing import KnownOutbox, LandingFailed, LandingTarget
from edge.outbox.segmenter import Segment, Stored, cut
from edge.outbox.settings import OffloadSettings
from edge.outbox.sqlite_tables import DamagedDatabase
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)

_POLL: Final = 1.0
"""Seconds between two checks for a full segment."""
_MICROSECONDS: Final = 1_000_000


class Shipped(NamedTuple):
    """Result of a round."""

    segments: int
    observations: int
    """Number of observations in these segments."""
    failure: str
    """Why the round ended early; empty if it did not."""


class Shippable(Stored, Protocol):
    """Interface of the outbox that the shipper needs."""

    @property
    def acknowledged(self) -> int:
        """Number up to which all observations are in the table; 0 if none is."""

    @property
    def last(self) -> int:
        """The highest number that may be shipped; 0 without observations."""

    def acknowledge(self, last: int) -> None:
        """Delete all observations up to this number. Raises `EdgeError`: then they stay for now."""

    @property
    def claimed(self) -> int:
        """The highest number that may ever have been shipped."""

    def claim(self, last: int) -> None:
        """Record that numbers up to `last` may be shipped. Raises `EdgeError`: then they must not be."""

    def begin_epoch(self, acknowledged: int) -> None:
        """Continue in a new epoch, because this outbox is an older copy of itself. Raises `EdgeError`."""


class Shipper:
    """Ship one outbox to one landing zone. Thread-safe; no method waits for a round.

    A segment is marked *replayed* in three cases:

    - An attempt to ship failed after its first observation was stored.
    - It was stored before this process began, and its earliest time was then older than `every` seconds.
    - It waited when the outbox turned out to be an older copy of itself.
    """

    def __init__(
        self,
        outbox: Shippable,
        landing: LandingTarget,
        settings: OffloadSettings,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`uniform`: random source of the back-off. `now`: clock in seconds since 1970."""
        self._outbox = outbox
        self._landing = landing
        self._settings = settings
        self._retry = Retry(Backoff(settings.retry_min, settings.retry_max), uniform)
        self._now = now
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)
        self._condition = threading.Condition()
        self._requests: list[Future[Shipped]] = []
        self._stopping = False
        self._due = time.monotonic()
        self._unfinished = (0, 0)
        self._failed_at = 0
        self._before = outbox.last
        self._overdue = round((now() - settings.every) * _MICROSECONDS)
        self.known = KnownOutbox(outbox.acknowledged)
        """State of the landing zone: its last answer, and the segments shipped since."""
        self.segments = 0
        """Segments shipped since the start."""
        self.failures = 0
        """Rounds that ended early since the start."""
        self.failure = ""
        """Why nothing is shipped now; empty without a problem."""
        self.acknowledged_at: float | None = None
        """Time of the last acknowledgement since the start, in seconds since 1970."""
        self.waits_since: float | None = None
        """Start of the pending request to the landing zone, in seconds since 1970; None if there is none."""

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop the thread. Waits at most `timeout` seconds for the landing zone."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join(timeout)

    def ship(self) -> Future[Shipped]:
        """Request a round now, regardless of the schedule. The future is cancelled if the shipper is stopping."""
        request: Future[Shipped] = Future()
        with self._condition:
            if self._stopping:
                request.cancel()
            else:
                self._requests.append(request)
                self._condition.notify()
        return request

    def _run(self) -> None:
        while (requests := self._wait()) is not None:
            done = self._round()
            for request in requests:
                # The caller may have cancelled its request while the round ran.
                if request.set_running_or_notify_cancel():
                    request.set_result(done)

    def _wait(self) -> list[Future[Shipped]] | None:
        """Wait until a round is due. Returns the futures of its requests, or None when the shipper stops."""
        with self._condition:
            # Polled, because the writer thread does not notify this condition when it stores observations.
            while not (self._stopping or self._requests or self._is_due()):
                self._condition.wait(min(_POLL, max(0.0, self._due - time.monotonic())))
            requests, self._requests = self._requests, []
            if not self._stopping:
                return requests
        for request in requests:
            request.cancel()
        return None

    def _is_due(self) -> bool:
        # During a failure a full segment must not bypass the back-off.
        full = self._outbox.last - self.known.last >= self._settings.segment_rows
        return time.monotonic() >= self._due or (full and not self.failure)

    def _round(self) -> Shipped:
        """Ship all waiting observations once."""
        segments = observations = 0
        try:
            # Each round starts with the state of the landing zone, so a lost response causes no second transfer.
            self._refresh()
            failure = self._delete_acknowledged()
            for first, last in self.known.missing(self._outbox.last):
                for segment in self._cut(first, last):
                    self._put(segment)
                    segments, observations = segments + 1, observations + segment.manifest.rows
        except (LandingFailed, DamagedDatabase, EdgeError, OSError) as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001  a defect must not end the thread
            _log.exception("offload.fault")
            failure = f"{type(error).__name__}: {error}"
        if failure:
            self._failed(failure)
        else:
            self._succeeded()
        return Shipped(segments, observations, failure)

    def _refresh(self) -> None:
        """Ask the landing zone for its state. An acknowledgement is never taken back."""
        outbox = self._outbox
        with self._waiting():
            known = self._landing.look(outbox.gateway, outbox.epoch)
        # The landing zone has numbers that this outbox never sent: it was restored from an older copy.
        if known.last > outbox.claimed:
            _log.warning("offload.older_copy", extra={"shipped": outbox.claimed, "landed": known.last})
            outbox.begin_epoch(known.acknowledged)
            # All waiting observations count as late.
            self._unfinished, self._before, self._failed_at = (0, 0), 0, outbox.last
            known = KnownOutbox()  # the new epoch is unknown there
        self.known = replace(known, acknowledged=max(known.acknowledged, outbox.acknowledged))

    def _delete_acknowledged(self) -> str:
        """Delete acknowledged observations. Returns the reason if this fails; shipping continues then."""
        if self.known.acknowledged > self._outbox.acknowledged:
            try:
                self._outbox.acknowledge(self.known.acknowledged)
            except EdgeError as error:
                return f"acknowledged observations cannot be deleted: {error.description}"
            self.acknowledged_at = self._now()
        return ""

    def _cut(self, first: int, last: int) -> Iterator[Segment]:
        """Yield the segments of a range. Repeats an unfinished segment with the same limits, even if more rows wait."""
        while first <= last and not self._stopping:
            # A different range would overlap the parts that the landing zone may already have.
            begin, end = self._unfinished
            if begin != first or end > last:
                end = min(last, first + self._settings.segment_rows - 1)
            segment = cut(self._outbox, first, end)
            old = first <= self._before and segment.manifest.start < self._overdue
            manifest = replace(segment.manifest, replayed=old or first <= self._failed_at)
            yield segment._replace(manifest=manifest)
            first = manifest.last + 1

    def _put(self, segment: Segment) -> None:
        self._unfinished = (segment.manifest.first, segment.manifest.last)
        # On disk before the first byte leaves: after a restore, a higher number at the landing zone proves an older
        # copy.
        self._outbox.claim(segment.manifest.last)
        with self._waiting():
            self._landing.put(segment)
        self.segments += 1
        self.known = replace(self.known, held=(*self.known.held, self._unfinished))

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.waits_since = self._now()
        try:
            yield
        finally:
            self.waits_since = None

    def _succeeded(self) -> None:
        if self.failure:
            _log.info("offload.up", extra={"attempts": self._retry.failures})
        self.failure = ""
        self._retry.succeeded()
        self._due = time.monotonic() + self._settings.every

    def _failed(self, reason: str) -> None:
        if not self.failure:
            _log.warning("offload.down", extra={"reason": reason})
        self.failure = reason
        self.failures += 1
        # Observations up to here count as replayed when they arrive.
        self._failed_at = self._outbox.last
        self._due = time.monotonic() + self._retry.failed()
