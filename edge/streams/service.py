"""The thread of the processor: its requests, its clock, and the delivery of its reports."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar

from edge.backoff import Backoff, Retry
from edge.engine.admission.byte_quota import Charge
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
from edge.protocol.errors import EdgeError, NotReady
from edge.protocol.report_position import ReportPosition
from edge.streams.action_queue import Action, ActionQueue
from edge.streams.delivery import Delivery
from edge.streams.followed_reports import FollowedReports
from edge.streams.followers import Followers
from edge.streams.kept_reports import KeptReports
from edge.streams.live_subscriptions import LiveEngine, LiveSubscriptions
from edge.streams.observations import LiveObservations, Past, PastValue
from edge.streams.observer import StoredReport
from edge.streams.processor import AdvanceInProgress, Processor
from edge.streams.report import Report
from edge.streams.running_query import Follower
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore
from edge.streams.stored_rows import StoredObserver
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
_ACKNOWLEDGED: Final = _SECOND // 4
"""Time until an acknowledgement of an observer is stored, together with those that come meanwhile."""
_MOST_WAITING: Final = 10_000
"""Reports in memory, until they are stored and delivered, with which no further slide begins."""


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
        self._starting = threading.Lock()
        self._actions = ActionQueue(clock)
        self._put_off: list[Action] = []
        """Actions that wait for the end of an advance in progress: of a slide or corrections."""
        self._is_late = False
        """Whether the present action has waited so."""
        self._thread: threading.Thread | None = None
        self._broken: EdgeError | None = None
        """Why no request can be served; None: they can."""
        self._reviewed = 0
        self._flush_at: int | None = None
        """Steady time at which acknowledgements are stored; None: none waits."""
        self._subscriptions: dict[str, str] = {}
        """Names of the queries of subscriptions, by spuid."""
        self.failing = ""
        """Why reports cannot be stored, or no window reports; empty if all is well."""
        self._store: StreamStore
        self._processor: Processor
        self._waiting: WaitingReports
        self._followers: Followers
        self._delivery: Delivery

    def start(self) -> None:
        """Open the store and start the thread. Does nothing if it runs already. Raises `StorageFailed`, `NotReady`."""
        with self._starting:
            if self._actions.is_closed:
                raise NotReady("The gateway is stopping")
            if self._thread is not None:
                return
            self._store = store = StreamStore(self._directory)
            try:
                settings = self._settings
                kept = KeptReports(store, settings.max_recent_reports, self._clock.steady, self._has_followers)
                self._waiting = WaitingReports(store, settings.max_reports, kept)
                live = LiveSubscriptions(self._live, self._put_change)
                self._processor = Processor(
                    self._settings,
                    store,
                    lambda: make_engine(self._engine_settings),
                    live,
                    self._rights,
                    self._waiting.body,
                    LiveObservations(live, self._past or _nothing),
                )
                self._followers = Followers(self._processor, kept, settings.max_reports, self._unfollow)
                self._delivery = Delivery(
                    self._processor,
                    self._waiting,
                    self._settings.max_observers,
                    self._clock,
                    self._notify,
                    self._own_stream,
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
        if thread is not None and not thread.is_alive() and not self._actions.is_closed:
            return "The thread of the streams has ended; restart the gateway"
        return self.failing or ("" if thread is None else self._store.damage)

    def close(self, timeout: float) -> bool:
        """Store what has happened, and end the thread. Returns whether it has ended in time."""
        with self._starting:
            self._actions.close()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def call(self, action: Callable[[Processor, int], T], *, by_arrival: bool = False) -> Future[T]:
        """Run an action of a client on the thread, with the time. Its effect is durable when the future is done.

        `by_arrival`: the time of the arrival of the action, and not the present. The processor may have passed it. The
        action comes again after an advance in progress if it raises `AdvanceInProgress`; then it must have changed
        nothing.
        """
        future: Future[T] = Future()

        def run(arrival: int) -> bool:
            if not future.running() and not future.set_running_or_notify_cancel():
                return True
            try:
                if self._broken is not None:
                    raise self._broken
                # An action that has waited for the end of an advance comes before the next one, even if that is due.
                time = self._processor.time
                now = arrival if by_arrival else time if self._is_late else max(self._clock.wall(), time)
                result = action(self._processor, now)
            except AdvanceInProgress:
                return False
            except BaseException as error:  # noqa: BLE001  the future passes any error to the caller
                future.set_exception(contained(error))
            else:
                future.set_result(result)
            return True

        try:
            self.start()
            self._actions.put(run)
        except EdgeError as error:
            future.set_exception(error)
        return future

    # Observers

    def observe(self, query: str, url: str, access: Access, *, is_target: bool = False) -> Future[StoredObserver]:
        """Add an observer of a query; it gets the reports from now on. The URL is checked by the caller.

        `is_target`: see `StoredObserver`.
        """
        return self.call(lambda _processor, _now: self._delivery.observe(query, url, access, is_target=is_target))

    def observers(self, query: str | None, access: Access) -> Future[list[StoredObserver]]:
        """Return the observers of a query of the client; None: all observers, for the gateway itself."""
        return self.call(lambda _processor, _now: self._delivery.observers(query, access))

    def end_observer(self, query: str, observer: str, access: Access) -> Future[None]:
        """Remove an observer."""
        return self.call(lambda _processor, _now: self._delivery.end(query, observer, access))

    def unregister(self, query: str, access: Access) -> Future[list[str]]:
        """End a query. Returns the ids of its observers, which have ended too."""
        return self.call(lambda _processor, _now: self._delivery.unregister(query, access))

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

            found.followers[spuid] = Follower(notify, lambda reason: sink(SubscribeFailed(spuid, alias, reason)))
            return ActiveSubscription(spuid, alias)

        return self.call(begin)

    def follow(
        self,
        name: str,
        access: Access,
        charge: Charge,
        wake: Callable[[], None],
        largest: int | None = None,
        after: ReportPosition | None = None,
    ) -> Future[FollowedReports]:
        """Follow a query of the client without an observer. See `FollowedReports`.

        `after`: the last report that the client has; those since then come first, as far as they are kept.
        """

        return self.call(lambda _processor, _now: self._followers.add(name, access, charge, wake, largest, after))

    def _has_followers(self, query: str) -> bool:
        found = self._processor.find(query)
        return found is not None and bool(found.followers)

    def _unfollow(self, reports: FollowedReports) -> None:
        self.call(lambda _processor, _now: self._followers.remove(reports))

    def unsubscribe(self, spuid: str) -> Future[None] | None:
        """End what `subscribe` started; None: it is no such subscription."""
        name = self._subscriptions.pop(spuid, None)
        return None if name is None else self.call(lambda processor, _now: processor.unsubscribe(name))

    # The thread

    def _put_change(self, action: Callable[[], None]) -> None:
        """Pass a change of live data to the thread. A slide and corrections in progress are computed without it."""

        def run(_arrival: int) -> bool:
            if self._is_advancing:
                return False
            if self._broken is None:
                action()
            return True

        self._actions.put(run)

    def _run(self, store: StreamStore) -> None:
        retry = Retry(_RETRY)
        try:
            self._guarded("streams.not_restored", lambda: self._processor.restore(self._clock.wall()))
            while (actions := self._actions.take(self._pause(retry))) is not None:
                self._work(actions, retry)
            # A slide in progress is made again after the start: its end is not waited for.
            self._store_reports(retry)
            while self._broken is None and self._delivery.number:
                self._delivery.deliver()
        finally:
            if not self._actions.is_closed:
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
        for query in self._processor.all_queries():
            for follower in query.followers:
                if isinstance(follower, FollowedReports):
                    follower.end(self._broken)  # with a status after which clients try again later
            query.end_followers(self.failing)

    def _pause(self, retry: Retry) -> float:
        """Return the seconds until something is due."""
        if self._broken is not None:
            return _LONGEST_WAIT
        if self._put_off or self._is_advancing or self._delivery.number:
            return 0.0
        if retry.failures:
            return retry.failed()
        pause = _LONGEST_WAIT
        if (due := self._processor.due()) is not None:
            pause = min(pause, (due - self._clock.wall()) / _SECOND)
        for at in (self._flush_at, self._delivery.retry_at):
            if at is not None:
                pause = min(pause, (at - self._clock.steady()) / _SECOND)
        return max(pause, 0.0)

    def _work(self, actions: Sequence[Action], retry: Retry) -> None:
        processor = self._processor
        self._is_late = True
        put_off = self._put_off
        if not self._is_advancing:
            put_off = [action for action in put_off if not self._has_run(action)]
        self._is_late = False
        for action in actions:
            # An element counts at the time at which it came, however long the actions before it take.
            if not self._is_advancing:
                self._advance(action.arrival)
            if not self._has_run(action):
                put_off.append(action)
        self._put_off = put_off
        # A slide or corrections in progress go on by one turn. Then the actions come again that have arrived meanwhile.
        self._advance(put_off[0].arrival if put_off else self._actions.time())
        if self._broken is None and not self._is_advancing and processor.time - self._reviewed > _REVIEW:
            self._reviewed = processor.time
            self._guarded("streams.failed", processor.review)
        self._guarded("streams.failed", lambda: self._store_reports(retry))

    def _has_run(self, action: Action) -> bool:
        has_run = True

        def run() -> None:
            nonlocal has_run
            has_run = action.run(action.arrival)

        self._guarded("streams.failed", run)
        return has_run

    @property
    def _is_advancing(self) -> bool:
        return self._broken is None and self._processor.is_advancing

    def _advance(self, now: int) -> None:
        # While the disk fails, or is too slow, reports wait in memory: windows stand still before they fill it.
        waiting = self._processor.pending_changes + self._delivery.number
        if self._is_advancing or (self._broken is None and waiting < _MOST_WAITING):
            self._guarded("streams.failed", lambda: self._processor.advance(now))

    def _store_reports(self, retry: Retry) -> None:
        if self._broken is not None:
            return
        failure = ""
        try:
            self._waiting.expire()
            self._flush(retry)
            self._delivery.add(self._processor.store_reports())
        except EdgeError as error:
            failure = error.description
            if not retry.failures:
                _log.error("streams.not_stored", extra={"reason": failure})
                retry.failed()
        else:
            retry.succeeded()
        undelivered = self._delivery.deliver()
        self.failing = failure or undelivered or self._processor.problem

    def _flush(self, retry: Retry) -> None:
        """Store what observers have acknowledged. Not each by itself: a transaction takes longer than a report."""
        if not (self._waiting.is_stored or self._actions.is_closed or retry.failures):
            now = self._clock.steady()
            if self._flush_at is None:
                self._flush_at = now + _ACKNOWLEDGED
            if now < self._flush_at:
                return
        self._flush_at = None
        self._waiting.flush()

    def _refuse(self) -> None:
        self._actions.close()
        self._broken = self._broken or NotReady("The gateway is stopping")
        for action in (*self._put_off, *(self._actions.take(0) or ())):
            action.run(action.arrival)


def _nothing(_begin: int, _end: int) -> Iterable[PastValue]:
    return ()
