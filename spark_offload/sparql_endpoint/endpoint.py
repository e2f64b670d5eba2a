"""HTTP interface for SPARQL queries on the history. Error responses are problem details (RFC 9457).

GET, POST  /sparql   a query (SPARQL 1.1 Protocol, section 2.1), or without one the service description
GET        /health   whether Spark runs
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Final, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spark_offload import results
from spark_offload.errors import EngineRefused, GatewayRefused, HistoryError, QueryRefused, ResultTooLarge, TableRefused
from spark_offload.gateways import Gateways
from spark_offload.history import History
from spark_offload.http_problems import PROBLEM_HANDLERS, problem, refuse
from spark_offload.http_tokens import accepted, token_owner
from spark_offload.listen import Address
from spark_offload.services import unanswered
from spark_offload.spark_errors import error_text
from spark_offload.sparql.parsing import parse
from spark_offload.sparql.size import size
from spark_offload.sparql_endpoint.formats import ResultFormat, description, result_format
from spark_offload.sparql_endpoint.operations import QueryOperation, read_operation
from spark_offload.sparql_endpoint.output import QueryFailure, ResultOutput
from spark_offload.sparql_endpoint.query_engine import QueryEngine
from spark_offload.sparql_endpoint.query_run import QueryRun
from spark_offload.sparql_endpoint.result_response import RETRY, ResultResponse
from spark_offload.sparql_endpoint.slots import QuerySlots

PATH: Final = "/sparql"
_CANCELLED: Final = 5.0
"""Seconds that cancelled queries may take at shutdown."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """Limits of the endpoint."""

    seconds: float = 120.0
    """Time of a query, including the transfer of its result."""
    rows: int = 1_000_000
    """Solutions or triples of a result."""
    result_bytes: int = 1 << 30
    """Length of a result in bytes."""
    queries: int = 8
    """Queries at the same time."""


class SparqlEndpoint:
    """Request handlers of the endpoint."""

    def __init__(
        self,
        engine: QueryEngine,
        limits: EndpointLimits,
        clients: Gateways | None = None,
        origins: Iterable[str] = (),
    ) -> None:
        """Answer requests with the tokens of `clients`, or without them those that are sent on this machine.

        `origins`: origins of web pages that may query, or `*`.
        """
        self._engine = engine
        self._limits = limits
        self._clients = clients
        self._origins = tuple(origins)
        self._slots = QuerySlots(limits.queries, max(1, limits.queries // 2))
        self._threads = ThreadPoolExecutor(limits.queries, "sparql")
        self._runs: set[QueryRun] = set()
        self._endings: set[asyncio.Task[None]] = set()

    def app(self) -> Starlette:
        """Return the ASGI application."""
        cors = Middleware(
            CORSMiddleware,
            allow_origins=self._origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Accept", "Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
        return Starlette(
            routes=[
                Route(PATH, self.query, methods=["GET", "POST"]),
                Route("/health", self.health, methods=["GET"]),
            ],
            middleware=[cors] if self._origins else [],
            exception_handlers=PROBLEM_HANDLERS,
            lifespan=self._running,
        )

    async def query(self, request: Request) -> Response:
        """Answer a query, or describe the service."""
        client = await self._client(request)
        operation = await read_operation(request)
        accept = request.headers.get("accept")
        if operation is None:
            media_type, content = description(str(request.url), accept)
            return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache", "Vary": "Accept"})
        try:
            form = await asyncio.to_thread(_form, operation.text, self._engine.largest)
        except QueryRefused as refused:
            refuse(400, str(refused))
        wanted = result_format(form, accept)
        headers = {"Content-Type": wanted.content_type, "Cache-Control": "no-store", "Vary": "Accept"}
        if request.method == "HEAD":
            return Response(headers=headers)
        if reason := self._slots.take(client):
            refuse(503, f"{reason}: try again later", RETRY)
        run = self._started(operation, form, wanted, client)
        return ResultResponse(run, headers, self._limits.seconds, self._cancel)

    async def health(self, _request: Request) -> Response:
        """Return status 200 while Spark runs, else 503."""
        if await asyncio.to_thread(self._engine.alive):
            return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})
        return problem(503, "Spark has ended")

    def _started(self, operation: QueryOperation, form: str, wanted: ResultFormat, client: str | None) -> QueryRun:
        def write(history: History, output: ResultOutput) -> None:
            self._write(history, operation, form, wanted.name, output)

        output = ResultOutput(self._limits.result_bytes, xml=wanted.name == "xml")
        run = QueryRun(self._engine, output, write, explained)
        self._runs.add(run)

        def ended() -> None:
            self._runs.discard(run)
            self._slots.free(client)

        run.start(self._threads, ended)
        return run

    def _write(self, history: History, operation: QueryOperation, form: str, name: str, output: ResultOutput) -> None:
        """Evaluate a query, and write its result."""
        if operation.default_graphs or operation.named_graphs:
            history = history.with_dataset(operation.default_graphs, operation.named_graphs)
        written = cast("IO[bytes]", output)
        if form == "ASK":
            results.write_boolean(history.ask(operation.text), name, written)
        elif form == "SELECT":
            results.write_solutions(history.sparql(operation.text), name, written, self._limits.rows)
        else:
            results.write_graph(history.construct(operation.text), name, written, self._limits.rows)

    def _cancel(self, run: QueryRun) -> None:
        """Cancel a query. Its slot is free when its thread is."""
        task = asyncio.create_task(run.cancel())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _client(self, request: Request) -> str | None:
        """Authenticate a request. Returns the name of the client, or None on an endpoint without tokens.

        Such an endpoint listens on loopback, and requires that the client has sent the request there. A web page in a
        browser on this machine could send it, too, with a name of its own for the address (DNS rebinding).
        """
        if self._clients is not None:
            return await token_owner(request, self._clients)
        name = re.sub(r":[0-9]*$", "", request.headers.get("host", "")).strip("[]")
        if not Address(name, 0).loopback:
            refuse(
                421, f'Without tokens this endpoint answers only requests to localhost, not to "{name}": use --tokens'
            )
        origin = request.headers.get("origin")
        if origin is not None and origin not in self._origins and origin != str(request.base_url).rstrip("/"):
            refuse(403, f"Web pages from {origin} may not query this endpoint: allow them with --allow-origin")
        accepted(request, "")
        return None

    @contextlib.asynccontextmanager
    async def _running(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        for run in list(self._runs):
            self._cancel(run)
        if self._endings:
            await asyncio.wait(self._endings, timeout=_CANCELLED)


def _form(text: str, largest: int) -> str:
    """Return the form of a query. Raises `QueryRefused`, also for a size beyond `largest`."""
    query = parse(unanswered(text).text)
    if (found := size(query)) > largest:
        raise QueryRefused(
            f"the query is too large: it has {found} triple patterns, joins, unions and paths, and this endpoint plans"
            f" at most {largest}; divide it, or use edge-history query"
        )
    return query.form


def explained(error: BaseException) -> QueryFailure:
    """Return status and text for an error of a query."""
    if isinstance(error, ResultTooLarge):
        return QueryFailure(413, str(error))
    if isinstance(error, EngineRefused):
        return QueryFailure(501, str(error))
    if isinstance(error, QueryRefused):
        return QueryFailure(400, str(error))
    if isinstance(error, GatewayRefused):
        return QueryFailure(502, str(error))
    if isinstance(error, TableRefused):
        return QueryFailure(503, str(error))
    text = str(error) if isinstance(error, HistoryError) else error_text(error)
    if text:
        _log.error("a query failed: %s", text)
        return QueryFailure(500, f"Spark failed: {text}")
    _log.error("a query failed", exc_info=error)
    return QueryFailure(500, "The query failed; the cause is in the server's log")
