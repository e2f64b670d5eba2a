"""Delivery of reports to the callback URLs of observers, and to the inboxes of targets.

"A RESTful Interface for RDF Stream Processors" (Balduini and Della Valle, 2013): whenever a query has new results, the
processor POSTs them to each observer. `edge.streams.observer` decides what follows from an answer, and
`edge.streams.callback_order` which observer has its turn. An observer without a waiting report has neither a task nor a
timer.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeVar

from edge import __version__
from edge.backoff import Backoff, Retry
from edge.protocol.errors import EdgeError
from edge.protocol.trust import trusting
from edge.streams.callback_hosts import CallbackHosts, CallbackTarget, target_of
from edge.streams.callback_order import PER_HOST, SLOTS, CallbackOrder
from edge.streams.callback_request import CallbackClient, CallbackUnanswered, Deadlines
from edge.streams.kept_notifications import KeptNotifications
from edge.streams.observer import (
    BACKOFF,
    REFUSALS,
    CallbackAnswer,
    Next,
    ObserverState,
    ObserverStatus,
    StoredReport,
    report_headers,
)
from edge.streams.target_inbox import NoInbox, RunInThread, TargetInbox

__all__ = ["CallbackLimits", "Callbacks", "Destination", "StoredReport", "WaitingReports"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
_USER_AGENT: Final = f"sepa-edge/{__version__}"
_STORE_THREADS: Final = 2
"""Threads that wait for the store."""


class WaitingReports(Protocol):
    """Interface of the store. Called in threads of an executor; calls for the same observer do not overlap."""

    def waiting(self, observer_id: str, most: int) -> list[StoredReport]:
        """Return the oldest reports that the observer does not have yet, at most `most`, in ascending order."""

    def acknowledged(self, observer_id: str, number: int) -> None:
        """Record that the observer needs no reports up to this number."""


class Destination(NamedTuple):
    """An observer, as it is registered."""

    observer_id: str
    query: str
    """Name of the query."""
    url: str
    """Callback URL."""
    query_url: str = ""
    """Absolute URL of the query, for the header `Link`; empty for none."""
    is_target: bool = False
    """Whether the URL is that of a resource whose inbox gets notifications, and not a callback URL."""
    query_identifier: str = ""
    """See `StoredQuery.identifier`."""


class CallbackLimits(NamedTuple):
    """Limits of the delivery."""

    deadlines: Deadlines = Deadlines()
    backoff: Backoff = BACKOFF
    refusals: int = REFUSALS
    """Refusals of one report after which it counts as lost."""
    slots: int = SLOTS
    """Requests at the same time."""
    per_host: int = PER_HOST
    """Requests to one host at the same time."""


@functools.cache
def _system_trust() -> ssl.SSLContext:
    return trusting(None)


class _Observer:
    """An observer with its state and its place in the schedule."""

    __slots__ = ("destination", "inbox", "notified", "scheduled", "state", "target", "task", "timer")

    def __init__(
        self, destination: Destination, target: CallbackTarget, state: ObserverState, inbox: TargetInbox | None
    ) -> None:
        self.destination = destination
        self.target = target
        self.state = state
        self.inbox = inbox
        """The inbox of the target of notifications; None: reports go to a callback URL."""
        self.notified = False
        """Whether a report may have come since the store was last read."""
        self.scheduled = False
        """Whether it waits for its turn, or has it, or waits until it is due."""
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None


class Callbacks:
    """Sends waiting reports to observers, each at least once and in order.

    Created and used in the thread of the event loop; `notify` is thread-safe.
    """

    def __init__(
        self,
        reports: WaitingReports,
        hosts: CallbackHosts,
        limits: CallbackLimits = CallbackLimits(),  # noqa: B008 - immutable
        *,
        ended: Callable[[str], None],
        executor: Executor | None = None,
        tls: Callable[[], ssl.SSLContext] = _system_trust,
    ) -> None:
        """`ended` is called with the id of an observer that was removed because it answered 410 (Gone). `executor`
        calls the store; None: one of its own. `tls` returns the context for https.
        """
        self._reports = reports
        self._limits = limits
        self._ended = ended
        # Executors of its own: the one of the event loop has few threads, and a store that is busy, or a name that
        # cannot be resolved, occupies one for long.
        self._store = ThreadPoolExecutor(_STORE_THREADS, thread_name_prefix="callback-store")
        # One thread for the documents of targets, because they come from others and may take long, and one for
        # notifications, so that known inboxes need not wait for these documents.
        self._documents = ThreadPoolExecutor(1, thread_name_prefix="callback-documents")
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="callback-encoder")
        self._kept = KeptNotifications()
        self._executor = self._store if executor is None else executor
        self._loop = asyncio.get_running_loop()
        self._resolver = ThreadPoolExecutor(limits.slots, thread_name_prefix="callback-names")
        self._client = CallbackClient(hosts, tls, self._resolver, limits.deadlines)
        self._order = CallbackOrder(limits.slots, limits.per_host)
        self._observers: dict[str, _Observer] = {}
        self._stopped = False

    def add(self, destination: Destination, *, last: int | None = None, lost: int = 0) -> None:
        """Add an observer, and send its waiting reports. `last`: number of its last acknowledged report; None: unknown.
        `lost`: reports that it lost before.

        Raises `InvalidRequest` if its URL is not valid. Whether its host is allowed is checked at each connection.
        """
        target = target_of(destination.url)
        inbox = self._inbox(destination.url) if destination.is_target else None
        state = ObserverState(Retry(self._limits.backoff), refusals=self._limits.refusals, lost=lost, last=last)
        self.remove(destination.observer_id)
        self._observers[destination.observer_id] = _Observer(destination, target, state, inbox)
        self._order.add(destination.observer_id, _host(target))
        self._notify(destination.observer_id)

    def remove(self, observer_id: str) -> None:
        """Remove an observer; a running request is aborted. Unknown observers are ignored."""
        observer = self._observers.pop(observer_id, None)
        if observer is None:
            return
        self._order.remove(observer_id)
        self._kept.drop(observer_id)
        if observer.timer is not None:
            observer.timer.cancel()
        if observer.task is not None:
            observer.task.cancel()
        self._begin_turns()

    def notify(self, observer_id: str) -> None:
        """Report that a report waits for an observer. Thread-safe. Unknown observers are ignored."""
        with suppress(RuntimeError):  # the event loop is closed: the next start sends the report
            self._loop.call_soon_threadsafe(self._notify, observer_id)

    def status(self, observer_id: str) -> ObserverStatus | None:
        """Return the state of an observer, or None if it is unknown."""
        observer = self._observers.get(observer_id)
        return None if observer is None else observer.state.status

    def inbox(self, observer_id: str) -> str:
        """Return the URL of the inbox that gets the notifications of an observer; empty before it is discovered."""
        observer = self._observers.get(observer_id)
        return "" if observer is None or observer.inbox is None else observer.inbox.url

    @property
    def sending(self) -> int:
        """Number of observers with a running request."""
        return self._order.active

    async def stop(self) -> None:
        """Abort all requests. Reports that were not acknowledged stay in the store."""
        self._stopped = True
        tasks = [observer.task for observer in self._observers.values() if observer.task is not None]
        for observer_id in list(self._observers):
            self.remove(observer_id)
        await asyncio.gather(*tasks, return_exceptions=True)
        for own in (self._resolver, self._store, self._documents, self._encoder):
            own.shutdown(wait=False, cancel_futures=True)

    def _notify(self, observer_id: str) -> None:
        observer = self._observers.get(observer_id)
        if observer is None or self._stopped:
            return
        observer.notified = True
        if not observer.scheduled:
            self._schedule(observer)
            self._begin_turns()

    def _schedule(self, observer: _Observer) -> None:
        """Let an observer wait for its turn, or until it is due."""
        observer.scheduled = True
        if observer.state.due > self._loop.time():
            observer.timer = self._loop.call_at(observer.state.due, self._due, observer)
        else:
            self._order.ready(observer.destination.observer_id)

    def _due(self, observer: _Observer) -> None:
        observer.timer = None
        self._order.ready(observer.destination.observer_id)
        self._begin_turns()

    def _begin_turns(self) -> None:
        while not self._stopped and (observer_id := self._order.take()) is not None:
            observer = self._observers[observer_id]
            observer.task = self._loop.create_task(self._turn(observer), name=f"callback-{observer_id}")
            observer.task.add_done_callback(functools.partial(self._end_turn, observer))

    async def _turn(self, observer: _Observer) -> None:
        """Send one report, or discover an inbox. More requests would delay the other observers of the host."""
        observer_id = observer.destination.observer_id
        observer.notified = False  # before the store is read: a report that comes later notifies again
        waiting = await self._loop.run_in_executor(self._executor, self._reports.waiting, observer_id, 1)
        if not waiting:
            return
        observer.notified = True  # there may be more
        report = waiting[0]
        if await self._send(observer, report) is Next.ADVANCE:
            self._kept.drop(observer_id)
            await self._loop.run_in_executor(self._executor, self._reports.acknowledged, observer_id, report.number)

    async def _send(self, observer: _Observer, report: StoredReport) -> Next:
        destination, state = observer.destination, observer.state
        headers = report_headers(
            destination.query, destination.observer_id, report, destination.query_url, destination.query_identifier
        )
        before, lost = state.problem, state.lost
        discovers, answered = observer.inbox is not None and not observer.inbox.url, True
        try:
            headers["User-Agent"] = _USER_AGENT
            answer = await self._answer(observer, headers, report)
        except CallbackUnanswered as error:
            answered = isinstance(error, NoInbox)
            following = state.unanswered(str(error), self._loop.time())
        else:
            now = self._loop.time()
            following = Next.RETRY if answer is None else state.answered(report, answer, now, time.time())
        if discovers and answered:
            self._order.found(destination.observer_id)
        else:
            self._order.answered(destination.observer_id, answered)
        _log_change(observer, before, lost)
        return following

    async def _answer(
        self, observer: _Observer, headers: dict[str, str], report: StoredReport
    ) -> CallbackAnswer | None:
        """Return the answer to one request; None: it has discovered an inbox, which gets the report next.

        Raises `CallbackUnanswered`.
        """
        if observer.inbox is None:
            return await self._client.post(observer.target, headers, report.body)
        if not observer.inbox.url:
            return await observer.inbox.discover(_USER_AGENT)
        destination = observer.destination
        return await observer.inbox.send(destination.observer_id, destination.query, headers, report)

    def _inbox(self, target: str) -> TargetInbox:
        def running_in(executor: Executor) -> RunInThread:
            async def run(function: Callable[..., T], *arguments: object) -> T:
                return await self._loop.run_in_executor(executor, function, *arguments)

            return run

        return TargetInbox(target, self._client, running_in(self._documents), running_in(self._encoder), self._kept)

    def _end_turn(self, observer: _Observer, task: asyncio.Task[None]) -> None:
        observer.task = None
        failure = None if task.cancelled() else task.exception()
        observer_id = observer.destination.observer_id
        if self._observers.get(observer_id) is not observer:
            return  # it was removed, which ended its turn
        self._order.finished(observer_id)
        if observer.inbox is not None:
            self._order.move(observer_id, _host(observer.inbox.destination), is_first=not observer.inbox.url)
        if failure is not None:
            # The report is sent again, because it was not acknowledged.
            self._failed(observer, failure)
        if observer.state.ended:
            self.remove(observer_id)
            self._ended(observer_id)
        elif observer.notified or failure is not None:
            self._schedule(observer)
        else:
            observer.scheduled = False
        self._begin_turns()

    def _failed(self, observer: _Observer, failure: BaseException) -> None:
        """Count a failure of the store, or a defect, as a failed attempt."""
        facts = {"observer": observer.destination.observer_id}
        if isinstance(failure, EdgeError):
            reason = failure.description
            _log.warning("callback.not_stored", extra={**facts, "reason": reason})
        else:
            reason = f"{type(failure).__name__}: {failure}"
            _log.error("callback.fault", exc_info=failure, extra=facts)
        observer.state.unanswered(reason, self._loop.time())


def _host(target: CallbackTarget) -> str:
    return f"{target.host}:{target.port}"


def _log_change(observer: _Observer, problem: str, lost: int) -> None:
    """Log the beginning and the end of a problem. Without the path of the URL, which may be a secret."""
    destination, state = observer.destination, observer.state
    facts = {"observer": destination.observer_id, "query": destination.query, "host": observer.target.authority}
    if state.problem and not problem:
        _log.warning("callback.down", extra={**facts, "reason": state.problem})
    elif problem and not state.problem:
        _log.info("callback.up", extra=facts)
    if state.lost > lost:
        _log.warning("callback.lost", extra={**facts, "reports": state.lost - lost, "reason": state.problem})
