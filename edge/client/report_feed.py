"""Feed of the reports of one query: a WebSocket of its own, which reconnects."""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio import FIRST_COMPLETED
from collections import deque
from dataclasses import replace
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus, WebSocketException

from edge.client.authorization import Authorization
from edge.client.errors import (
    RETRY_LATER,
    UNAUTHORIZED,
    BadAnswer,
    ClientError,
    Closed,
    NoAnswer,
    NoConnection,
    Refused,
    Unsupported,
)
from edge.client.opening import Opening
from edge.client.options import Options
from edge.client.remedies import trying_again
from edge.client.reports import Report

_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses after which a later attempt may succeed, in addition to 5xx."""
_NUMBERS: Final = 10**18
"""Bound of the numbers of reports."""
_log = logging.getLogger("edge.client")


class ReportFeed:
    """Asynchronous iterator of the reports of a query, from the next one on, or those after a number.

    It connects with the first iteration, or at the begin of `async with`, which also ends it. It reconnects with
    back-off, and gets the reports that were made meanwhile, as far as the gateway keeps them. `Report.missed` counts
    the others. While `Options.waiting` reports wait for the application, it reads no further ones: the gateway merges
    those that wait there, or drops the oldest ones.
    """

    def __init__(
        self,
        name: str,
        url: str,
        options: Options,
        authorization: Authorization,
        running: set[ReportFeed],
        after: int | None = None,
        of: str | None = None,
    ) -> None:
        """`url`: of subscriptions to the same gateway. `running`: contains the feed while it is connected. `after`
        and `of`: see `Client.reports`.

        Raises `TypeError` or `ValueError` if the name is not text, or the number is not that of a report.
        """
        self.query = _checked(name)
        self._after = _checked_number(after)
        self.of = of
        """Identifier of the query once the feed has begun: another one with the same name has another one."""
        self._options = options
        self._authorization = authorization
        self._opening = Opening(url, options, authorization)
        self._running = running
        self._runner: asyncio.Task[None] | None = None
        self._first: asyncio.Future[int] | None = None
        """The number of the last report at the begin."""
        self._waiting: deque[Report] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._last = 0
        """Number of the last report that has arrived, or was made before the feed."""
        self._heard = False
        """Whether the gateway has begun to send reports on this connection."""
        self._sent: str | None = None
        """Value of the header `Authorization` of this connection."""
        self._renewed = False
        self._error: ClientError | None = None
        self._closed = False

    async def start(self) -> int:
        """Follow the query, once, until `close`. Returns the number of the last report before the feed.

        Waits for an unreachable gateway without a time limit. Raises `Refused`, for example if there is no such query
        (404) or it belongs to another client (403), `Unsupported` if the broker is not a gateway, and `Closed`.
        """
        if self._closed:
            raise Closed("the feed was closed")
        if self._first is None:
            self._first = asyncio.get_running_loop().create_future()
            self._running.add(self)
            self._runner = asyncio.create_task(self._run(), name=f"edge.client reports of {self.query}")
        # A cancelled caller leaves the connection to the other readers, and to later calls.
        return await asyncio.shield(self._first)

    async def close(self) -> None:
        """End the feed. Iterations end."""
        self._stop()
        if self._runner is not None:
            await asyncio.wait({self._runner})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Report:
        if self._closed:
            raise StopAsyncIteration
        await self.start()
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        self._taken.set()
        return self._waiting.popleft()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except asyncio.CancelledError:
            self._stop()  # there will be no `__aexit__`
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _stop(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._waiting.clear()
        self._arrived.set()
        if self._runner is not None:
            self._runner.cancel()
        if self._first is not None and not self._first.done():
            self._first.set_exception(Closed("the feed was closed"))
            self._first.exception()  # perhaps nobody waits for it
        self._running.discard(self)

    async def _run(self) -> None:
        try:
            failure = await self._follow()
        except Exception as error:  # noqa: BLE001 - readers would wait forever
            failure = BadAnswer(f'the reports of "{self.query}" cannot be read: {error!r}')
            failure.__cause__ = error
        self._fail(failure)

    async def _follow(self) -> ClientError:
        """Receive reports over one connection after another. Returns the failure that ends the feed."""
        waits = iter(self._options.backoff)
        reason = ""
        while True:
            await self._room()
            self._heard = False
            try:
                await self._connect()
            except Refused as error:
                renews = error.status_code == UNAUTHORIZED and not self._renewed
                if renews and self._authorization.refused(self._sent):
                    self._renewed = True
                    continue
                failure: ClientError = error
            except ClientError as error:
                failure = error
            if not (self._passes(failure) and self._opening.continues(failure)):
                return failure
            if self._heard:
                waits = iter(self._options.backoff)
            if str(failure) != reason:
                reason = str(failure)
                _log.warning("%s", trying_again(failure))
            await asyncio.sleep(next(waits))

    def _passes(self, failure: ClientError) -> bool:
        """Return whether a later attempt may succeed. A first refusal is final, unless the gateway starts."""
        if not isinstance(failure, Refused):
            return isinstance(failure, NoAnswer)
        status, begun = failure.status_code, self._first is not None and self._first.done()
        return status == RETRY_LATER or (begun and (status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR))

    async def _connect(self) -> None:
        """Receive reports until the connection ends. Raises the reason: `Refused`, `NoAnswer`, `Unsupported`."""
        opening, connected = self._opening, False
        await opening.locate()
        self._sent = await opening.authorization()
        # From the second connection on, the gateway sends what was reported since the connection before.
        begun = self._first is not None and self._first.done()
        url = _url(opening.url, self.query, self._last if begun else self._after, self.of)
        try:
            async with opening.connect(url, self._sent) as socket:
                connected = True
                opening.report(url, connected=True)
                async for text in socket:
                    self._receive(text, url)
                    await self._room(socket)
            raise NoConnection(url, "the gateway closed the connection", lost=True)
        except InvalidStatus as error:
            if error.response.status_code == HTTPStatus.NOT_FOUND:
                raise Unsupported(f"{url} does not send reports of queries: it is not a gateway") from None
            raise NoConnection(url, str(error), cause=error) from error
        except (OSError, WebSocketException) as error:
            if isinstance(error, NoAnswer):
                raise
            raise NoConnection(url, str(error) or type(error).__name__, cause=error, lost=connected) from error
        finally:
            if connected:
                opening.report(url, connected=False)

    async def _room(self, socket: ClientConnection | None = None) -> None:
        """Wait until the application has taken reports, or the connection has ended."""
        if len(self._waiting) < self._options.waiting:
            return
        closed = None if socket is None else asyncio.create_task(socket.wait_closed())
        try:
            while len(self._waiting) >= self._options.waiting and not (closed is not None and closed.done()):
                self._taken.clear()
                taken = asyncio.create_task(self._taken.wait())
                try:
                    await asyncio.wait({taken} if closed is None else {taken, closed}, return_when=FIRST_COMPLETED)
                finally:
                    taken.cancel()
        except asyncio.CancelledError:
            if socket is not None:
                socket.transport.abort()  # the answer to a close frame would come after what is not read
            raise
        finally:
            if closed is not None:
                closed.cancel()

    def _receive(self, text: str | bytes, url: str) -> None:
        """Process a message. Raises `Refused` if it is an error."""
        try:
            message = json.loads(text)
            if not isinstance(message, dict):
                raise BadAnswer(f"not an object: {text!r:.200}")
            if "error" in message:
                raise Refused.of(message)
            if "following" in message:
                self._begin(int(message["following"]["number"]), message["following"].get("of"))
            elif "report" in message:
                self._put(Report.of(message["report"]))
        except (BadAnswer, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            failure = BadAnswer(f"{url} sent an invalid message: {error}")
            if not self._opening.continues(failure):
                raise failure from error
            _log.warning("%s", failure)

    def _begin(self, number: int, of: str | None) -> None:
        self._heard, self._renewed = True, False
        assert self._first is not None  # noqa: S101
        # Another query with the name, or a lower number: the numbers have begun again.
        if not self._first.done() or of != self.of or number < self._last:
            self._last = number
        self.of = None if of is None else str(of)
        if not self._first.done():
            self._first.set_result(number)

    def _put(self, report: Report) -> None:
        missed = max(report.number - report.merged - self._last, 0)
        self._last = report.number
        self._waiting.append(replace(report, missed=missed))
        self._arrived.set()

    def _fail(self, error: ClientError) -> None:
        self._error = error
        self._arrived.set()
        if self._first is not None and not self._first.done():
            self._first.set_exception(error)
        self._running.discard(self)


def _checked(name: object) -> str:
    """Return the name of a query. Raises `TypeError` or `ValueError` if it is not text."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a query is a str, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name of a query has half a surrogate pair: {name!r}") from None
    return name


def _checked_number(number: object) -> int | None:
    """Return the number of a report. Raises `TypeError` or `ValueError` for other values."""
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"the number of a report is an int, not {type(number).__name__}")
    if not 0 <= number < _NUMBERS:
        raise ValueError(f"{number} is not the number of a report")
    return number


def _url(subscribe: str, name: str, after: int | None, of: str | None) -> str:
    """Return the URL of the reports of a query. `subscribe`: that of subscriptions. Others: see `Client.reports`."""
    parts = urlsplit(subscribe)
    base = parts.path.removesuffix("/subscribe").removesuffix("/secure")
    url = f"{parts.scheme}://{parts.netloc}{base}/queries/{quote(name, safe='')}"
    if after is None:
        return url
    return f"{url}?after={after}" if of is None else f"{url}?after={after}&of={quote(of, safe='')}"
