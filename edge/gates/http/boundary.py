"""Common handling of all HTTP requests: cross-origin rules, errors as flat objects, metrics."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edge.gates.origins import ANY, host_allowed, origin_allowed
from edge.gates.refusals import log_refusal
from edge.listener import is_disconnect
from edge.metrics import Metrics
from edge.protocol.errors import (
    EdgeError,
    Forbidden,
    NotReady,
    TooManyRequests,
    Unauthorized,
    UnsupportedEncoding,
)

PRIMITIVE = "edge.primitive"
"""Key of the ASGI scope under which a route stores the kind of the request, for the metrics."""

ANSWERED_AT = "edge.answered_at"
"""Key of the ASGI scope for the time (`time.perf_counter`) at which a response without an end has begun."""

ABORT = "edge.abort"
"""Key of the ASGI scope for the function that closes the connection without sending the data that wait for it."""

GRAPH_STORE = "/graph-store"
"""Path of the graph store."""

INBOX = "/inbox"
"""Path of the inboxes for notifications."""

EVENT_STREAM = "/ldes/observations"
"""Path of the event stream of stored observations."""

_GATE = "http"
_PREFLIGHT_SECONDS = 600

logger = logging.getLogger(__name__)


def error_response(error: EdgeError, headers: dict[str, str] | None = None) -> Response:
    """Return the error as the flat JSON object of the protocol."""
    if isinstance(error, Unauthorized):
        headers = {**(headers or {}), "WWW-Authenticate": 'Bearer realm="sepa-edge"'}
    if isinstance(error, UnsupportedEncoding):
        headers = {**(headers or {}), "Accept-Encoding": "identity"}  # RFC 9110, section 12.5.3
    if isinstance(error, TooManyRequests) and error.retry_after is not None:
        headers = {**(headers or {}), "Retry-After": str(error.retry_after)}
    return Response(error.to_json(), error.status_code, headers, "application/json")


class Boundary:
    """ASGI middleware around all routes (Fetch standard for CORS, https://fetch.spec.whatwg.org/#http-cors-protocol).

    An `EdgeError` becomes a response. Other exceptions are internal errors: they are logged under an incident number,
    which the client receives with status 500, and the process continues.
    """

    def __init__(self, app: ASGIApp, *, origins: Sequence[str], hosts: Sequence[str], metrics: Metrics) -> None:
        self._app = app
        self._origins = origins
        self._hosts = hosts
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = time.perf_counter()
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        host = headers.get("host")
        refusal = _wrong_name(host) if not host_allowed(host, self._hosts) else None
        if refusal is None and not origin_allowed(origin, host, self._origins):
            refusal = _wrong_page()
        # A page of this gateway needs no permission to read its own files and answers.
        other = origin if refusal is None and origin != f"{scope['scheme']}://{host}" else None
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(MutableHeaders(raw=message["headers"]), other)
            await send(message)

        try:
            if refusal is not None:
                # Without the refusal, the browser would hide the response from the page, but the update would be
                # executed.
                raise refusal
            await self._answer(scope, receive, send_and_note, headers)
        except EdgeError as error:
            address = (scope.get("client") or ("",))[0]
            log_refusal(error, _GATE, address, f"{scope['method']} {scope['path']}")
            if status:
                raise  # as below
            await error_response(error)(scope, receive, send_and_note)
        except asyncio.CancelledError:  # the shutdown timeout of the server has passed
            if status:
                raise
            await error_response(_given_up())(scope, receive, send_and_note)
        except Exception as failure:  # no request may end the process
            if is_disconnect(failure) and status:
                return  # the client disconnected during the response, which is not an error
            internal = self._internal(failure)
            if status:
                raise  # part of the response was sent: only closing the connection can signal the error
            await error_response(internal)(scope, receive, send_and_note)
        finally:
            ended = scope.get(ANSWERED_AT) or time.perf_counter()
            self._metrics.answered(_GATE, scope.get(PRIMITIVE, "other"), status, ended - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        if scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            await self._preflight(scope["path"], headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _add_headers(self, headers: MutableHeaders, origin: str | None) -> None:
        headers["X-Content-Type-Options"] = "nosniff"
        # A shared cache must not return the response for one origin to pages of another (Fetch standard, CORS and HTTP
        # caches).
        if ANY not in self._origins:
            headers.add_vary_header("Origin")
        if origin is not None:
            headers["Access-Control-Allow-Origin"] = "*" if ANY in self._origins else origin
            # Without it, a page cannot read them, and so cannot make a conditional request or find an inbox.
            exposed = [name for name in ("ETag", "Link", "Location") if name in headers]
            if exposed:
                headers["Access-Control-Expose-Headers"] = ", ".join(exposed)

    def _preflight(self, path: str, headers: Headers) -> Response:
        others = (
            ", PUT, DELETE"
            if path.startswith(("/timers/", "/streams/", "/queries/", "/properties/", GRAPH_STORE, INBOX))
            else ""
        )
        if path == GRAPH_STORE:
            others += ", PATCH"
        answer = {
            "Access-Control-Allow-Methods": f"GET, HEAD, POST, OPTIONS{others}",
            "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "Accept, Content-Type"),
            "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
            "Vary": "Access-Control-Request-Headers",
        }
        # Private Network Access needs a listed origin: `*` alone must not open a local gateway to pages of the
        # internet.
        named = headers["origin"] in self._origins
        if named and headers.get("access-control-request-private-network") == "true":
            answer["Access-Control-Allow-Private-Network"] = "true"
        return Response(status_code=204, headers=answer)

    def _internal(self, failure: Exception) -> EdgeError:
        incident = uuid.uuid4().hex[:12]
        self._metrics.internal_errors.inc()
        logger.error("internal error %s", incident, exc_info=failure)
        return EdgeError(f"Internal error {incident}: see the gateway's log")


def _given_up() -> NotReady:
    return NotReady(
        "The gateway stopped before it had an answer; an update may have been carried out or not. Ask again in a few "
        "seconds"
    )


def _wrong_name(host: str | None) -> Forbidden:
    return Forbidden(f'This port does not answer to the name "{host}"; add it to http.hosts, or use localhost')


def _wrong_page() -> Forbidden:
    return Forbidden("Pages of this origin may not call the gateway; http.cors_origins of the settings lists who may")
