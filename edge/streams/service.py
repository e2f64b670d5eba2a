"""The thread of the processor: its requests, its clock, and the delivery of its reports."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Final, Protocol, TypeVar

from edge.backoff import Backoff, Retry
from edge.engine.clock import Clock
from edge.engine.faults import contained
from edge.engine.requests import (
    ActiveSubscription,
    Delta,
    QueryRequest,
    Sink,
    SubscribeFailed,
    SubscriberNotification,
)
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, NotFound, NotReady, StorageFailed, TooManyRequests
from edge.protocol.results import Row
from edge.streams.names import stream_iri
from edge.streams.observations import LiveObservations, Past, PastValue
from edge.streams.observer import StoredReport
from edge.streams.processor import NewElement, Processor
from edge.streams.report import TRIPLES, Report
from edge.streams.running_query import RunningQuery
from edge.streams.settings import StreamSettings
from edge.streams.store import StoredObserver, StreamStore, parsed
from edge.streams.waiting import WaitingReports

T = TypeVar("T")
_log = logging.getLogger(__name__)

_SECOND: Final = 1_000_000
_LONGEST_WAIT: Final = 60.0
"""Seconds between two turns: the wall clock may jump, and permissions may change."""
_RETRY: Final = Backoff(first=1.0, most=15.0)
"""Waits after a failure of the disk."""
_REVIEW: Final = 60 * _SECOND
"""Time between two checks of the permissions of all queries."""
_MOST_UNSTORED: Final = 10_000
"""Reports that wait in memory until the disk works again."""
_ANSWER: Final = 30.0
"""Seconds in which the live graph has to answer."""


class LiveEngine(Protocol):
    """The engine of the live graph."""

    def subscribe(self, query: QueryRequest, sink: Sink, /) -> Future[ActiveSubscription]:
        """Subscribe. The sink gets the first result before the future is done."""

    def unsubscribe(self, spuid: str, /) -> Future[None]:
        """End a subscription."""


class StreamService:
    """Streams and continuous queries of a gateway. Its thread begins with the first request that needs it."""

    def __init__(
        self,
        directory: Path | None,
        settings: StreamSettings,
        engine_settings: EngineSettings,
        live: LiveEngine,
        clock: Clock,
        rights: Callable[[Access], Access],
        notify: Callable[[str], None] = lambda _: None,
        own_stream: Callable[[str], str | None] = lambda _: None,
        past: Past | None = None,
    ) -> None:
        """`directory`: None keeps all in memory. `notify` is called with the id of an observer that has a new report.
        `own_stream`: returns the stream of this gateway that a callback URL names, whose reports become elements.
        `past`: see `LiveObservations`; None: the gateway records no values.

        The other arguments are those of `Processor`.
        """
        self._directory = directory
        self._settings = settings
        self._engine_settings = engine_settings
        self._live = live
        self._clock = clock
        self._rights = rights
        self._notify = notify
        self._own_stream = own_stream
        self._past = past
        self._condition = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._broken: EdgeError | None = None
        """Why no request can be served; None: they can."""
        self._reviewed = 0
        self._subscriptions: dict[str, str] = {}
        """Names of the queries of subscriptions, by spuid."""
        self.failing = ""
        """Why reports cannot be stored, or no window reports; empty if all is well."""
        self._processor: Processor
        self._waiting: WaitingReports

    def start(self) -> None:
        """Open the store and start the thread. Does nothing if it runs already. Raises `StorageFailed`, `NotReady`."""
        with self._condition:
            if self._closing:
                raise NotReady("The gateway is stopping")
            if self._thread is not None:
                return
            store = StreamStore(self._directory)
            try:
                self._waiting = WaitingReports(store, self._settings.max_reports)
                live = _Live(self._live, self._put_change)
                self._processor = Processor(
                    self._settings,
                    store,
                    lambda: make_engine(self._engine_settings),
                    live,
                    self._rights,
                    self._waiting.count,
                    LiveObservations(live, self._past or _nothing),
                )
            except BaseException:
                store.close()
                raise
            thread = threading.Thread(target=self._run, args=(store,), name="streams", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                store.close()
                raise NotReady(f"The thread of the streams cannot start: {error}; try again later") from None
            self._thread = thread

    def fault(self) -> str:
        """Why requests or reports are not served; empty if they are."""
        thread = self._thread
        if thread is not None and not thread.is_alive() and not self._closing:
            return "The thread of the streams has ended; restart the gateway"
        return self.failing

    def close(self, timeout: float) -> bool:
        """Store what has happened, and end the thread. Returns whether it has ended in time."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def call(self, action: Callable[[Processor, int], T]) -> Future[T]:
        """Run an action of a client on the thread, with the time. Its effect is durable when the future is done."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if self._broken is not None:
                    raise self._broken
                result = action(self._processor, max(self._clock.wall(), self._processor.time))
            except BaseException as error:  # noqa: BLE001  the future passes any error to the caller
                future.set_exception(contained(error))
            else:
                future.set_result(result)

        try:
            self.start()
            self._put(run)
        except EdgeError as error:
            future.set_exception(error)
        return future

    # Observers

    def observe(self, query: str, url: str, access: Access) -> Future[StoredObserver]:
        """Add an observer of a query; it gets the reports from now on. The URL is checked by the caller."""

        def add(processor: Processor, _now: int) -> StoredObserver:
            found = processor.owned(query, access)
            if len(self._waiting.observers) >= self._settings.max_observers:
                raise TooManyRequests("No further observers: the limit streams.max_observers is reached")
            stream = self._own_stream(url)
            if stream is not None:
                processor.feeds = self._feeds()
                processor.check_feed(found, stream, found.access)
            observer = StoredObserver(uuid.uuid4().hex, query, url, access.client, found.number)
            self._waiting.add(observer)
            return observer

        return self.call(add)

    def _feeds(self) -> dict[str, set[str]]:
        """Return the streams of this gateway that observers feed, by the name of the query."""
        feeds: dict[str, set[str]] = {}
        for observer in self._waiting.observers:
            stream = self._own_stream(observer.url)
            if stream is not None:
                feeds.setdefault(observer.query, set()).add(stream_iri(stream))
        return feeds

    def observers(self, query: str | None, access: Access) -> Future[list[StoredObserver]]:
        """Return the observers of a query of the client; None: all observers, for the gateway itself."""

        def listed(processor: Processor, _now: int) -> list[StoredObserver]:
            if query is None:
                return list(self._waiting.observers)
            processor.owned(query, access)
            return self._waiting.of(query)

        return self.call(listed)

    def end_observer(self, query: str, observer: str, access: Access) -> Future[None]:
        """Remove an observer."""

        def end(processor: Processor, _now: int) -> None:
            processor.owned(query, access)
            found = self._waiting.find(observer)
            if found is None or found.query != query:
                raise NotFound(f'The query "{query}" has no observer {observer}')
            self._waiting.remove(observer)

        return self.call(end)

    def unregister(self, query: str, access: Access) -> Future[list[str]]:
        """End a query. Returns the ids of its observers, which have ended too."""

        def end(processor: Processor, _now: int) -> list[str]:
            processor.unregister(query, access)
            return self._waiting.forget(query)

        return self.call(end)

    def gone(self, observer: str) -> Future[None]:
        """Remove an observer that wants no more reports."""
        return self.call(lambda _processor, _now: self._waiting.remove(observer))

    def waiting(self, observer_id: str, most: int) -> list[StoredReport]:
        """See `edge.streams.callbacks.WaitingReports`. Blocks."""
        return self.call(lambda _processor, _now: self._waiting.waiting(observer_id, most)).result()

    def acknowledged(self, observer_id: str, number: int) -> None:
        """See `edge.streams.callbacks.WaitingReports`. Blocks."""
        self.call(lambda _processor, _now: self._waiting.acknowledged(observer_id, number)).result()

    def subscribe(self, query: QueryRequest, sink: Sink, alias: str | None) -> Future[ActiveSubscription]:
        """Start a continuous query for one subscriber. The sink gets its first result before the future is done, and
        then a notification for each report: the changes since the one before. It is called on the thread.
        """

        def begin(processor: Processor, now: int) -> ActiveSubscription:
            found, first = processor.subscribe(query.sparql, query.access, now)
            spuid = f"sepa://subscription/{uuid.uuid4()}"
            self._subscriptions[spuid] = found.name
            sink(SubscriberNotification(spuid, alias, 0, first))

            def notify(report: Report) -> None:
                delta = Delta(report.variables, report.rows, report.removed or ())
                sink(SubscriberNotification(spuid, alias, report.number, delta))

            found.followers[spuid] = notify
            found.failed = lambda reason: sink(SubscribeFailed(spuid, alias, reason))
            return ActiveSubscription(spuid, alias)

        return self.call(begin)

    def unsubscribe(self, spuid: str) -> Future[None] | None:
        """End what `subscribe` started; None: it is no such subscription."""
        name = self._subscriptions.pop(spuid, None)
        return None if name is None else self.call(lambda processor, _now: processor.unsubscribe(name))

    # The thread

    def _put(self, action: Callable[[], None]) -> None:
        with self._condition:
            if self._closing:
                raise NotReady("The gateway is stopping")
            self._inbox.append(action)
            self._condition.notify()

    def _put_change(self, action: Callable[[], None]) -> None:
        """Pass a change of live data to the thread."""
        self._put(lambda: None if self._broken is not None else action())

    def _run(self, store: StreamStore) -> None:
        retry = Retry(_RETRY)
        try:
            self._guarded("streams.not_restored", lambda: self._processor.restore(self._clock.wall()))
            while (actions := self._take(self._pause(retry))) is not None:
                self._work(actions, retry)
            self._store_reports(retry)
        finally:
            if not self._closing:
                self._break("streams.failed", RuntimeError("its thread has ended"))
            self._refuse()
            self._processor.close()
            store.close()

    def _guarded(self, event: str, action: Callable[[], object]) -> None:
        """Run a step. After a fault, requests are answered with the reason, and no further step runs."""
        try:
            action()
        except BaseException as error:  # noqa: BLE001  no request may stay without an answer
            self._break(event, contained(error))

    def _break(self, event: str, error: Exception) -> None:
        """Serve no more requests: the state in memory may not be that of the store."""
        reason = error.description if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
        _log.critical(event, exc_info=error, extra={"reason": reason})
        self._broken = NotReady(f"The streams have stopped: {reason}. Restart the gateway")
        self.failing = self._broken.description

    def _pause(self, retry: Retry) -> float:
        """Return the seconds until something is due."""
        if self._broken is not None:
            return _LONGEST_WAIT
        if retry.failures:
            return retry.failed()
        due = self._processor.due()
        if due is None:
            return _LONGEST_WAIT
        return min(max((due - self._clock.wall()) / _SECOND, 0.0), _LONGEST_WAIT)

    def _take(self, seconds: float) -> Sequence[Callable[[], None]] | None:
        """Wait for requests, and return all of them; None: the service closes."""
        with self._condition:
            if not self._inbox and not self._closing and seconds:
                self._condition.wait(seconds)
            actions = list(self._inbox)
            self._inbox.clear()
            return None if self._closing and not actions else actions

    def _work(self, actions: Sequence[Callable[[], None]], retry: Retry) -> None:
        processor = self._processor
        self._advance()
        for action in actions:
            self._guarded("streams.failed", action)
        self._advance()
        if self._broken is None and processor.time - self._reviewed > _REVIEW:
            self._reviewed = processor.time
            self._guarded("streams.failed", processor.review)
        self._guarded("streams.failed", lambda: self._store_reports(retry))

    def _advance(self) -> None:
        # While the disk fails, reports wait in memory: windows stand still before they fill it.
        if self._broken is None and self._processor.unstored < _MOST_UNSTORED:
            self._guarded("streams.failed", lambda: self._processor.advance(self._clock.wall()))

    def _store_reports(self, retry: Retry) -> None:
        if self._broken is not None:
            return
        try:
            reports = self._processor.store_reports()
        except EdgeError as error:
            self.failing = error.description
            if not retry.failures:
                _log.error("streams.not_stored", extra={"reason": error.description})
                retry.failed()
            return
        retry.succeeded()
        self.failing = self._processor.problem
        self._deliver(reports)

    def _deliver(self, reports: Sequence[Report]) -> None:
        find = self._processor.find
        for report in reports:
            query = find(report.query)
            for follower in list(query.followers.values()) if query is not None else ():
                try:
                    follower(report)
                except Exception:  # noqa: BLE001  one follower must not keep reports from the others
                    _log.exception("streams.follower_failed")
        for name in dict.fromkeys(report.query for report in reports):
            query = find(name)
            if query is None:
                continue
            try:
                self._deliver_to_observers(query)
            except EdgeError as error:
                # The reports are stored: observers get them with the next one, or after a restart.
                self.failing = error.description
                _log.error("streams.not_delivered", extra={"query": name, "reason": error.description})

    def _deliver_to_observers(self, query: RunningQuery) -> None:
        """Notify the observers of a query. Raises `StorageFailed`."""
        observers = self._waiting.of(query.name)
        if observers:
            self._waiting.bound(query.name, query.query.operator)
        for observer in observers:
            stream = self._own_stream(observer.url)
            if stream is None:
                self._notify(observer.id)
            else:
                self._feed(observer, stream, query.access)

    def _feed(self, observer: StoredObserver, stream: str, access: Access) -> None:
        """Let the reports for an observer be elements of a stream of this gateway."""
        for report in self._waiting.waiting(observer.id, -1):
            try:
                triples = parsed(report.body)
                if triples and report.content_type == TRIPLES:
                    access = self._processor.current(access)
                    self._processor.add(stream, [NewElement(triples)], access, self._clock.wall())
            except (StorageFailed, TooManyRequests):
                raise  # it may pass: the element is added with the next report
            except EdgeError as error:
                _log.warning("streams.not_fed", extra={"stream": stream, "reason": error.description})
            self._waiting.acknowledged(observer.id, report.number)

    def _refuse(self) -> None:
        with self._condition:
            self._closing = True
            actions = list(self._inbox)
            self._inbox.clear()
        for action in actions:
            action()


def _nothing(_begin: int, _end: int) -> Iterable[PastValue]:
    return ()


class _Live:
    """The live graph, for the processor."""

    def __init__(self, engine: LiveEngine, put: Callable[[Callable[[], None]], None]) -> None:
        self._engine = engine
        self._put = put

    def follow(
        self, sparql: str, access: Access, changed: Callable[[Sequence[Row], Sequence[Row]], None]
    ) -> tuple[Sequence[Row], Callable[[], None]]:
        """See `edge.streams.live_data.LiveGraph`."""
        first: list[Sequence[Row]] = []
        is_abandoned = False

        def sink(notification: SubscriberNotification | SubscribeFailed) -> None:
            # On the thread of the engine.
            if isinstance(notification, SubscribeFailed):
                _log.error("streams.live_data_failed", extra={"reason": notification.description})
                return
            delta = notification.delta
            if not first:
                first.append(delta.added)
                return
            if is_abandoned:
                return
            with contextlib.suppress(NotReady):
                self._put(lambda: changed(delta.added, delta.removed))

        future = self._engine.subscribe(QueryRequest(sparql, access=access), sink)
        try:
            spuid = future.result(_ANSWER).spuid
        except TimeoutError:
            is_abandoned = True
            if not future.cancel():
                future.add_done_callback(self._end_late)
            raise NotReady("The live graph is busy; try again later") from None
        except CancelledError:
            raise NotReady("The gateway is stopping") from None

        def end() -> None:
            self._engine.unsubscribe(spuid)

        return first[0], end

    def _end_late(self, future: Future[ActiveSubscription]) -> None:
        """End a subscription that began after nobody waited for it any more."""
        if not future.cancelled() and future.exception() is None:
            self._engine.unsubscribe(future.result().spuid)
