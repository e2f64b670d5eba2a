"""HTTP interface of the landing zone, for gateways that share no file system with the ingester.

Gateways send files in parts, and resume after the last received byte, similar to draft-ietf-httpbis-resumable-upload. A
digest proves that a file is complete (RFC 9530). The file with the rows comes first, then the manifest. Error responses
are problem details (RFC 9457).

    GET   /v1/outboxes/GATEWAY               acknowledged numbers, and segments that wait in the landing zone
    HEAD  /v1/segments/GATEWAY/EPOCH/FILE    received bytes of a file: Upload-Offset, Upload-Complete
    PATCH /v1/segments/GATEWAY/EPOCH/FILE    part from Upload-Offset on; the last with Upload-Complete: ?1 and a digest
    GET   /health                            whether segments can be received
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from edge.outbox.segment import SegmentNewer
from spark_offload.connection_slots import body_wait
from spark_offload.gateways import Gateways
from spark_offload.http_problems import PROBLEM_HANDLERS, problem, refuse
from spark_offload.http_tokens import token_owner
from spark_offload.uploads import DamagedUpload, Differs, Full, Name, OffsetWrong, State, Uploads, UploadTooLarge

_FINISHED_AT_ONCE: Final = 2
"""Files that are verified at the same time, which bounds the memory."""
_CLEANED: Final = 3600.0
"""Seconds between two searches for abandoned uploads."""

_log = logging.getLogger(__name__)


class LandingReceiver:
    """Request handlers of the receiver."""

    def __init__(self, uploads: Uploads, gateways: Gateways) -> None:
        """Store uploads in `uploads`, and accept them only from `gateways`."""
        self._uploads = uploads
        self._gateways = gateways
        self._finishing = asyncio.Semaphore(_FINISHED_AT_ONCE)

    def app(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/outboxes/{gateway}", self.outbox, methods=["GET"]),
                # One path with a function for each method. GET is not offered: segments are never sent back.
                Route("/v1/segments/{gateway}/{epoch}/{file}", _Methods(HEAD=self.state, PATCH=self.part)),
                Route("/health", self.health, methods=["GET"]),
            ],
            exception_handlers=PROBLEM_HANDLERS,
            lifespan=self._cleaning,
        )

    async def outbox(self, request: Request) -> Response:
        """Return the acknowledged numbers and the waiting segments of a gateway."""
        gateway = await self._gateway(request)
        acknowledged = await asyncio.to_thread(self._uploads.acknowledged, gateway)
        held = await asyncio.to_thread(self._uploads.held, gateway)
        return JSONResponse({"acknowledged": acknowledged, "held": held})

    async def state(self, request: Request) -> Response:
        """Return the number of received bytes of a file, in headers."""
        name = await self._name(request)
        state = await asyncio.to_thread(self._uploads.state, name)
        return Response(status_code=404) if state is None else Response(headers=_state_headers(state))

    async def part(self, request: Request) -> Response:
        """Append a part to a file, and complete the file with its last part."""
        name = await self._name(request)
        begin, last = _offset(request), request.headers.get("upload-complete", "?0").strip()
        digest = _digest(request)
        if last not in ("?0", "?1"):
            refuse(400, "Upload-Complete must be ?1 for the last part of a file, and ?0 for other parts")
        if last == "?1" and digest is None:
            refuse(400, "The last part needs the SHA-256 of the whole file: Repr-Digest: sha-256=:BASE64:")
        try:
            return await self._take(name, request, begin, digest if last == "?1" else None)
        except OffsetWrong:
            state = await asyncio.to_thread(self._uploads.state, name) or State(0, complete=False)
            if state.complete:  # a concurrent or an earlier request of the gateway has completed the file
                return await self._already_complete(name, state, digest)
            refuse(409, f"{state.offset} bytes are received: continue from there", _state_headers(state))
        except DamagedUpload as damaged:
            refuse(400, str(damaged))
        except Differs as differs:
            refuse(409, str(differs))
        except UploadTooLarge as large:
            refuse(413, str(large))
        except Full as full:
            refuse(507, str(full))
        except SegmentNewer as newer:
            refuse(501, str(newer))

    async def health(self, _request: Request) -> Response:
        """Return status 200 if segments can be received, else 503."""
        if await asyncio.to_thread(self._uploads.ready):
            return JSONResponse({"status": "ok"})
        return problem(503, "The landing zone is full or not writable")

    async def _take(self, name: Name, request: Request, begin: int, digest: bytes | None) -> Response:
        """Append the body to a file. `digest` is the SHA-256 of the whole file with the last part, else None."""
        state = await asyncio.to_thread(self._uploads.state, name)
        if state is not None and state.complete:
            return await self._already_complete(name, state, digest)
        offset = begin
        # Refuse a file that is too large before its content is read.
        self._uploads.check_size(name, begin + _length(request))
        async for part in _body(request):
            # The disk may be slow, and the event loop serves all gateways.
            await asyncio.to_thread(self._uploads.append, name, offset, part)
            offset += len(part)
        if digest is None:
            return Response(status_code=204, headers=_state_headers(State(offset, complete=False)))
        new = await self._finish(name, offset, digest)
        if new:
            _log.info("received %s (%d bytes)", name.path, offset)
        return Response(status_code=201 if new else 204, headers=_state_headers(State(offset, complete=True)))

    async def _already_complete(self, name: Name, state: State, digest: bytes | None) -> Response:
        """Answer a repeated upload of a complete file, which makes uploads idempotent.

        `Uploads.finish` compares the digest with the stored file, and raises `Differs` for another content.
        """
        if digest is not None:
            await self._finish(name, state.offset, digest)
        return Response(status_code=204, headers=_state_headers(state))

    async def _finish(self, name: Name, offset: int, digest: bytes) -> bool:
        async with self._finishing:
            return await asyncio.to_thread(self._uploads.finish, name, offset, digest)

    async def _name(self, request: Request) -> Name:
        """Return the validated name of the file in the path of a request."""
        gateway = await self._gateway(request)
        name = Name.of(gateway, request.path_params["epoch"], request.path_params["file"])
        return name or refuse(404, "This is not the name of a segment file")

    async def _gateway(self, request: Request) -> str:
        """Authenticate a request. Returns the gateway, which may only act under its own name."""
        whose = await token_owner(request, self._gateways)
        if whose != request.path_params["gateway"]:
            refuse(403, f"This token belongs to {whose}, which may only send as {whose}")
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
    """ASGI application that dispatches by request method."""

    def __init__(self, **functions: Callable[[Request], Awaitable[Response]]) -> None:
        self._functions = functions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        function = self._functions.get(scope["method"])
        if function is None:
            refuse(405, "Use " + " or ".join(self._functions), {"Allow": ", ".join(self._functions)})
        await (await function(Request(scope, receive, send)))(scope, receive, send)


async def _body(request: Request) -> AsyncIterator[bytes]:
    """Yield the parts of the body as they arrive. Status 408 if it is too slow (`body_wait`)."""
    parts, received = request.stream(), 0
    begun = time.monotonic()
    try:
        while True:
            async with asyncio.timeout(body_wait(begun, received, time.monotonic())):
                part = await anext(parts, None)
            if part is None:
                return
            if part:
                received += len(part)
                yield part
    except TimeoutError:
        refuse(408, "The data came too slowly: resume the upload later", {"Connection": "close"})
    except ClientDisconnect:
        refuse(400, "The client disconnected")  # the response is not sent; this only ends the request


def _length(request: Request) -> int:
    """Return the length of the body that its header states, or 0. The HTTP parser has checked its form."""
    found = re.fullmatch(r"[0-9]{1,18}", request.headers.get("content-length", ""))
    return int(found[0]) if found else 0


def _offset(request: Request) -> int:
    found = re.fullmatch(r"[0-9]{1,15}", request.headers.get("upload-offset", "").strip())
    return int(found[0]) if found else refuse(400, "Upload-Offset must be the start of the part, in bytes")


def _digest(request: Request) -> bytes | None:
    """Return the SHA-256 from Repr-Digest (RFC 9530, section 3; a dictionary of RFC 9651), or None without one."""
    for member in request.headers.get("repr-digest", "").split(","):
        if found := re.fullmatch(r"\s*sha-256\s*=\s*:([A-Za-z0-9+/=]*):\s*", member):
            with contextlib.suppress(binascii.Error):
                if len(digest := base64.b64decode(found[1], validate=True)) == 32:
                    return digest
            refuse(400, "Repr-Digest must be sha-256=:BASE64: with 32 bytes")
    return None


def _state_headers(state: State) -> dict[str, str]:
    return {"Upload-Offset": str(state.offset), "Upload-Complete": f"?{state.complete:d}", "Cache-Control": "no-store"}
