"""Serve the gateway's web application to Home Assistant's ingress.

The gateway accepts local connections only. Home Assistant has authenticated the user and forwards the request, from one
address, to this server. It passes requests to the HTTP port, and WebSockets to the port for subscriptions, as a client
on the same machine. The page finds the latter by a path relative to its own, because the path of ingress varies.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Final

sys.path.insert(0, "/usr/lib/sepa-edge")

import httpx
import uvicorn
import websockets
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

SUPERVISOR: Final = "172.30.32.2"
"""The only address that may connect (developers.home-assistant.io, "Presenting your add-on")."""
PORT: Final = 8099
METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# Origin is that of Home Assistant. Its session cookie is SameSite=Strict, so other sites cannot send requests here.
_NOT_SENT: Final = frozenset({"host", "origin", "referer", "connection", "upgrade", "cookie", "x-forwarded-for"})
_NOT_RETURNED: Final = frozenset({"connection", "transfer-encoding", "keep-alive"})


def application(http: str, ws: str, allowed: str = SUPERVISOR) -> ASGIApp:
    """Return the server. `http` and `ws`: the ports of the gateway; `allowed`: address of the only client."""
    client = httpx.AsyncClient(base_url=http, timeout=None, trust_env=False)

    async def forward(request: Request) -> Response:
        headers = [(name, value) for name, value in request.headers.raw if name.decode().lower() not in _NOT_SENT]
        target = httpx.URL(http).copy_with(raw_path=_raw_path(request))
        sent = client.build_request(request.method, target, headers=headers, content=_body(request))
        try:
            answer = await client.send(sent, stream=True)
        except httpx.TransportError:
            return PlainTextResponse("The gateway does not answer yet. Reload this page.", 502)
        if request.url.path == "/api/endpoints" and answer.is_success:
            found = {**(await _json(answer)), "ws": "subscribe", "wss": "subscribe"}
            return JSONResponse(found, headers={"Cache-Control": "no-store"})
        response = StreamingResponse(answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose))
        response.raw_headers = [
            (name.lower(), _framed(name, value))
            for name, value in answer.headers.raw
            if name.decode().lower() not in _NOT_RETURNED
        ]
        return response

    async def subscribe(socket: WebSocket) -> None:
        await socket.accept()
        try:
            async with websockets.connect(f"{ws}/subscribe", max_size=None, proxy=None) as gateway:
                await _both_ways(socket, gateway)
        except (OSError, websockets.WebSocketException):
            pass
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the browser has closed it
            await socket.close(1001)

    routes = [WebSocketRoute("/subscribe", subscribe), Route("/{path:path}", forward, methods=METHODS)]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    return _only_from(allowed, Starlette(routes=routes, lifespan=lifespan))


def _only_from(allowed: str, app: ASGIApp) -> ASGIApp:
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (scope.get("client") or ("",))[0] != allowed:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await PlainTextResponse("Open this page in Home Assistant.", 403)(scope, receive, send)
            return
        await app(scope, receive, send)

    return guarded


def _raw_path(request: Request) -> bytes:
    query: bytes = request.scope["query_string"]
    path: bytes = request.scope["raw_path"]
    return path + (b"?" + query if query else b"")


def _body(request: Request) -> AsyncIterator[bytes] | None:
    names = request.headers
    return request.stream() if "content-length" in names or "transfer-encoding" in names else None


async def _json(answer: httpx.Response) -> dict[str, object]:
    await answer.aread()
    found: dict[str, object] = answer.json()
    return found


def _framed(name: bytes, value: bytes) -> bytes:
    """Let Home Assistant show the page in a frame of its own origin."""
    if name.lower() != b"content-security-policy":
        return value
    return value.replace(b"frame-ancestors 'none'", b"frame-ancestors 'self'")


async def _both_ways(socket: WebSocket, gateway: websockets.ClientConnection) -> None:
    """Pass messages on until one side closes."""

    async def up() -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await gateway.send(await socket.receive_text())

    async def down() -> None:
        async for message in gateway:
            await socket.send_text(message if isinstance(message, str) else message.decode())

    tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    """Serve until the process is ended."""
    app = application("http://127.0.0.1:8000", "ws://127.0.0.1:9000")
    # All addresses: the container has one of the Supervisor's network. Other clients are refused.
    # No header of a request may change the address that `_only_from` compares. Answers keep the gateway's headers.
    uvicorn.run(
        app,
        host="0.0.0.0",
        port=PORT,
        log_level="warning",
        ws_max_size=64 << 20,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )


if __name__ == "__main__":
    main()
