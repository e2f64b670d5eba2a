"""Pending subscribe and unsubscribe requests: passed to the engine, answered when the engine has answered.

All methods are called on the event loop. Answers arrive through the dispatcher, in engine order.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from edge.engine.requests import Dataset, Notification, QueryRequest, SubscribeFailed, Subscription
from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.rate_limit import client_of
from edge.gates.resume import Feed, SuspendedSubscription
from edge.metrics import Metrics
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, RequestTimeout, SubscriptionFailed
from edge.protocol.messages import SubscribeMessage, UnsubscribeMessage, unsubscribed_message

if TYPE_CHECKING:
    from edge.gates.session import Session

logger = logging.getLogger(__name__)


class Subscribe:
    """A subscribe request, and the resulting subscription."""

    def __init__(self, session: Session, request: SubscribeMessage, access: Access, started: float) -> None:
        self.session = session
        self.request = request
        self.access = access
        self.alias = request.alias
        self.started = started
        self.who = client_of(access, session.peer)
        dataset = Dataset(as_tuple(request.default_graph_uri), as_tuple(request.named_graph_uri))
        self.query = QueryRequest(request.sparql, dataset, access, self.who)
        self.resumable = session.shared.resume_registry.open and (request.resume or request.spuid is not None)
        """Whether the client may resume it on another connection."""
        self.spuid = ""
        self.variables: tuple[str, ...] = ()
        self.sequence = 0
        """Number of the last notification."""
        self.feed = Feed(self.notify)
        self.ending = False
        self._authorization_watch: AuthorizationWatch | None = None
        self._dropped = False
        self._answered = False
        self._timer: asyncio.TimerHandle | None = None
        self._future: Future[Subscription] | None = None

    def start(self) -> None:
        """Pass the request to the engine. Raises errors that the engine detects at once."""
        request, shared = self.request, self.session.shared
        sink = partial(shared.bridge.put, self.feed.take)
        try:
            self._future = shared.engine.subscribe(self.query, sink, alias=request.alias, keep=self.resumable)
        except EdgeError as error:
            raise error.with_alias(request.alias) from error
        self.session.begun()
        if request.timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(request.timeout / 1000, self._expire)
        self._future.add_done_callback(partial(shared.bridge.put, self._done))

    def notify(self, item: Notification | SubscribeFailed) -> None:
        """Process an item that the engine sends to this subscription, in order."""
        if self._dropped:
            return
        session, self.spuid = self.session, item.spuid
        if isinstance(item, SubscribeFailed):
            self._lose(SubscriptionFailed(item.description))
            return
        if not self._answered:
            self._answer()
            self.variables = item.delta.variables
            session.keep(item.spuid, self)
            session.shared.answered("subscribe", 200, self.started)
        self.sequence = item.sequence
        item.alias = self.alias
        session.outgoing.send(item)
        session.shared.notifications.inc()

    def go_on(self, suspended: SuspendedSubscription, missed: Notification) -> None:
        """Resume a suspended subscription instead of starting a new one."""
        self._answer()
        self.spuid, self.variables, self.sequence = suspended.spuid, suspended.variables, suspended.sequence
        self.feed = suspended.feed
        self.feed.to = self.notify
        session = self.session
        if suspended.query.source != self.who:  # without security, another connection is another client
            session.shared.engine.transfer(self.spuid, self.who)
        session.keep(self.spuid, self)
        session.outgoing.send(missed)
        session.shared.notifications.inc()
        session.shared.answered("subscribe", 200, self.started)

    def watch(self) -> None:
        """End the subscription when the client's permissions end."""
        self.unwatch()
        if self.access is not ANYBODY:
            self._authorization_watch = AuthorizationWatch(
                self.session.shared.guard, self.access, self.request.authorization, self._lose
            )

    def unwatch(self) -> None:
        """Stop watching the permissions: the subscription has ended, or was suspended."""
        if self._authorization_watch is not None:
            self._authorization_watch.end()
            self._authorization_watch = None

    def drop(self) -> None:
        """Send nothing more; if the engine still starts the subscription, end it at once."""
        self._dropped = True
        self.release()
        self._answer()

    def release(self) -> None:
        """Break the reference cycle: the query text would stay in memory until the garbage collector runs, which is
        rare.
        """
        self.feed.to = _ignore
        self._future = None if self._future is not None and self._future.done() else self._future

    def _lose(self, error: EdgeError) -> None:
        """End the subscription with an error."""
        self._dropped = True
        self.release()
        session = self.session
        error = type(error)(error.description, alias=self.alias, spuid=self.spuid)
        session.refuse(error, "notify", time.perf_counter())
        if session.forget(self.spuid) is not None:
            session.end(self.spuid)

    def _answer(self) -> None:
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.drop()
        self.session.opened(self)
        error = RequestTimeout(
            f"No answer within the {self.request.timeout:g} ms of the request's timeout; nothing was subscribed",
            alias=self.alias,
        )
        self.session.refuse(error, "subscribe", self.started)
        if self._future is not None:
            self._future.cancel()

    def _done(self, future: Future[Subscription]) -> None:
        session = self.session
        session.done()
        session.opened(self)
        self._future = None
        failure = None if future.cancelled() else future.exception()
        if self._dropped:
            if not future.cancelled() and failure is None:
                session.end(future.result().spuid)
        elif failure is not None:
            self.drop()
            session.refuse(as_error(failure, self.alias, session.shared.metrics), "subscribe", self.started)


class Unsubscribe:
    """An unsubscribe request. Notifications continue until the engine has answered."""

    def __init__(self, session: Session, call: Subscribe, request: UnsubscribeMessage, started: float) -> None:
        self.session = session
        self.call = call
        self.request = request
        self.alias = call.alias if request.alias is None else request.alias
        self.started = started

    def start(self) -> None:
        """Pass the request to the engine. Raises errors that the engine detects at once."""
        shared = self.session.shared
        try:
            future = shared.engine.unsubscribe(self.request.spuid)
        except EdgeError as error:
            raise error.with_alias(self.alias) from error
        self.call.ending = True
        self.session.begun()
        future.add_done_callback(partial(shared.bridge.put, self._done))

    def _done(self, future: Future[None]) -> None:
        session = self.session
        session.done()
        self.call.drop()
        session.forget(self.request.spuid)
        failure = future.exception()
        if failure is not None:
            session.refuse(as_error(failure, self.alias, session.shared.metrics), "unsubscribe", self.started)
        else:
            session.outgoing.send(unsubscribed_message(self.request.spuid, self.alias))
            session.shared.answered("unsubscribe", 200, self.started)


def _ignore(_: object) -> None:
    pass


def as_tuple(graphs: list[str] | None) -> tuple[str, ...] | None:
    """Convert the graphs of a message to those of a dataset."""
    return None if graphs is None else tuple(graphs)


def as_error(failure: BaseException, alias: str | None, metrics: Metrics) -> EdgeError:
    """Convert a failure to an error for the client. Unexpected exceptions are logged under an incident number."""
    if isinstance(failure, EdgeError):
        return failure.with_alias(alias)
    incident = uuid.uuid4().hex[:12]
    metrics.internal_errors.inc()
    logger.error("internal error %s", incident, exc_info=failure)
    return EdgeError(f"Internal error {incident}: see the gateway's log", alias=alias)
