"""Resources for operators without a shell: log, settings, `edge doctor` and `edge backup`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from edge.gates.guard import check_everything
from edge.gates.http.body import content_type, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import Access
from edge.protocol.errors import Forbidden, InvalidRequest, NotFound, UnsupportedMediaType

_Endpoint = Callable[[Request], Awaitable[Response]]

_LEVELS: Final = ("debug", "info", "warning", "error")
_MOST: Final = 2000
"""Log lines in one response."""
_UNREAD: Final = 60.0
"""Seconds within which a client must read the next part of a backup."""
_DOWNLOAD: Final = 3600.0
"""Seconds for a whole backup."""
_GZIP: Final = "application/gzip"
_CLIENTS: Final = ("replace", "keep")
"""Choices for the clients and certificates of a restore."""
_FIX: Final = '{"fix": true}'


class Tools(Protocol):
    """Administration commands. One of a kind runs at a time; `TooManyRequests` for others."""

    async def examine(self, token: str, *, fix: bool) -> object:
        """Return the findings of `edge doctor`. Raises `EdgeError`."""

    async def restore(self, archive: AsyncGenerator[bytes, None], *, keep_clients: bool, caller: str) -> object:
        """Stage a backup for the next start, with the clients of the gateway or those of the backup.

        Return what was staged. Raises `EdgeError`.
        """

    def backup(self) -> AsyncGenerator[bytes, None]:
        """Yield a backup of the data directory. Raises `EdgeError`."""


class Maintenance(Protocol):
    """What operators see of the process."""

    def log(self, level: str, text: str, most: int) -> Iterable[str]:
        """Return the last log lines of at least this level with this text, oldest first, each a JSON object."""

    def settings(self) -> str:
        """Return the settings in effect as TOML, without secrets."""

    @property
    def restart(self) -> Callable[[], None]:
        """Stops the gateway and starts it again, soon."""

    @property
    def tools(self) -> Tools:
        """Administration commands."""


class MaintenanceResources:
    """The endpoints. Each is for administrators only, which the caller checks before it calls them."""

    def __init__(
        self, maintenance: Maintenance | None, settings: HttpGateSettings, by: Callable[[Request], Access]
    ) -> None:
        """`by` returns the administrator, or raises `EdgeError`."""
        self._found = maintenance
        self._settings = settings
        self._by = by

    def routes(self) -> Iterable[tuple[str, _Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource."""
        return (
            ("/api/log", self._log, ["GET"]),
            ("/api/settings", self._show_settings, ["GET"]),
            ("/api/doctor", self._examine, ["GET", "POST"]),
            ("/api/backup", self._backup, ["GET"]),
            ("/api/restore", self._restore, ["POST"]),
        )

    @property
    def _maintenance(self) -> Maintenance:
        if self._found is None:
            raise NotFound("This gate runs without a gateway around it")
        return self._found

    async def _log(self, request: Request) -> Response:
        level, text, most = _wanted(request.query_params)
        lines = ",\n".join(self._maintenance.log(level, text, most))
        return Response(f'{{"lines": [{lines}]}}', headers={"Content-Type": "application/json"})

    async def _show_settings(self, request: Request) -> Response:
        return Response(self._maintenance.settings(), headers={"Content-Type": "application/toml; charset=utf-8"})

    async def _examine(self, request: Request) -> Response:
        self._check_site(request)
        fix = request.method == "POST"
        if fix:
            await self._check_fix(request)
            self._by(request)
        token = request.headers.get("authorization", "").rpartition(" ")[2]
        found = await self._maintenance.tools.examine(token, fix=fix)
        return Response(json.dumps({"findings": found}), media_type="application/json")

    async def _check_fix(self, request: Request) -> None:
        # With this media type, a page of another origin cannot send the request.
        if content_type(request).media_type != "application/json":
            raise UnsupportedMediaType(f"Send application/json: {_FIX}")
        if (await read_text(request, self._settings, 1024)).replace(" ", "") != _FIX.replace(" ", ""):
            raise InvalidRequest(f"Send {_FIX}")

    async def _backup(self, request: Request) -> Response:
        self._check_site(request)
        check_everything(self._by(request), "A backup holds all graphs, clients and keys")
        chunks = self._maintenance.tools.backup()
        first = await anext(chunks)  # an error before the first bytes is answered as one
        name = f"sepa-edge-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return _Download(_joined(first, chunks), headers=headers, media_type="application/gzip")

    async def _restore(self, request: Request) -> Response:
        if content_type(request).media_type != _GZIP:
            raise UnsupportedMediaType(f"Send the backup as {_GZIP}")
        access = self._by(request)
        check_everything(access, "A restore replaces all graphs, clients and keys")
        clients = request.query_params.get("clients", _CLIENTS[0])
        if clients not in _CLIENTS:
            raise InvalidRequest(f'"clients" is {json.dumps(clients)}; it can be {" or ".join(_CLIENTS)}')
        keep = clients == "keep"
        try:
            staged = await self._maintenance.tools.restore(_parts(request), keep_clients=keep, caller=access.client)
        except ClientDisconnect:
            raise InvalidRequest("The client went away before it had sent the whole backup") from None
        # After the answer, which has to leave before the gateway stops.
        return Response(
            json.dumps({"restored": staged}),
            202,
            media_type="application/json",
            background=BackgroundTask(self._maintenance.restart),
        )

    def _check_site(self, request: Request) -> None:
        """Refuse a request that a page of another origin causes, such as by an image: it would start a command."""
        if request.headers.get("sec-fetch-site") == "cross-site":
            raise Forbidden("This resource is not for pages of other origins")


class _Download(StreamingResponse):
    """A download that ends if its client reads nothing, or takes very long: others wait for it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def patient(message: Message) -> None:
            async with asyncio.timeout(_UNREAD):
                await send(message)

        async with asyncio.timeout(_DOWNLOAD):
            await super().__call__(scope, receive, patient)


async def _parts(request: Request) -> AsyncGenerator[bytes, None]:
    async for chunk in request.stream():
        yield chunk


async def _joined(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async with contextlib.aclosing(rest):
        async for chunk in rest:
            yield chunk


def _wanted(parameters: Mapping[str, str]) -> tuple[str, str, int]:
    level, text, most = parameters.get("level", "info"), parameters.get("text", ""), parameters.get("limit", "200")
    if level not in _LEVELS:
        raise InvalidRequest(f'"level" is {json.dumps(level)}; it can be {", ".join(_LEVELS)}')
    if not (most.isascii() and most.isdigit() and len(most) < 6 and 1 <= int(most) <= _MOST):
        raise InvalidRequest(f'"limit" is {json.dumps(most)}; it can be 1 to {_MOST}')
    return level, text, int(most)
