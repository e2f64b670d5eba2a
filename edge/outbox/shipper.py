"""The thread that ships: looks what the landing zone knows, puts there what it lacks, deletes what is acknowledged.

What was shipped is asked of the landing zone each time; nothing of it is kept here. So a gateway that was killed goes
on by itself, and what was quarantined or lost there is sent again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from edge.backoff import Backoff, Retry
from edge.outbox.landing import KnownOutbox, Landing, LandingFailed
from edge.outbox.segmenter import Segment, Stored, cut
from edge.outbox.table import Damaged
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)

_LOOK: Final = 1.0
"""Seconds between two looks whether a full segment waits."""
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """When is shipped, in seconds. Defaults are those of the gateway's settings."""

    every: float = 300.0
    segment_rows: int = 10_000
    retry_min: float = 1.0
    retry_max: float = 300.0


class Shipped(NamedTuple):
    """What came of a round."""

    segments: int
    observations: int
    """In them."""
    failure: str
    """Why it ended early; empty: it did not."""


class Shippable(Stored, Protocol):
    """The outbox, as the shipper sees it."""

    @property
    def acknowledged(self) -> int:
        """Up to which number all is in the table; 0: nothing is."""

    @property
    def last(self) -> int:
        """The highest number that may be shipped; 0: none."""

    def acknowledge(self, last: int) -> None:
        """Forget all up to this number. Raises `EdgeError`: it stays for now."""

    @property
    def claimed(self) -> int:
        """No higher number was ever shipped."""

    def claim(self, last: int) -> None:
        """Numbers up to this one are about to be shipped. Raises `EdgeError`: they must not be."""

    def begin_anew(self, acknowledged: int) -> None:
        """It is an older copy of itself, go on in another epoch. Raises `EdgeError`."""


class Shipper:
    """Ships one outbox to one landing zone. Its methods may be called from any thread, and none waits for a round.

    A segment is *replayed* where an attempt to ship had failed after its first observation was stored; and where that
    was there before this process began, and the earliest time in it was then longer ago than `every`. So is all that
    waited when the outbox turned out to be an older copy of itself.
    """

    def __init__(
        self,
        outbox: Shippable,
        landing: Landing,
        settings: OffloadSettings,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`uniform`: the randomness of waits. `now`: seconds since 1970."""
        self._outbox = outbox
        self._landing = landing
        self._settings = settings
        self._retry = Retry(Backoff(settings.retry_min, settings.retry_max), uniform)
        self._now = now
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)
        self._condition = threading.Condition()
        self._asked: list[Future[Shipped]] = []
        self._stopping = False
        self._due = time.monotonic()
        self._begun = (0, 0)
        self._failed_at = 0
        self._before = outbox.last
        self._overdue = round((now() - settings.every) * _MICROSECONDS)
        self.known = KnownOutbox(outbox.acknowledged)
        """What the landing zone has, as far as it was told and put there."""
        self.segments = 0
        """Shipped since the start."""
        self.failures = 0
        """Rounds that ended early since the start."""
        self.failure = ""
        """Why nothing is shipped now; empty: nothing is wrong."""
        self.acknowledged_at: float | None = None
        """When the last acknowledgement was seen since the start, seconds since 1970."""
        self.waits_since: float | None = None
        """Since when the landing zone is being waited for, seconds since 1970; None: it is not."""

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin, with what is there."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End. A landing zone that does not answer is not waited for longer than `timeout` seconds."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join(timeout)

    def ship(self) -> Future[Shipped]:
        """Have a round run now, whatever the schedule says. Cancelled where there is none any more."""
        asked: Future[Shipped] = Future()
        with self._condition:
            if self._stopping:
                asked.cancel()
            else:
                self._asked.append(asked)
                self._condition.notify()
        return asked

    def _run(self) -> None:
        while (asked := self._wait()) is not None:
            done = self._round()
            for one in asked:
                if one.set_running_or_notify_cancel():
                    one.set_result(done)

    def _wait(self) -> list[Future[Shipped]] | None:
        """Until a round is due. Returns who asked for it; None: there is none any more."""
        with self._condition:
            while not (self._stopping or self._asked or self._is_due()):
                self._condition.wait(min(_LOOK, max(0.0, self._due - time.monotonic())))
            asked, self._asked = self._asked, []
            if not self._stopping:
                return asked
        for one in asked:
            one.cancel()
        return None

    def _is_due(self) -> bool:
        full = self._outbox.last - self.known.last >= self._settings.segment_rows
        return time.monotonic() >= self._due or (full and not self.failure)

    def _round(self) -> Shipped:
        """Ship all there is, once."""
        segments = observations = 0
        try:
            self._look()
            failure = self._forget()
            for first, last in self.known.missing(self._outbox.last):
                for segment in self._cut(first, last):
                    self._put(segment)
                    segments, observations = segments + 1, observations + segment.manifest.rows
        except (LandingFailed, Damaged, EdgeError, OSError) as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001  whatever it is, shipping goes on
            _log.exception("offload.fault")
            failure = f"{type(error).__name__}: {error}"
        if failure:
            self._failed(failure)
        else:
            self._succeeded()
        return Shipped(segments, observations, failure)

    def _look(self) -> None:
        """Ask the landing zone. What was acknowledged once stays so."""
        outbox = self._outbox
        with self._waiting():
            known = self._landing.look(outbox.gateway, outbox.epoch)
        if known.last > outbox.claimed:
            _log.warning("offload.older_copy", extra={"shipped": outbox.claimed, "landed": known.last})
            outbox.begin_anew(known.acknowledged)
            self._begun, self._before, self._failed_at = (0, 0), 0, outbox.last  # what waits is late
            known = KnownOutbox()  # of the other epoch nobody knows
        self.known = replace(known, acknowledged=max(known.acknowledged, outbox.acknowledged))

    def _forget(self) -> str:
        """Delete what is acknowledged. Returns why that cannot be; nothing else waits for it."""
        if self.known.acknowledged > self._outbox.acknowledged:
            try:
                self._outbox.acknowledge(self.known.acknowledged)
            except EdgeError as error:
                return f"what is acknowledged cannot be deleted: {error.description}"
            self.acknowledged_at = self._now()
        return ""

    def _cut(self, first: int, last: int) -> Iterator[Segment]:
        """The segments of a range. One that was begun is gone on with, also where more waits by now."""
        while first <= last and not self._stopping:
            begun, end = self._begun
            if begun != first or end > last:
                end = min(last, first + self._settings.segment_rows - 1)
            segment = cut(self._outbox, first, end)
            old = first <= self._before and segment.manifest.start < self._overdue
            manifest = replace(segment.manifest, replayed=old or first <= self._failed_at)
            yield segment._replace(manifest=manifest)
            first = manifest.last + 1

    def _put(self, segment: Segment) -> None:
        self._begun = (segment.manifest.first, segment.manifest.last)
        self._outbox.claim(segment.manifest.last)
        with self._waiting():
            self._landing.put(segment)
        self.segments += 1
        self.known = replace(self.known, held=(*self.known.held, self._begun))

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
        self._failed_at = self._outbox.last
        self._due = time.monotonic() + self._retry.failed()
