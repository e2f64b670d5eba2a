"""The landing zone behind HTTP, for gateways that share no file system with the ingester.

Files are sent in parts, from where the last part ended, in the manner of draft-ietf-httpbis-resumable-upload; that a
file is whole its digest says (RFC 9530). First the file of rows, then the manifest. Errors are problems (RFC 9457).

    GET   /v1/outboxes/GATEWAY               what is acknowledged, and what waits in the landing zone
    HEAD  /v1/segments/GATEWAY/EPOCH/FILE    how much of a file is here: Upload-Offset, Upload-Complete
    PATCH /v1/segments/GATEWAY/EPOCH/FILE    a part, from Upload-Offset on; the last with Upload-Complete: ?1 and digest
    GET   /health                            whether segments can be received
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import http
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from edge.outbox.segment import SegmentNewer
from spark_offload.errors import GatewayRefused
from spark_offload.gateways import Gateways
from spark_offload.uploads import Damaged, Differs, Full, Name, OffsetWrong, State, TooLarge, Uploads

PATIENCE: Final = 60.0
"""Seconds without a byte of a part after which it is given up; what has come is kept."""
_CLEANED: Final = 3600.0
"""Seconds between two looks for files that nobody went on with."""

_log = logging.getLogger(__name__)


class Receiver:
    """The requests of gateways."""

    def __init__(self, uploads: Uploads, gateways: Gateways) -> None:
        """What is received goes to `uploads`, from `gateways` alone."""
        self._uploads = uploads
        self._gateways = gateways

    def app(self) -> Starlette:
        """The routes."""
        return Starlette(
            routes=[
                Route("/v1/outboxes/{gateway}", self.outbox, methods=["GET"]),
                # Not GET: nothing is sent back.
                Route("/v1/segments/{gateway}/{epoch}/{file}", _Methods(HEAD=self.state, PATCH=self.part)),
                Route("/health", self.health, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _problem, Exception: _fault},
            lifespan=self._cleaning,
        )

    async def outbox(self, request: Request) -> Response:
        """What is acknowledged of a gateway, and what waits."""
        gateway = await self._gateway(request)
        acknowledged = await asyncio.to_thread(self._uploads.acknowledged, gateway)
        held = await asyncio.to_thread(self._uploads.held, gateway)
        return JSONResponse({"acknowledged": acknowledged, "held": held})

    async def state(self, request: Request) -> Response:
        """How much of a file is here."""
        name = await self._name(request)
        state = await asyncio.to_thread(self._uploads.state, name)
        return Response(status_code=404) if state is None else Response(headers=_told(state))

    async def part(self, request: Request) -> Response:
        """A part of a file."""
        name = await self._name(request)
        begin, last = _offset(request), request.headers.get("upload-complete", "?0").strip()
        digest = _digest(request)
        if last not in ("?0", "?1"):
            _refuse(400, "Upload-Complete is ?1 with the last part of a file, ?0 with others")
        if last == "?1" and digest is None:
            _refuse(400, "The last part of a file has the SHA-256 of the whole: Repr-Digest: sha-256=:BASE64:")
        try:
            return await self._take(name, request, begin, digest if last == "?1" else None)
        except OffsetWrong:
            state = await asyncio.to_thread(self._uploads.state, name) or State(0, complete=False)
            if state.complete:  # somebody else has sent it meanwhile
                return await self._there(name, state, digest)
            _refuse(409, f"{state.offset} bytes are here: go on from there", _told(state))
        except Damaged as damaged:
            _refuse(400, str(damaged))
        except Differs as differs:
            _refuse(409, str(differs))
        except TooLarge as large:
            _refuse(413, str(large))
        except Full as full:
            _refuse(507, str(full))
        except SegmentNewer as newer:
            _refuse(501, str(newer))

    async def health(self, _request: Request) -> Response:
        """Whether segments can be received."""
        if await asyncio.to_thread(self._uploads.ready):
            return JSONResponse({"status": "ok"})
        return _answer(503, "Nothing can be written into the landing zone")

    async def _take(self, name: Name, request: Request, begin: int, digest: bytes | None) -> Response:
        """Write the body, and with a digest that of the whole end the file."""
        state = await asyncio.to_thread(self._uploads.state, name)
        if state is not None and state.complete:
            return await self._there(name, state, digest)
        offset = begin
        async for part in _body(request):
            await asyncio.to_thread(self._uploads.append, name, offset, part)
            offset += len(part)
        if digest is None:
            return Response(status_code=204, headers=_told(State(offset, complete=False)))
        new = await asyncio.to_thread(self._uploads.finish, name, offset, digest)
        if new:
            _log.info("received %s (%d bytes)", name.path, offset)
        return Response(status_code=201 if new else 204, headers=_told(State(offset, complete=True)))

    async def _there(self, name: Name, state: State, digest: bytes | None) -> Response:
        """The file is whole already; nothing is written."""
        if digest is not None:
            await asyncio.to_thread(self._uploads.finish, name, state.offset, digest)
        return Response(status_code=204, headers=_told(state))

    async def _name(self, request: Request) -> Name:
        """The file that it is about."""
        gateway = await self._gateway(request)
        name = Name.of(gateway, request.path_params["epoch"], request.path_params["file"])
        return name or _refuse(404, "This is not the name of a file of a segment")

    async def _gateway(self, request: Request) -> str:
        """The gateway that asks, which may ask for itself alone."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            whose = await asyncio.to_thread(self._gateways.whose, token.strip()) if token else None
        except GatewayRefused as error:
            _log.error("%s", error)
            _refuse(503, "The file of gateways cannot be read; the operator is told")
        if scheme.lower() != "bearer" or whose is None:
            _refuse(
                401,
                "Send a gateway's token as Authorization: Bearer TOKEN; `edge-history gateways add` makes one",
                {"WWW-Authenticate": 'Bearer realm="edge-history"'},
            )
        if whose != request.path_params["gateway"]:
            _refuse(403, f"This is the token of {whose}, which may only send as {whose}")
        return whose

    @contextlib.asynccontextmanager
    async def _cleaning(self, _app: Starlette) -> AsyncIterator[None]:
        async def clean() -> None:
            while True:
                await asyncio.to_thread(self._uploads.clean)
                await asyncio.sleep(_CLEANED)

        task = asyncio.create_task(clean())
        yield
        task.cancel()


class _Methods:
    """A route with a function for each method, as an ASGI application."""

    def __init__(self, **functions: Callable[[Request], Awaitable[Response]]) -> None:
        self._functions = functions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        function = self._functions.get(scope["method"])
        if function is None:
            _refuse(405, "Use " + " or ".join(self._functions), {"Allow": ", ".join(self._functions)})
        await (await function(Request(scope, receive, send)))(scope, receive, send)


async def _body(request: Request) -> AsyncIterator[bytes]:
    """What comes of the body, as it comes."""
    parts = request.stream()
    try:
        while True:
            async with asyncio.timeout(PATIENCE):
                part = await anext(parts, None)
            if part is None:
                return
            if part:
                yield part
    except TimeoutError:
        _refuse(408, f"Nothing came for {PATIENCE:g} s: go on later from where you were")
    except ClientDisconnect:
        _refuse(400, "You went away")  # nobody reads it


def _offset(request: Request) -> int:
    found = re.fullmatch(r"[0-9]{1,15}", request.headers.get("upload-offset", "").strip())
    return int(found[0]) if found else _refuse(400, "Upload-Offset is where in the file the part begins, in bytes")


def _digest(request: Request) -> bytes | None:
    """The SHA-256 of the file (RFC 9530, section 3; a dictionary of RFC 9651)."""
    for member in request.headers.get("repr-digest", "").split(","):
        if found := re.fullmatch(r"\s*sha-256\s*=\s*:([A-Za-z0-9+/=]*):\s*", member):
            with contextlib.suppress(binascii.Error):
                if len(digest := base64.b64decode(found[1], validate=True)) == 32:
                    return digest
            _refuse(400, "Repr-Digest is sha-256=:BASE64: with 32 bytes")
    return None


def _told(state: State) -> dict[str, str]:
    return {"Upload-Offset": str(state.offset), "Upload-Complete": f"?{state.complete:d}", "Cache-Control": "no-store"}


def _refuse(status: int, detail: str, headers: dict[str, str] | None = None) -> NoReturn:
    raise HTTPException(status, detail, headers)


def _answer(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    body = {"title": http.HTTPStatus(status).phrase, "status": status, "detail": detail}
    return JSONResponse(body, status, headers, "application/problem+json")


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    return _answer(error.status_code, error.detail, dict(error.headers or {}))


async def _fault(request: Request, _error: Exception) -> Response:
    """A fault of ours, or of the disk. uvicorn writes it into the log."""
    return _answer(500, f"{request.method} failed here; the operator finds why in the log. Try again later")
