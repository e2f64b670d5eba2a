"""Routes of the HTTP gate."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from edge.engine.requests import Answer, QueryRequest, UpdateRequest
from edge.gates.engine_interface import OperatedEngine
from edge.gates.guard import Guard, TokenIssuer, check, check_timers
from edge.gates.http import oauth
from edge.gates.http.body import CHARGE
from edge.gates.http.boundary import EVENT_STREAM, GRAPH_STORE, INBOX, PRIMITIVE, Boundary, error_response
from edge.gates.http.clients import ClientResources
from edge.gates.http.description import openapi
from edge.gates.http.documents import DocumentResources
from edge.gates.http.engine_future import not_ready, result, shielded
from edge.gates.http.engine_resource import read_cost, read_processing, shown, subscriptions
from edge.gates.http.event_stream import EventStreamResource
from edge.gates.http.formats import check_acceptable, serialize
from edge.gates.http.graph_store import GraphStore
from edge.gates.http.inbox import Inboxes
from edge.gates.http.knowledge import read_knowledge
from edge.gates.http.line_breaks import accept_line_breaks
from edge.gates.http.maintenance import MaintenanceResources
from edge.gates.http.mappings import MappingResources
from edge.gates.http.page import FILES, VERSIONED, page_response
from edge.gates.http.profiles import read_profile_request
from edge.gates.http.queries import QUERIES
from edge.gates.http.rules import RuleResources
from edge.gates.http.series import CSV, listed_as_csv, listed_as_json, read_format, read_series, to_csv, to_json
from edge.gates.http.service_description import GRAPHS, HTML, description, wanted
from edge.gates.http.sparql import Operation, Primitive, read_operation
from edge.gates.http.streams import StreamResources
from edge.gates.http.system_updates import SystemUpdateResources
from edge.gates.http.things import SEARCH, SEARCH_FORMATS, WELL_KNOWN, PropertyObservers, ThingResources
from edge.gates.http.timers import read_client, read_listing
from edge.gates.http.views import Views
from edge.gates.rate_limit import RateLimit, client_of, peer_of
from edge.gates.settings import QUERY_TIMEOUT, HttpGateSettings
from edge.metrics import Metrics
from edge.protocol.access import Access
from edge.protocol.due_time import When, check_id
from edge.protocol.errors import (
    EdgeError,
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    MissingAuthorization,
    NotFound,
    NotReady,
    RequestTimeout,
    ResultTooLarge,
)
from edge.protocol.series import MOST_OBSERVATIONS

_log = logging.getLogger(__name__)

_Endpoint = Callable[[Request], Awaitable[Response]]
_ReadOperation = Callable[[Request, list[Primitive], HttpGateSettings], Awaitable[Operation]]

_FORWARDING_HEADERS = {"origin", "forwarded", "x-forwarded-for", "x-real-ip", "via"}
"""Headers that mark a request as forwarded by a proxy, or as sent by a page of another origin."""


_PLACE = re.compile(r"\{(\w+)(?::path)?\}")
"""A parameter in the path of a route."""

_SERIES_AT_ONCE = 2
"""Requests for recent values that are read at the same time. Others wait, so that updates get the processor."""


class Routes:
    """The endpoints over one engine."""

    def __init__(
        self,
        engine: OperatedEngine,
        settings: HttpGateSettings,
        metrics: Metrics,
        views: Views,
        guard: Guard,
        rate_limit: RateLimit,
        authority: TokenIssuer | None,
        query_timeout: float = QUERY_TIMEOUT,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._views = views
        self._guard = guard
        self._rate_limit = rate_limit
        self._authority = authority
        self._query_timeout = query_timeout
        self._resources = (
            ClientResources(views.clients, settings, self._administrator),
            MaintenanceResources(views.maintenance, settings, self._administrator),
            SystemUpdateResources(views.system_updates, settings, self._administrator),
            DocumentResources(QUERIES, views.queries, settings, self._administrator),
            MappingResources(views.mappings, settings, self._administrator),
            RuleResources(views.rules, settings, self._administrator),
        )
        self._series_slots = asyncio.Semaphore(_SERIES_AT_ONCE)
        self._profile_slot = asyncio.Semaphore(1)
        self._observers = PropertyObservers(engine, guard, rate_limit, metrics, settings.max_connections // 2)
        self._things = ThingResources(
            engine,
            settings,
            views.settable,
            self._access,
            self._recheck,
            query_timeout,
            self._observers,
            secured=authority is not None,
        )

    def close(self) -> None:
        """End responses that have no end of their own: the gate stops."""
        self._observers.close()

    def app(self) -> ASGIApp:
        """Return the ASGI application."""
        accept_line_breaks()
        routes = [
            _route("/query", "query", self._sparql(["query"]), ["GET", "POST"]),
            _route("/update", "update", self._sparql(["update"]), ["POST"]),
            _route("/history", "update", self._sparql(["update"], to_ledger=True), ["POST"]),
            _route("/sparql", "sparql", self._described(self._sparql(["query", "update"])), ["GET", "POST"]),
            _route("/kb", "sparql", self._sparql(["query", "update"], read=read_knowledge), ["GET", "POST"]),
            _route(GRAPH_STORE, "graph", self._when_ready(self._graph_store), GraphStore.METHODS, GraphStore.OPTIONS),
            _route(INBOX, "graph", self._when_ready(self._inbox), Inboxes.METHODS, Inboxes.OPTIONS),
            _route("/timers", "timers", self._timers, ["GET"]),
            _route("/timers/{id:path}", "timer", self._timer, ["GET", "PUT", "DELETE"]),
            _route("/explain", "explain", self._explain, ["GET", "POST"]),
            _route("/health", "health", self._health, ["GET"]),
            _route("/metrics", "metrics", self._administrators_only(self._show_metrics), ["GET"]),
            _route("/api/engine", "api", self._administrators_only(self._operate), ["GET", "PUT"]),
            _route("/api/subscriptions", "api", self._administrators_only(self._subscriptions), ["GET"]),
            _route("/api/endpoints", "api", self._shown(lambda: dict(self._views.endpoints())), ["GET"]),
            _route("/api/access", "api", self._own_access, ["GET"]),
            _route("/api/profile", "api", self._profile, ["POST"]),
            _route("/api/unmapped", "api", self._administrators_only(self._unmapped), ["GET"]),
            _route("/api/bad-values", "api", self._administrators_only(self._shown(self._views.bad_values)), ["GET"]),
            _route("/api/series", "query", self._series, ["GET"]),
            _route(EVENT_STREAM, "query", self._when_ready(self._event_stream), ["GET"]),
            _route(EVENT_STREAM + "/{node}", "query", self._when_ready(self._event_stream), ["GET"]),
            _route("/api/settable", "api", self._settable, ["GET"]),
            _route("/api/outbox", "api", self._administrators_only(self._outbox), ["GET", "POST"]),
            _route("/api/openapi.json", "api", self._describe, ["GET"]),
            *(
                _route(path, "api", self._administrators_only(endpoint), methods)
                for resources in self._resources
                for path, endpoint, methods in resources.routes()
            ),
            *(
                _route(path, "streams", self._when_ready(endpoint), methods)
                for path, endpoint, methods in StreamResources(
                    self._views.streams, self._settings, self._access, self._recheck
                ).routes()
            ),
            *(
                _route(path, "query", self._when_ready(endpoint), methods)
                for path, endpoint, methods in self._things.routes()
            ),
            _route(WELL_KNOWN, "api", self._things.directory, ["GET"]),
            _route(SEARCH, "query", self._sparql(["query"], preferred=SEARCH_FORMATS), ["GET", "POST"]),
            *(_route(path, "page", self._page, ["GET"]) for path in (*FILES, VERSIONED)),
            *(self._secured(self._authority) if self._authority is not None else []),
        ]
        settings = self._settings
        boundary = Middleware(Boundary, origins=settings.cors_origins, hosts=settings.hosts, metrics=self._metrics)
        app = Starlette(routes=routes, middleware=[boundary], exception_handlers={HTTPException: self._refuse})
        app.router.redirect_slashes = False
        return app

    def _secured(self, authority: TokenIssuer) -> list[Route]:
        """Return the routes that exist only with security."""

        async def register(request: Request) -> Response:
            self._rate_limit.authenticate(_peer(request), time.monotonic())
            return await oauth.register(request, authority, self._settings)

        async def token(request: Request) -> Response:
            self._rate_limit.authenticate(_peer(request), time.monotonic())
            return await oauth.token(request, authority)

        async def enrolment(request: Request) -> Response:
            self._rate_limit.authenticate(_peer(request), time.monotonic())
            # Browsers mark requests of pages from another origin, and proxies mark forwarded requests.
            near = "" if request.client is None or _FORWARDING_HEADERS & set(request.headers) else request.client.host
            here = (request.scope.get("server") or ("",))[0]
            result = {"state": "none"} if self._views.enrolment is None else self._views.enrolment(near, here)
            return _json(result, 200, {"Cache-Control": "no-store"})

        return [
            _route("/secure/query", "query", self._sparql(["query"]), ["GET", "POST"]),
            _route("/secure/update", "update", self._sparql(["update"]), ["POST"]),
            _route("/secure/history", "update", self._sparql(["update"], to_ledger=True), ["POST"]),
            _route("/oauth/register", "register", register, ["POST"]),
            _route("/oauth/token", "token", token, ["GET", "POST"]),
            _route("/api/enrolment", "api", enrolment, ["GET"]),
        ]

    def _access(self, request: Request) -> Access:
        """Return the client's permissions, and count the request against its rate limit, even if it is
        unauthenticated.

        Raises `Unauthorized`, `TooManyRequests`.
        """
        try:
            access = self._guard.access(request.headers.get("authorization"))
        except EdgeError:
            self._rate_limit.request(_peer(request), time.monotonic())
            raise
        client = client_of(access, _peer(request))
        self._rate_limit.request(client, time.monotonic())
        request.scope[CHARGE] = self._rate_limit.bytes.charge(client)
        return access

    def _recheck(self, request: Request) -> Access:
        """Check the permissions again after the body was read: they may have ended meanwhile."""
        return self._guard.access(request.headers.get("authorization"))

    def _administrator(self, request: Request) -> Access:
        """Return the permissions of an administrator after the body was read."""
        check(access := self._recheck(request), "administer")
        return access

    def _administrators_only(self, endpoint: _Endpoint) -> _Endpoint:
        """Restrict an endpoint to administrators."""

        async def guarded(request: Request) -> Response:
            check(access := self._access(request), "administer")
            response = await endpoint(request)
            # Without security, the client has no name.
            if access.client and request.method not in ("GET", "HEAD"):
                facts = {"by": access.client, "request": f"{request.method} {request.url.path}"[:200]}
                _log.info("access.administered", extra={**facts, "status": response.status_code})
            return response

        return guarded

    def _check_ready(self) -> None:
        if not self._views.ready():
            raise not_ready()

    def _when_ready(self, endpoint: _Endpoint) -> _Endpoint:
        """Refuse requests while the gateway starts."""

        async def guarded(request: Request) -> Response:
            self._check_ready()
            return await endpoint(request)

        return guarded

    def _sparql(
        self,
        accepted: list[Primitive],
        *,
        to_ledger: bool = False,
        read: _ReadOperation = read_operation,
        preferred: str | None = None,
    ) -> _Endpoint:
        """Return an endpoint for SPARQL operations. With `to_ledger`, updates go to the history, not the graph.

        `preferred`: formats for clients that accept any, as an Accept header.
        """

        async def endpoint(request: Request) -> Response:
            self._check_ready()
            self._access(request)
            operation = await read(request, accepted, self._settings)
            access = self._recheck(request)
            request.scope[PRIMITIVE] = operation.primitive
            check(access, operation.primitive)
            who = client_of(access, _peer(request))
            if operation.primitive == "update":
                return await self._update(operation, access, who, to_ledger=to_ledger)
            accept = request.headers.get("accept", "").strip()
            return await self._query(operation, access, who, preferred if accept in ("", "*/*") else accept)

        return endpoint

    async def _graph_store(self, request: Request) -> Response:
        access = self._access(request)
        who = client_of(access, _peer(request))
        store = GraphStore(self._engine, self._settings, self._query_timeout, who)
        return await store.serve(request, access, self._recheck)

    async def _inbox(self, request: Request) -> Response:
        access = self._access(request)
        who = client_of(access, _peer(request))
        inboxes = Inboxes(self._engine, self._settings, self._query_timeout, who)
        return await inboxes.serve(request, access, self._recheck)

    def _described(self, endpoint: _Endpoint) -> _Endpoint:
        """Answer a GET without parameters with the service description, or in a browser with the console."""

        async def described(request: Request) -> Response:
            if request.method not in ("GET", "HEAD") or request.scope["query_string"]:
                return await endpoint(request)
            self._check_ready()
            check(access := self._access(request), "query")
            media_type = wanted(request.headers.get("accept"))
            if media_type == HTML:
                return Response(status_code=303, headers={"Location": "/#console", "Vary": "Accept"})

            def read(answer: Answer) -> list[str]:
                return [row[0].value for row in answer]  # type: ignore[union-attr]  # the rows of a SELECT

            who = client_of(access, _peer(request))
            async with asyncio.timeout(self._query_timeout):
                graphs = await result(self._engine.read(QueryRequest(GRAPHS, access=access, source=who), read))
            # The vocabulary of service descriptions has no term for a graph store.
            graph_store = str(request.url.replace(path=GRAPH_STORE))
            endpoints, features = {**self._views.endpoints(), "graph-store": graph_store}, self._views.features
            if self._views.recent is not None:
                endpoints["event-stream"] = str(request.url.replace(path=EVENT_STREAM))
            content = description(str(request.url), graphs, features, endpoints, media_type)
            return Response(content, headers={"Content-Type": media_type, "Vary": "Accept"})

        return described

    async def _query(self, operation: Operation, access: Access, who: str, accept: str | None) -> Response:
        check_acceptable(accept)
        timeout = self._query_timeout

        def read(answer: Answer) -> tuple[str, bytes]:
            return serialize(answer, accept, self._settings.max_result, timeout)

        try:
            async with asyncio.timeout(timeout):
                request = QueryRequest(operation.text, operation.dataset, access, who)
                media_type, content = await result(self._engine.read(request, read))
        except TimeoutError:
            raise RequestTimeout(
                f"The query took longer than {timeout:g} s, the limit engine.query_timeout; ask for less"
            ) from None
        return Response(content, headers={"Content-Type": media_type, "Vary": "Accept"})

    async def _update(self, operation: Operation, access: Access, who: str, *, to_ledger: bool) -> Response:
        request = UpdateRequest(operation.text, operation.dataset, access=access, source=who, to_ledger=to_ledger)
        if operation.when is not None:
            return await self._schedule(request, operation.when, operation.name)
        (outcome,) = await shielded(self._engine.update([request]))
        text = f"Update done: {outcome.added} added, {outcome.removed} removed"
        counts = {"added": outcome.added, "removed": outcome.removed}
        if outcome.entries:
            text += f", {outcome.entries} stored"
            counts["stored"] = outcome.entries
        if operation.brief:
            return _json(text)
        return _json({"response": {"body": text, "isJson": False}, **counts})

    async def _schedule(self, request: UpdateRequest, when: When, name: str | None) -> Response:
        scheduled = await shielded(self._engine.schedule(request, when, name))
        location = f"/timers/{quote(scheduled.id, safe='')}"
        return _json({"scheduled": scheduled.to_message()}, 202, {"Location": location})

    async def _timers(self, request: Request) -> Response:
        self._check_ready()
        access = self._access(request)
        check_timers(access)
        state, limit = read_listing(request)
        timers = await result(self._engine.timers(state, limit, access))
        return _json({"timers": [timer.to_message() for timer in timers]})

    async def _timer(self, request: Request) -> Response:
        self._check_ready()
        access = self._access(request)
        name: str = request.path_params["id"]
        client = read_client(request)
        if request.method == "PUT":
            check(access, "update")
            if client not in (None, access.client):
                raise Forbidden("A client cannot schedule updates for another client")
            operation = await read_operation(request, ["update"], self._settings)
            check(access := self._recheck(request), "update")
            if operation.when is None:
                raise InvalidRequest('A delayed update needs the parameter "delay" or "at"')
            if operation.name not in (None, name):
                raise InvalidRequest('The id is in the path; leave out the parameter "id"')
            try:
                check_id(name)
            except ValueError as error:
                raise InvalidRequest(str(error)) from None
            who = client_of(access, _peer(request))
            update = UpdateRequest(operation.text, operation.dataset, access=access, source=who)
            return await self._schedule(update, operation.when, name)
        check_timers(access)
        if request.method == "DELETE":
            await shielded(self._engine.cancel(name, access, client))
            return _json({"cancelled": {"id": name}})
        return _json({"timer": (await result(self._engine.timer(name, access, client))).to_message()})

    async def _explain(self, request: Request) -> Response:
        self._check_ready()
        check(self._access(request), "administer")
        operation = await read_operation(request, ["query"], self._settings)
        check(access := self._recheck(request), "administer")
        streams = self._views.streams() if "register" in operation.text.lower() else None
        if streams is not None and streams.registers(operation.text):
            return _json(await streams.explain(operation.text, access))
        timeout = self._query_timeout
        try:
            async with asyncio.timeout(timeout):
                found = await result(self._engine.explain(QueryRequest(operation.text, operation.dataset, access)))
        except TimeoutError:
            raise RequestTimeout(
                f"The engine was busy for longer than {timeout:g} s, the limit engine.query_timeout; try again later"
            ) from None
        return _json(asdict(found))

    async def _health(self, request: Request) -> Response:
        operates, fault = self._operates(request), self._views.fault()
        if fault:
            raise NotReady(
                fault if operates else "The gateway is degraded. Authenticate as an administrator to see the reason"
            )
        self._check_ready()
        return _json({"status": "ready", **(self._views.health() if operates else self._views.open_health())})

    def _operates(self, request: Request) -> bool:
        """Whether the client is an administrator. A request without a token is not; an invalid token raises
        `Unauthorized`.
        """
        try:
            access = self._access(request) if "authorization" in request.headers else self._guard.access(None)
        except MissingAuthorization:
            return False
        return access.operates

    async def _show_metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _operate(self, request: Request) -> Response:
        self._check_ready()
        if request.method == "PUT":
            wanted = await read_processing(request, self._settings)
            check(self._recheck(request), "administer")
            self._engine.processing = wanted
        return _json(shown(self._engine))

    async def _subscriptions(self, request: Request) -> Response:
        self._check_ready()
        cost, most = read_cost(request.query_params)
        return _json(await asyncio.to_thread(subscriptions, self._engine, cost, most))

    async def _outbox(self, request: Request) -> Response:
        self._check_ready()
        return _json(await self._views.ship() if request.method == "POST" else self._views.outbox())

    async def _series(self, request: Request) -> Response:
        self._check_ready()
        check(access := self._access(request), "query")
        recent = self._views.recent
        if recent is None:
            raise NotFound("The gateway keeps no recent values: the setting recent.enabled is false")
        wanted, media_type = read_series(request, time.time_ns() // 1000), read_format(request)
        timeout = self._query_timeout
        deadline = time.monotonic() + timeout

        def read() -> bytes:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RequestTimeout(f"The request waited for {timeout:g} s behind others; try again later")
            if wanted is None:
                extents = recent.available(access, left)
                return listed_as_csv(extents) if media_type == CSV else listed_as_json(extents)
            results = recent.series(wanted, access, left)
            return to_csv(results) if media_type == CSV else to_json(wanted, results)

        async with self._series_slots:
            content = await asyncio.to_thread(read)
        if len(content) > self._settings.max_result:
            raise ResultTooLarge(
                f"The response has {len(content):,} bytes, and http.max_result is {self._settings.max_result:,}; ask "
                "for a shorter period, fewer observations or fewer points"
            )
        return Response(content, headers={"Content-Type": f"{media_type}; charset=utf-8", "Vary": "Accept"})

    async def _event_stream(self, request: Request) -> Response:
        check(access := self._access(request), "query")
        resource = EventStreamResource(self._views.recent, self._query_timeout, self._series_slots)
        return await resource.serve(request, access)

    async def _settable(self, request: Request) -> Response:
        check(self._access(request), "update")
        observations = request.query_params.getlist("observation")
        if not 0 < len(observations) <= MOST_OBSERVATIONS:
            raise InvalidRequest(f'Name 1 to {MOST_OBSERVATIONS} observations: "observation" with an IRI')
        return _json(await asyncio.to_thread(self._views.settable, observations))

    async def _unmapped(self, request: Request) -> Response:
        topic = request.query_params.get("topic")
        if topic is None:
            return _json(self._views.unmapped())
        found = self._views.unmapped_topic(topic)
        if found is None:
            raise NotFound("No message of this topic waits for a mapping; /api/unmapped lists the topics")
        return _json(found)

    def _shown(self, view: Callable[[], object]) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            return _json(view())

        return endpoint

    async def _profile(self, request: Request) -> Response:
        self._access(request)
        wanted = await read_profile_request(request, self._settings)
        self._recheck(request)
        read = self._views.profiles
        if read is None:
            raise NotFound("This gate runs without a gateway around it")
        async with self._profile_slot:
            return _json(await asyncio.to_thread(read, wanted))

    async def _own_access(self, request: Request) -> Response:
        return _json(_access_to_message(self._access(request)))

    async def _describe(self, request: Request) -> Response:
        return Response(openapi(), media_type="application/json")

    async def _refuse(self, request: Request, exception: Exception) -> Response:
        """Answer requests that the framework rejects: unknown path, or unsupported method."""
        headers = dict(getattr(exception, "headers", None) or {})
        if getattr(exception, "status_code", 500) == MethodNotAllowed.status_code:
            allow = ", ".join(sorted(headers.get("Allow", "").split(", ")))
            error: EdgeError = MethodNotAllowed(f"{request.method} does not apply to {request.url.path}; use {allow}")
            return error_response(error, {"Allow": allow})
        known = (route.path for route in request.app.routes if isinstance(route, Route))
        # Of the page's files only the page itself: nobody requests the others by hand.
        paths = ", ".join(
            sorted(
                _PLACE.sub(lambda place: place[1].upper().replace("IDENTITY", "NAME"), path)
                for path in known
                if path == "/" or path not in {*FILES, VERSIONED}
            )
        )
        return error_response(NotFound(f'There is nothing at "{request.url.path}"; the paths are {paths}'))

    async def _page(self, request: Request) -> Response:
        return page_response(request, self._views.endpoints().get("wss" if request.url.scheme == "https" else "ws"))


def _access_to_message(access: Access) -> dict[str, object]:
    """Return permissions as JSON. Null means that they are not limited."""
    limits = {name: getattr(access, name) for name in ("read", "write", "publish", "receive")}
    expires = None if access.expires is None else datetime.fromtimestamp(access.expires // 1_000_000, UTC)
    return {
        "client": access.client,
        "actions": sorted(access.actions),
        **{name: None if limit is None else sorted(limit) for name, limit in limits.items()},
        "priority": access.priority,
        "expires": expires and expires.isoformat(),
    }


def _peer(request: Request) -> str:
    """Return the identity of the connection for rate limits."""
    return peer_of(*request.client) if request.client is not None else ""


def _route(
    path: str, primitive: str, endpoint: _Endpoint, methods: list[str], options: Mapping[str, str] | None = None
) -> Route:
    """Return a route. `options`: headers of answers to OPTIONS in addition to `Allow`."""
    allow = ", ".join(_with_head(methods))

    async def serve(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allow, **(options or {})})
        request.scope[PRIMITIVE] = primitive
        return await endpoint(request)

    return Route(path, serve, methods=[*methods, "OPTIONS"])


def _with_head(methods: list[str]) -> list[str]:
    return sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])})


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(value, ensure_ascii=False, allow_nan=False), status, headers, "application/json")
