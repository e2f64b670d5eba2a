"""Blocking client for programs without asyncio, with the methods of `Client`."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

import pyoxigraph as ox

from edge.client.answers import Scheduled, Timer, Updated
from edge.client.backlog import Notification
from edge.client.callback_thread import CallbackThread
from edge.client.client import Client, Graphs, Over
from edge.client.closing import Closing
from edge.client.endpoints import Endpoints
from edge.client.errors import ClientError, Closed
from edge.client.handlers import report
from edge.client.loop_thread import LoopThread
from edge.client.observations import Observation, ObservationFeed, Published
from edge.client.options import Options
from edge.client.results import Result, Rows
from edge.client.rows import Row
from edge.client.series import AvailableSeries, Points, Series
from edge.client.subscription import Subscription
from edge.client.sync_iterator import SyncIterator, next_item
from edge.client.sync_reports import SyncReportFeed
from edge.protocol.series import USUAL_POINTS

T = TypeVar("T")

NotificationHandler = Callable[[Notification], object]

_log = logging.getLogger("edge.client")


class SyncSubscription(SyncIterator[Notification]):
    """Blocking iterator of notifications; it ends when it is closed."""

    def __init__(self, thread: LoopThread, subscription: Subscription) -> None:
        self._thread = thread
        self._subscription = subscription

    @property
    def results(self) -> list[Row]:
        """Newest result. It may be newer than the last notification read."""
        return self._thread.run(_results(self._subscription))

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the query's result, including those that no row binds."""
        return self._subscription.variables

    @property
    def spuid(self) -> str:
        """Identifier that the broker gave the subscription. It may change when the client reconnects."""
        return self._subscription.spuid

    def next(self, timeout: float | None = None) -> Notification | None:
        """Return the next notification; None when the subscription was closed.

        Raises `TimeoutError` after `timeout` seconds, `Refused` when the broker no longer serves the query, and the
        failures after which `Options.on_failure` ends the attempts.
        """
        return self._thread.run(next_item(self._subscription), timeout)

    def close(self) -> None:
        """Unsubscribe. No notification is delivered after that, and iterations end."""
        with contextlib.suppress(Closed):
            self._thread.run(self._subscription.close())


class SyncObservationFeed(SyncIterator[Observation]):
    """Blocking iterator of observations; it ends when it is closed."""

    def __init__(self, thread: LoopThread, feed: ObservationFeed) -> None:
        self._thread = thread
        self._feed = feed

    def next(self, timeout: float | None = None) -> Observation | None:
        """Return the next observation; None when closed. Raises as `SyncSubscription.next`."""
        return self._thread.run(next_item(self._feed), timeout)

    def close(self) -> None:
        """Unsubscribe."""
        with contextlib.suppress(Closed):
            self._thread.run(self._feed.close())


class SyncClient(Closing):
    """Blocking client. Use it with `with`, from any thread. Its connections live on its own thread.

    Each subscription has its own handler thread, so handlers may call the client and may block.
    """

    def __init__(
        self,
        endpoints: Endpoints | str | None = None,
        *,
        over: Over = "auto",
        options: Options | None = None,
    ) -> None:
        self._callback_thread = CallbackThread()
        self._client = Client(endpoints, over=over, options=self._callback_thread.with_callbacks(options or Options()))
        self._thread = LoopThread("edge-client")
        self._threads: list[threading.Thread] = []

    def close(self) -> None:
        """Close connections, subscriptions and threads. Waits for running handlers, except the calling one."""
        if not self._thread.closed:
            self._thread.run(self._client.close())
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join()
            self._thread.close()
            self._callback_thread.close()

    @property
    def connected(self) -> bool:
        """Whether the WebSocket is open."""
        return self._client.connected

    def query(self, sparql: str, *, default_graphs: Graphs = None, named_graphs: Graphs = None) -> Result:
        """See `Client.query`."""
        return self._run(self._client.query(sparql, default_graphs=default_graphs, named_graphs=named_graphs))

    def select(self, sparql: str, *, default_graphs: Graphs = None, named_graphs: Graphs = None) -> Rows:
        """See `Client.select`."""
        return self._run(self._client.select(sparql, default_graphs=default_graphs, named_graphs=named_graphs))

    def ask(self, sparql: str, *, default_graphs: Graphs = None, named_graphs: Graphs = None) -> bool:
        """See `Client.ask`."""
        return self._run(self._client.ask(sparql, default_graphs=default_graphs, named_graphs=named_graphs))

    def construct(self, sparql: str, *, default_graphs: Graphs = None, named_graphs: Graphs = None) -> list[ox.Triple]:
        """See `Client.construct`."""
        return self._run(self._client.construct(sparql, default_graphs=default_graphs, named_graphs=named_graphs))

    @overload
    def update(
        self,
        sparql: str,
        *,
        using: Graphs = ...,
        using_named: Graphs = ...,
        repeat: bool = ...,
    ) -> Updated: ...
    @overload
    def update(
        self,
        sparql: str,
        *,
        delay: timedelta | None = ...,
        at: datetime | None = ...,
        id: str | None = ...,
        using: Graphs = ...,
        using_named: Graphs = ...,
        repeat: bool = ...,
    ) -> Updated | Scheduled: ...
    def update(
        self,
        sparql: str,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        id: str | None = None,  # noqa: A002 - the protocol's name
        using: Graphs = None,
        using_named: Graphs = None,
        repeat: bool = False,
    ) -> Updated | Scheduled:
        """See `Client.update`."""
        return self._run(
            self._client.update(
                sparql,
                delay=delay,
                at=at,
                id=id,
                using=using,
                using_named=using_named,
                repeat=repeat,
            )
        )

    def subscribe(
        self,
        sparql: str,
        handler: NotificationHandler | None = None,
        *,
        default_graphs: Graphs = None,
        named_graphs: Graphs = None,
        resume: bool = True,
        restart: bool = False,
        timeout: float | None = None,
    ) -> SyncSubscription:
        """Subscribe as `Client.subscribe`; raise `TimeoutError` after `timeout` seconds without a first result.

        With `handler`, do not iterate: it is called with each notification on a thread for this subscription. Its
        exceptions are logged and do not stop further notifications.
        """
        work = self._client.subscribe(
            sparql, default_graphs=default_graphs, named_graphs=named_graphs, resume=resume, restart=restart
        )
        subscription = SyncSubscription(self._thread, self._thread.run(work, timeout))
        if handler is not None:
            thread = threading.Thread(
                target=_handle, args=(subscription, handler), name="edge-client-handler", daemon=True
            )
            self._threads = [*(other for other in self._threads if other.is_alive()), thread]
            thread.start()
        return subscription

    def timers(self, state: str | None = None) -> list[Timer]:
        """See `Client.timers`."""
        return self._run(self._client.timers(state))

    def timer(self, id: str) -> Timer:  # noqa: A002 - the protocol's name
        """See `Client.timer`."""
        return self._run(self._client.timer(id))

    def cancel(self, id: str) -> None:  # noqa: A002 - the protocol's name
        """See `Client.cancel`."""
        self._run(self._client.cancel(id))

    def series(
        self,
        *observations: str,
        start: datetime | str = "-24h",
        end: datetime | str = "now",
        points: Points = USUAL_POINTS,
    ) -> list[Series]:
        """See `Client.series`."""
        return self._run(self._client.series(*observations, start=start, end=end, points=points))

    def available_series(self) -> list[AvailableSeries]:
        """See `Client.available_series`."""
        return self._run(self._client.available_series())

    def observations(
        self,
        *,
        property: str | None = None,  # noqa: A002 - SOSA's term
        sensor: str | None = None,
        place: str | None = None,
    ) -> list[Observation]:
        """See `Client.observations`."""
        return self._run(self._client.observations(property=property, sensor=sensor, place=place))

    def follow(
        self,
        *,
        property: str | None = None,  # noqa: A002 - SOSA's term
        sensor: str | None = None,
        place: str | None = None,
        timeout: float | None = None,
    ) -> SyncObservationFeed:
        """See `Client.follow`. Raises `TimeoutError` after `timeout` seconds without a first result."""
        feed = self._client.follow(property=property, sensor=sensor, place=place)
        self._thread.run(feed.start(), timeout)
        return SyncObservationFeed(self._thread, feed)

    def reports(
        self, query: str, *, after: int | None = None, of: str | None = None, timeout: float | None = None
    ) -> SyncReportFeed:
        """See `Client.reports`. Raises `TimeoutError` if the gateway does not answer within `timeout` seconds."""
        feed = self._client.reports(query, after=after, of=of)
        self._thread.run(feed.__aenter__(), timeout)  # ends the feed if it does not begin in time
        return SyncReportFeed(self._thread, feed)

    def publish(
        self,
        value: Published,
        *,
        sensor: str,
        property: str,  # noqa: A002 - SOSA's term
        place: str | None = None,
        unit: str | None = None,
        time: datetime | None = None,
        observation: str | None = None,
        repeat: bool = False,
    ) -> Updated:
        """See `Client.publish`."""
        return self._run(
            self._client.publish(
                value,
                sensor=sensor,
                property=property,
                place=place,
                unit=unit,
                time=time,
                observation=observation,
                repeat=repeat,
            )
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)


def _handle(subscription: SyncSubscription, handler: NotificationHandler) -> None:
    try:
        for notification in subscription:
            try:
                handler(notification)
            except Exception as error:  # noqa: BLE001 - it is the application's code
                report(error, getattr(handler, "__name__", str(handler)), notification)
    except Closed:
        pass
    except ClientError as error:
        _log.error("a subscription ended: %s", error)


async def _results(subscription: Subscription) -> list[Row]:
    return subscription.results
