"""The WebSocket server: accepts connections and gives each a session."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import OPEN_GUARD, Guard
from edge.gates.http.streams import Streams
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.origins import host_allowed, origin_allowed, wrong_hosts
from edge.gates.rate_limit import RateLimit, peer_of
from edge.gates.resume import ResumeRegistry
from edge.gates.session import Session
from edge.gates.sessions import Sessions
from edge.gates.settings import QUERY_TIMEOUT, LimitSettings, SessionLimits, WsGateSettings
from edge.gates.ws.bounded import BoundedConnection
from edge.gates.ws.connection import WsConnection
from edge.gates.ws.report_follower import PATH as QUERIES
from edge.gates.ws.report_follower import ReportFollower
from edge.gates.ws.stream_source import PATH as STREAMS
from edge.gates.ws.stream_source import StreamSource
from edge.listener import AT_ONCE, HANDSHAKE, Listener, is_local
from edge.metrics import Metrics
from edge.protocol.errors import (
    EdgeError,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotReady,
    TooManyRequests,
    UpgradeRequired,
)

_GATE = "ws"
_JSON = "application/json"
_REFUSALS: Final[dict[int, type[EdgeError]]] = {426: UpgradeRequired, 503: NotReady}
_FAREWELL = (CloseCode.NORMAL_CLOSURE, CloseCode.NO_STATUS_RCVD)
"""Close codes of clients that will not return (RFC 6455, section 7.4.1); browsers send no code."""

_PATH: Final = "/subscribe"

logger = logging.getLogger(__name__)


class WsGate:
    """The gate for subscriptions. `start` and `stop` belong to one event loop."""

    def __init__(
        self,
        engine: SessionEngine,
        settings: WsGateSettings,
        metrics: Metrics,
        *,
        guard: Guard = OPEN_GUARD,
        rate_limit: RateLimit | None = None,
        resume_registry: ResumeRegistry | None = None,
        tls: ssl.SSLContext | None = None,
        query_timeout: float = QUERY_TIMEOUT,
        close_timeout: float = 2.0,
        streams: Callable[[], Streams | None] = lambda: None,
    ) -> None:
        """Without `resume_registry`, subscriptions cannot be resumed. Without `tls`: plain WebSockets.

        `close_timeout`: seconds for a client to answer a close frame, also when the gate stops.
        `streams`: returns the RDF streams; None without them. Raises `NotReady` while the gateway starts.
        """
        self._engine = engine
        self._settings = settings
        self._query_timeout = query_timeout
        self._close_timeout = close_timeout
        self._streams = streams
        self._metrics = metrics
        self._guard = guard
        self._rate_limit = rate_limit or RateLimit(LimitSettings())
        self._resume_registry = resume_registry
        self._tls = tls
        self._open = metrics.connections.labels(_GATE)
        self._server: Server | None = None

    async def start(self) -> int:
        """Listen. Returns the port. Raises `OSError` if the address is not available."""
        settings = self._settings
        sessions = Sessions(
            self._engine,
            LoopDispatcher(asyncio.get_running_loop()),
            self._metrics,
            guard=self._guard,
            gate=_GATE,
            limits=SessionLimits.of(settings, self._query_timeout),
            rate_limit=self._rate_limit,
            resume_registry=self._resume_registry,
        )
        listener = Listener(settings.host, settings.port, settings.max_connections, settings.max_connections_of_one)
        with listener.closed_on_failure():
            self._server = await serve(
                partial(self._serve, sessions),
                sock=listener,
                backlog=AT_ONCE,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE if self._tls is not None else None,
                process_request=partial(self._admit, listener),
                process_response=_in_our_form,
                create_connection=partial(  # type: ignore[arg-type]  # it is only called
                    BoundedConnection, rate_limit=self._rate_limit, max_message=2 * settings.max_message
                ),
                compression="deflate" if settings.compression else None,
                ping_interval=settings.ping_interval or None,
                ping_timeout=settings.ping_timeout,
                close_timeout=self._close_timeout,
                # The library closes the connection without an error on too large messages. Its limit is therefore
                # higher.
                max_size=2 * settings.max_message,
                server_header=None,
                logger=_quiet(),
            )
        return listener.port

    async def stop(self) -> None:
        """Notify all clients (close code 1001) and stop; takes at most twice the close timeout."""
        server = self._server
        if server is None:
            return
        self._server = None
        server.close()
        try:
            async with asyncio.timeout(self._close_timeout):
                await server.wait_closed()
        except TimeoutError:
            for socket in list(server.handlers):
                socket.transport.abort()
            await server.wait_closed()

    def _admit(self, listener: Listener, socket: ServerConnection, request: Request) -> Response | None:
        headers = request.headers
        if not listener.mark_known(socket.remote_address):
            socket.transport.abort()
            return _refusal(TooManyRequests("A newer connection has replaced this one; try again later"))
        wrong = wrong_hosts(headers.get_all("Host"))
        if wrong is not None:
            return _refusal(wrong)
        # The library's `get` raises an exception for a repeated header.
        if len(headers.get_all("Origin")) > 1:
            return _refusal(InvalidRequest('The request has several headers "Origin"; send one at most'))
        # With TLS, the certificate does not match the name of another server.
        if self._tls is None and not host_allowed(headers.get("Host"), self._settings.hosts):
            return _refusal(
                Forbidden(
                    f'This port does not answer to the name "{headers.get("Host")}"; add it to ws.hosts, or '
                    "use localhost"
                )
            )
        if not origin_allowed(headers.get("Origin"), headers.get("Host"), self._settings.origins):
            return _refusal(
                Forbidden("Pages of this origin may not subscribe; ws.origins of the settings lists who may")
            )
        # The number contains this connection already.
        if listener.complete > self._settings.max_connections:
            return _refusal(
                TooManyRequests(
                    f"All {self._settings.max_connections} connections (ws.max_connections) are in use; try again later"
                )
            )
        host, most = socket.remote_address[0], self._settings.max_connections_of_one
        if not is_local(host) and sum(other.remote_address[0] == host for other in socket.server.handlers) > most:
            reason = f"This address has {most} connections (ws.max_connections_of_one), which is the most it may have"
            return _refusal(TooManyRequests(f"{reason}; close some"))
        return None

    def _close_unauthorized(self, session: Session, connection: WsConnection) -> None:
        if self._guard is not OPEN_GUARD and not session.authorized:
            connection.close(CloseCode.POLICY_VIOLATION, "no message with a valid token came (ws.authorize_within)")

    def _paths(self) -> list[str]:
        return [_PATH] if self._guard is OPEN_GUARD else [_PATH, f"/secure{_PATH}"]

    async def _serve(self, sessions: Sessions, socket: ServerConnection) -> None:
        path = socket.request.path.partition("?")[0] if socket.request is not None else ""
        paths = self._paths()
        if path.startswith((STREAMS, QUERIES)):
            await self._serve_streams(sessions, socket, StreamSource if path.startswith(STREAMS) else ReportFollower)
            return
        if path not in paths:
            error = NotFound(f'There is nothing at "{path}"; subscribe at the path "{paths[-1]}"')
            await _dismiss(socket, error)
            return
        connection = self._connection(sessions, socket)
        session = Session(sessions, connection, peer_of(*socket.remote_address[:2]))
        self._open.inc()
        patience = asyncio.get_running_loop().call_later(
            self._settings.authorize_within, self._close_unauthorized, session, connection
        )
        try:
            async for message in socket:
                session.receive(message)
                await session.room()
                if isinstance(socket, BoundedConnection):
                    socket.account()
        except ConnectionClosed:
            pass  # any way to disconnect is fine
        finally:
            patience.cancel()
            self._open.dec()
            stopping = self._server is None  # during shutdown the server closes, whatever the client answers
            session.close(lost=stopping or socket.close_code not in _FAREWELL)
            await connection.closed()
            session.outgoing.release()

    async def _serve_streams(
        self, sessions: Sessions, socket: ServerConnection, kind: type[StreamSource | ReportFollower]
    ) -> None:
        connection = self._connection(sessions, socket)
        self._open.inc()
        try:
            await kind(sessions, socket, connection, self._streams).serve()
        finally:
            self._open.dec()
            await connection.closed()

    def _connection(self, sessions: Sessions, socket: ServerConnection) -> WsConnection:
        return WsConnection(
            socket,
            write_timeout=self._settings.ping_timeout,
            close_timeout=self._close_timeout,
            later=sessions.bridge.afterwards,
        )


async def _dismiss(socket: ServerConnection, error: EdgeError) -> None:
    try:
        await socket.send(error.to_json())
        await socket.close(CloseCode.POLICY_VIOLATION, "wrong path")
    except ConnectionClosed:
        pass


def _refusal(error: EdgeError) -> Response:
    body = json.dumps(error.to_message()).encode()
    headers = Headers({"Content-Type": _JSON, "Content-Length": str(len(body)), "Connection": "close"})
    return Response(error.status_code, HTTPStatus(error.status_code).phrase, headers, body)


def _in_our_form(socket: ServerConnection, request: Request, response: Response) -> Response | None:
    """Convert a refusal of the library to the flat JSON object of all errors."""
    del socket, request
    if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS or response.headers.get("Content-Type") == _JSON:
        return None
    reason = bytes(response.body or b"").decode(errors="replace").partition("\n")[0].rstrip(".")
    kind = _REFUSALS.get(response.status_code, InvalidRequest)
    refusal = _refusal(kind(f"{reason}; this port takes WebSocket connections (RFC 6455) and nothing else"))
    if "Upgrade" in response.headers:
        refusal.headers["Upgrade"] = response.headers["Upgrade"]  # RFC 9110, section 15.5.22
    return refusal


def _quiet() -> logging.Logger:
    """Return the logger of websockets, silenced: disconnects are normal, and protocol errors are reported to the
    client.
    """
    library = logging.getLogger("edge.gates.ws.library")
    library.setLevel(logging.CRITICAL)
    return library
