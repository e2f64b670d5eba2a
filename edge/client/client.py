"""Client of one broker for asyncio: queries, updates, subscriptions, timers. `SyncClient` is its blocking variant."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, Self, TypeVar, overload

import pyoxigraph as ox

from edge.client.answers import Scheduled, Timer, Updated, when
from edge.client.authorization import check_encrypted
from edge.client.connections import Connections
from edge.client.discovery import BrokerAddress, address_of, found_address, with_environment
from edge.client.endpoints import Endpoints
from edge.client.errors import (
    RETRY_LATER,
    UNAUTHORIZED,
    Closed,
    NoAnswer,
    NoConnection,
    Refused,
    Unsupported,
)
from edge.client.http_transport import HttpTransport
from edge.client.observations import Observation, ObservationFeed, Published, ordered, publication, selection
from edge.client.options import Options
from edge.client.remedies import trying_again
from edge.client.report_feed import ReportFeed
from edge.client.results import Result, Rows, of_form
from edge.client.series import AvailableSeries, Points, Series, series_parameters
from edge.client.subscription import Subscription
from edge.client.transport import RequestAttempt, RequestText, Transport
from edge.client.update_order import UpdateOrder
from edge.client.websocket_transport import WebSocketTransport
from edge.protocol.series import USUAL_POINTS

T = TypeVar("T")

Over = Literal["auto", "http", "websocket"]
"""Transport of queries and updates. `auto`: the WebSocket if the broker is a sepa-edge gateway, else HTTP."""

Graphs = Sequence[str] | None

_log = logging.getLogger("edge.client")


class Client:
    """Client of one broker. Use it with `async with`, on one event loop. It connects on first use and reconnects.

    Requests wait for an unreachable broker up to `options.timeout`. If the connection breaks, the client repeats
    queries, and updates with `repeat` or an id. It does not repeat other updates that may have arrived; see
    `NoAnswer.sent`. With `options.token`, unencrypted endpoints on other machines are refused (`ValueError`).
    """

    def __init__(
        self,
        endpoints: Endpoints | str | None = None,
        *,
        over: Over = "auto",
        options: Options | None = None,
        connections: Connections | None = None,
        address: BrokerAddress | None = None,
    ) -> None:
        """`endpoints`: all addresses, the URL of a gateway (which returns the others), or a host with default ports.

        Without them, the client uses `EDGE_URL`, else the gateway that runs on this machine, with the token of
        `EDGE_TOKEN`. `address` and `connections` are those of `Brokers`.
        """
        self._shared = connections is not None
        if connections is None:
            options = options or Options()
            connections = Connections(with_environment(options) if endpoints is None else options)
        self._connections = connections
        self._options = self._connections.options
        if address is None:
            address = found_address(self._options) if endpoints is None else address_of(endpoints, self._options)
        self._address = address
        for url in filter(connections.authorization.goes_to, self.endpoints.urls):
            check_encrypted(url)
        self._socket = self._connections.socket(self._address)
        self._websocket_transport = WebSocketTransport(self._socket.link)
        self._http_transport = HttpTransport(self._connections.http, self._address.endpoints)
        self._over = over
        self._gateway = False  # whether the broker is known to be a gateway
        self._asking = asyncio.Lock()  # only one request finds out
        self._update_order = UpdateOrder()
        self._failure = ""  # last logged reason: a reason is logged once, not at each attempt
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections and end subscriptions. Waiting requests raise `Closed`."""
        self._closed = True
        if not self._shared:
            await self._connections.close()

    @property
    def endpoints(self) -> Endpoints:
        """Addresses that are known now."""
        return self._address.endpoints()

    @property
    def connected(self) -> bool:
        """Whether the WebSocket is open. The first subscription, or request that uses the WebSocket, opens it."""
        return self._socket.link.connected

    async def query(self, sparql: str, *, default_graphs: Graphs = None, named_graphs: Graphs = None) -> Result:
        """Return the rows of a SELECT, the truth value of an ASK, or the triples of a CONSTRUCT or DESCRIBE."""
        text = RequestText(sparql, default_graphs, named_graphs)

        async def ask(attempt: RequestAttempt) -> Result:
            return await (await self._transport(attempt)).query(text, attempt)

        return await self._retry(ask, repeat=True)

    async def select(self, sparql: str, *, default_graphs: Graphs = None, named_graphs: Graphs = None) -> Rows:
        """Execute a SELECT; see `query`."""
        return of_form(Rows, await self.query(sparql, default_graphs=default_graphs, named_graphs=named_graphs))

    async def ask(self, sparql: str, *, default_graphs: Graphs = None, named_graphs: Graphs = None) -> bool:
        """Execute an ASK; see `query`."""
        return of_form(bool, await self.query(sparql, default_graphs=default_graphs, named_graphs=named_graphs))

    async def construct(
        self, sparql: str, *, default_graphs: Graphs = None, named_graphs: Graphs = None
    ) -> list[ox.Triple]:
        """Execute a CONSTRUCT or DESCRIBE; see `query`."""
        return of_form(list, await self.query(sparql, default_graphs=default_graphs, named_graphs=named_graphs))

    @overload
    async def update(
        self,
        sparql: str,
        *,
        using: Graphs = ...,
        using_named: Graphs = ...,
        repeat: bool = ...,
    ) -> Updated: ...
    @overload
    async def update(
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
    async def update(
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
        """Execute an update now, after `delay`, or `at` a time. A scheduled one may have an `id` to replace it by.

        Returns when the update is durable. `using` and `using_named` are the dataset of the WHERE clauses. `repeat`
        marks an idempotent update: the client sends it again until it is answered, without a time limit (use
        `asyncio.timeout` to set one). An update with an `id` replaces itself, so the client repeats it up to
        `options.timeout`.
        """
        text, due = RequestText(sparql, using, using_named), when(delay, at, id)
        deadline = math.inf if repeat else self._deadline()
        async with AsyncExitStack() as turn:  # send one after the other, so that updates keep their order
            await turn.enter_async_context(self._update_order.taken(deadline, lambda: self._failure))

            async def change(attempt: RequestAttempt) -> Updated | Scheduled:
                transport = await (self._timekeeper(attempt) if due else self._transport(attempt))
                if transport is self._websocket_transport:
                    await turn.aclose()  # the WebSocket keeps the order of concurrent requests
                return await transport.update(text, due, attempt)

            return await self._retry(change, deadline, repeat=repeat or id is not None)

    async def subscribe(
        self,
        sparql: str,
        *,
        default_graphs: Graphs = None,
        named_graphs: Graphs = None,
        resume: bool = True,
        restart: bool = False,
    ) -> Subscription:
        """Subscribe and return with the first result. Waits for an unreachable broker without a time limit.

        Use `asyncio.timeout` to set a limit. With `resume`, the broker keeps the subscription for a while if the
        connection is lost, and then sends only the missed changes. With `restart`, the notification after a
        reconnection has the whole result again and sequence 0, instead of the missed changes. Raises `Refused`,
        `Closed`, and the failures after which `options.on_failure` ends the attempts.
        """
        if self._closed:
            raise Closed("the client was closed")
        return await self._socket.subscribe(sparql, default_graphs, named_graphs, resume=resume, restart=restart)

    async def timers(self, state: str | None = None) -> list[Timer]:
        """Return delayed updates, waiting and finished; `state` selects those in one state."""

        async def look(attempt: RequestAttempt) -> list[Timer]:
            return await (await self._timekeeper(attempt)).timers(state, attempt)

        return await self._retry(look, repeat=True)

    async def timer(self, id: str) -> Timer:  # noqa: A002 - the protocol's name
        """Return one delayed update. Raises `Refused` (404)."""

        async def look(attempt: RequestAttempt) -> Timer:
            return await (await self._timekeeper(attempt)).timer(id, attempt)

        return await self._retry(look, repeat=True)

    async def cancel(self, id: str) -> None:  # noqa: A002 - the protocol's name
        """Cancel a waiting delayed update. Raises `Refused`."""

        async def take_back(attempt: RequestAttempt) -> None:
            await (await self._timekeeper(attempt)).cancel(id, attempt)

        await self._retry(take_back)

    async def series(
        self,
        *observations: str,
        start: datetime | str = "-24h",
        end: datetime | str = "now",
        points: Points = USUAL_POINTS,
    ) -> list[Series]:
        """Return the recent values of observations (IRIs) from a gateway, over HTTP.

        `start` and `end` are times with zone, or texts: ISO 8601, "now", or relative to now, such as "-30m" or "-7d".
        `points` is the maximum number of rows of a series, 1 to 10,000; "all" returns the rows as stored. Observations
        without recorded values that the client may read are not in the result; raises `Refused` (404) if none has any.
        """
        parameters = series_parameters(observations, start, end, points)

        async def look(attempt: RequestAttempt) -> list[Series]:
            return Series.several(await self._http_transport.series(parameters, attempt))

        return await self._retry(look, repeat=True)

    async def available_series(self) -> list[AvailableSeries]:
        """Return the observations that have recent values on a gateway."""

        async def look(attempt: RequestAttempt) -> list[AvailableSeries]:
            return AvailableSeries.several(await self._http_transport.series([], attempt))

        return await self._retry(look, repeat=True)

    async def observations(
        self,
        *,
        property: str | None = None,  # noqa: A002 - SOSA's term
        sensor: str | None = None,
        place: str | None = None,
    ) -> list[Observation]:
        """Return the newest values of observations, by time.

        `property`, `sensor` and `place` are IRIs, or the last part of IRIs, such as "temperature"; None: any.
        """
        return ordered(await self.select(selection(property, sensor, place)))

    def follow(
        self,
        *,
        property: str | None = None,  # noqa: A002 - SOSA's term
        sensor: str | None = None,
        place: str | None = None,
    ) -> ObservationFeed:
        """Return an iterator of observations: the values that hold now, and each change. Arguments of `observations`.

        Use `async with` to unsubscribe at the end. Waits and raises as `subscribe`.
        """
        query = selection(property, sensor, place)
        return ObservationFeed(lambda: self.subscribe(query))

    def reports(self, query: str, *, after: int | None = None, of: str | None = None) -> ReportFeed:
        """Return an iterator of the reports of a registered continuous query of a gateway, by its name.

        `after`: number of the last report that the application has. Those since then come first, as far as the gateway
        keeps them. Without it, the next report is the first. `of`: `ReportFeed.of` of the feed that had this report: if
        the query was ended and registered again since, all reports that are kept come. Use `async with` to end the
        iterator; see `ReportFeed`.
        """
        if self._closed:
            raise Closed("the client was closed")
        return self._connections.reports(self._address, query, after, of)

    async def publish(
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
        """Give an observation a value, and create it if it does not exist. All names are IRIs.

        `time` is the time of the value, with time zone (default: now). `observation` defaults to the IRI of the sensor
        and the last part of the property. Without `unit` and `place`, those in the graph stay. `repeat` as in
        `update`: publishing is idempotent. Raises `ValueError` and `TypeError` before anything is sent.
        """
        text = publication(
            value, sensor=sensor, property=property, place=place, unit=unit, time=time, observation=observation
        )
        return await self.update(text, repeat=repeat)

    async def _transport(self, attempt: RequestAttempt) -> Transport:
        if self._over == "websocket" or (self._over == "auto" and await self._is_gateway(attempt)):
            return self._websocket_transport
        return self._http_transport

    async def _timekeeper(self, attempt: RequestAttempt) -> Transport:
        """Return the transport for delayed updates.

        A broker that does not support timers would execute a delayed update at once.
        """
        if self._over != "websocket" and not await self._is_gateway(attempt):
            raise Unsupported(f"{self.endpoints.update} does not support delayed updates")
        return await self._transport(attempt)

    async def _is_gateway(self, attempt: RequestAttempt) -> bool:
        # Only a positive answer is kept: a gateway behind a proxy, or one that starts, may deny it at first.
        if not self._gateway:
            async with self._asking:  # asyncio locks are fair: requests keep their order
                if not self._gateway:
                    try:
                        self._gateway = await self._connections.http.is_gateway(
                            self.endpoints, attempt, any_socket=self._address.named_by_gateway
                        )
                    except NoAnswer as error:  # the request itself was not sent
                        raise NoAnswer(str(error), sent=False) from error
        return self._gateway

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._options.timeout

    async def _retry(
        self, attempt: Callable[[RequestAttempt], Awaitable[T]], deadline: float | None = None, *, repeat: bool = False
    ) -> T:
        """Retry until there is an answer, the deadline has passed, or a repetition is not allowed."""
        loop = asyncio.get_running_loop()
        authorization = self._connections.authorization
        deadline = self._deadline() if deadline is None else deadline
        renewed = False  # a rejected token is replaced once for each request, or the loop might not end
        waits = iter(self._options.backoff)
        while True:
            if self._closed:
                raise Closed("the client was closed")
            value: str | None = None
            failure: Refused | NoAnswer
            try:
                value = await authorization.value()
                answer = await attempt(RequestAttempt(value, deadline, repeat))
                self._failure = ""
                return answer
            except Refused as error:
                if error.status_code == UNAUTHORIZED and not renewed and authorization.refused(value):
                    renewed = True
                    continue
                if error.status_code != RETRY_LATER:
                    raise
                failure = error
            except NoConnection:  # `on_failure` has ended the attempts
                raise
            except NoAnswer as error:
                if error.sent and not repeat:
                    raise
                failure = error
            wait = next(waits)
            # Raise the reason of the last attempt, which says more than a timeout.
            if loop.time() + wait >= deadline:
                raise failure
            if str(failure) != self._failure:
                self._failure = str(failure)
                _log.warning("%s", trying_again(failure))
            await asyncio.sleep(wait)
