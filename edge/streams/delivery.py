"""The delivery of durable reports: to followers at once, to streams of this gateway, and to observers by callbacks.

All methods are called on the thread of the processor.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from edge.backoff import Backoff, Retry
from edge.engine.admission.fair_share import FairShare
from edge.engine.clock import Clock
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, NotFound, StorageFailed, TooManyRequests
from edge.streams.encoding import parsed
from edge.streams.names import stream_iri
from edge.streams.processor import AdvanceInProgress, NewElement, Processor
from edge.streams.quota import check_quota
from edge.streams.report import TRIPLES, Report
from edge.streams.running_query import RunningQuery
from edge.streams.stored_rows import StoredObserver
from edge.streams.waiting import WaitingReports

_log = logging.getLogger(__name__)
_SECOND: Final = 1_000_000
_RETRY: Final = Backoff(first=1.0, most=15.0)
"""Waits after a report could not be passed on."""
_PIECE: Final = 50
"""Reports that are delivered before the next look at the time."""
_LONGEST: Final = 20_000
"""Microseconds of a call of `deliver`, about."""


@dataclass(slots=True)
class _Failed:
    """A query whose observers do not get their reports yet."""

    reason: str = ""
    at: int = 0
    """Steady time of the next attempt, in microseconds."""
    retry: Retry = field(default_factory=lambda: Retry(_RETRY))


class Delivery:
    """The observers of all queries, and their reports."""

    def __init__(
        self,
        processor: Processor,
        waiting: WaitingReports,
        most: int,
        clock: Clock,
        notify: Callable[[str], None],
        own_stream: Callable[[str], str | None],
    ) -> None:
        """`most`: greatest number of observers. `notify` and `own_stream`: see `StreamService`."""
        self._processor = processor
        self._waiting = waiting
        self._most = most
        self._clock = clock
        self._notify = notify
        self._own_stream = own_stream
        self._reports: deque[Report] = deque()
        """Durable reports that are not delivered."""
        self._waits = {each.query: None for each in waiting.observers if own_stream(each.url) is not None}
        """Queries with observers that are streams, which get reports of an earlier process, or after a slide."""
        self._failed: dict[str, _Failed] = {}
        """Queries whose observers do not get their reports yet."""

    @property
    def number(self) -> int:
        """Number of reports that have to be delivered."""
        return len(self._reports)

    @property
    def retry_at(self) -> int | None:
        """Steady time (microseconds) at which `deliver` tries again; None: all observers have their reports."""
        return min((failed.at for failed in self._failed.values()), default=None)

    def observe(self, query: str, url: str, access: Access, *, is_target: bool = False) -> StoredObserver:
        """Add an observer of a query; it gets the reports from now on. Raises `EdgeError`."""
        found = self._processor.owned(query, access)
        shares = FairShare(self._most)
        for observer in self._waiting.observers:
            shares.add(observer.owner, 1)
        check_quota(shares, access.client, "observers", "streams.max_observers")
        stream = self._own_stream(url)
        if stream is not None:
            self._processor.check_feed(found, stream, found.access, self._feeds())
        observer = StoredObserver(
            uuid.uuid4().hex,
            query,
            url,
            access.client,
            self._processor.durable_number(found),
            is_target,
            found.identifier,
        )
        self._waiting.add(observer)
        return observer

    def _feeds(self) -> dict[str, set[str]]:
        """Return the streams of this gateway that observers feed, by the name of the query."""
        feeds: dict[str, set[str]] = {}
        for observer in self._waiting.observers:
            stream = self._own_stream(observer.url)
            if stream is not None:
                feeds.setdefault(observer.query, set()).add(stream_iri(stream))
        return feeds

    def observers(self, query: str | None, access: Access) -> list[StoredObserver]:
        """Return the observers of a query of the client; None: all observers, for the gateway itself."""
        if query is None:
            return list(self._waiting.observers)
        self._processor.owned(query, access)
        return self._waiting.of(query)

    def end(self, query: str, observer: str, access: Access) -> None:
        """Remove an observer. Raises `EdgeError`."""
        self._processor.owned(query, access)
        found = self._waiting.find(observer)
        if found is None or found.query != query:
            raise NotFound(
                f'The query "{query}" has no observer {observer}; GET /queries/{{name}}/observers, or '
                f"`edge queries observers {query}`, lists them"
            )
        self._waiting.remove(observer)

    def unregister(self, query: str, access: Access) -> list[str]:
        """End a query. Returns the ids of its observers, which have ended too. Raises `EdgeError`."""
        ended = self._processor.owned(query, access)
        self._processor.unregister(query, access)
        ended.end_followers(f'The query "{query}" has been ended')
        self._reports = deque(report for report in self._reports if report.query != query)
        return self._waiting.forget(query)

    def add(self, reports: Iterable[Report]) -> None:
        """Add durable reports, which `deliver` delivers in this order."""
        self._reports.extend(reports)

    def deliver(self) -> str:
        """Deliver reports for a while: `number` are left. Returns why observers do not get them; empty if they do."""
        now = self._clock.steady()
        end = now + _LONGEST
        waits, self._waits = self._waits, {}
        waits.update({name: None for name, failed in self._failed.items() if now >= failed.at})
        self._deliver_to_observers(waits)
        while self._reports:
            reports = list(islice(self._reports, _PIECE))
            for _ in reports:
                self._reports.popleft()
            self._deliver_to_followers(reports)
            self._deliver_to_observers(dict.fromkeys(report.query for report in reports))
            if self._clock.steady() >= end:
                break
        for name in [name for name in self._failed if self._processor.find(name) is None]:
            del self._failed[name]
        return next((failed.reason for failed in self._failed.values()), "")

    def _deliver_to_followers(self, reports: Sequence[Report]) -> None:
        find = self._processor.find
        for report in reports:
            query = find(report.query)
            if query is None:
                continue
            for follower in list(query.followers.values()):
                try:
                    follower.report(report)
                except Exception:  # noqa: BLE001  one follower must not keep reports from the others
                    _log.exception("streams.follower_failed")

    def _deliver_to_observers(self, queries: Iterable[str]) -> None:
        for name in queries:
            query = self._processor.find(name)
            try:
                if query is not None:
                    self._notify_observers(query)
            except AdvanceInProgress:
                self._waits[name] = None
            except EdgeError as error:
                # The reports are stored: observers get them with the next attempt, or with the next report.
                if name not in self._failed:
                    _log.error("streams.not_delivered", extra={"query": name, "reason": error.description})
                failed = self._failed.setdefault(name, _Failed())
                failed.reason = error.description
                failed.at = self._clock.steady() + round(failed.retry.failed() * _SECOND)
            else:
                self._failed.pop(name, None)

    def _notify_observers(self, query: RunningQuery) -> None:
        """Notify the observers. Raises `AdvanceInProgress` if one is a stream that has to wait, and `StorageFailed` or
        `TooManyRequests` if one is a stream that cannot have the reports now.
        """
        observers = self._waiting.of(query.name)
        if observers:
            self._waiting.bound(query.name, query.query.operator)
        failure: EdgeError | None = None
        for observer in observers:
            stream = self._own_stream(observer.url)
            if stream is None:
                self._notify(observer.id)
                continue
            try:
                self._feed(observer, stream, query.access)
            except (StorageFailed, TooManyRequests) as error:
                failure = error  # the other observers get the reports
        if failure is not None:
            raise failure

    def _feed(self, observer: StoredObserver, stream: str, access: Access) -> None:
        """Let the reports for an observer be elements of a stream of this gateway."""
        for report in self._waiting.waiting(observer.id, -1):
            try:
                triples = parsed(report.body)
                if triples and report.content_type == TRIPLES:
                    access = self._processor.current(access)
                    self._processor.add(stream, [NewElement(triples)], access, self._clock.wall())
            except (StorageFailed, TooManyRequests):
                raise  # it may pass: `deliver` tries again
            except EdgeError as error:
                _log.warning("streams.not_fed", extra={"stream": stream, "reason": error.description})
            self._waiting.acknowledged(observer.id, report.number)
            self._waiting.flush()  # a stream has no keys by which it could ignore a repetition
