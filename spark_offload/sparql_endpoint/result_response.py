"""Response with the result of a query, which is sent while it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from spark_offload.http_problems import problem
from spark_offload.sparql_endpoint.output import QueryFailure
from spark_offload.sparql_endpoint.query_run import QueryRun

RETRY: Final = {"Retry-After": "5"}
"""Headers of status 503."""

_log = logging.getLogger(__name__)


class ResultResponse(Response):
    """Result of a query, or the problem if it fails before its first part.

    After the first part, an error or the time limit leaves the response incomplete: the server closes the connection
    without the last chunk (RFC 9112, section 7.1). A client that disconnects cancels the query.
    """

    def __init__(
        self, run: QueryRun, headers: Mapping[str, str], seconds: float, cancel: Callable[[QueryRun], None]
    ) -> None:
        """`seconds`: time limit for the query and the transfer of its result."""
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._run = run
        self._seconds = seconds
        self._cancel = cancel
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the result."""
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            failure = await self._outcome(sending, gone)
            if failure is None:
                return
            if self._begun:
                _log.warning("a result is incomplete: %s", failure.detail)
                return
            headers = RETRY if failure.status == 503 else {}
            await problem(failure.status, failure.detail, headers)(scope, receive, send)
        finally:
            sending.cancel()
            gone.cancel()
            self._cancel(self._run)

    async def _outcome(
        self, sending: asyncio.Task[QueryFailure | None], gone: asyncio.Task[None]
    ) -> QueryFailure | None:
        """Wait for the end. Returns the failure that must be reported to the client, or None."""
        try:
            await asyncio.wait((sending, gone), timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # by the server, which only waits some seconds at shutdown
            return QueryFailure(503, "The server is shutting down")
        if sending.done():
            return sending.result()
        if gone.done():
            return None
        return QueryFailure(408, f"The query took longer than {self._seconds:g} s (--query-timeout)")

    async def _send(self, send: Send) -> QueryFailure | None:
        """Send the result. Returns the failure that ended it."""
        while part := await self._run.part():
            if isinstance(part, QueryFailure):
                return part
            await self._begin(send)
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await self._begin(send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return None

    async def _begin(self, send: Send) -> None:
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
