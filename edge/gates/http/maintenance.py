"""Resources for operators without a shell: log, settings, `edge doctor` and `edge backup`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from edge.gates.http.body import content_type, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import ACTIONS, Access
from edge.protocol.errors import Forbidden, InvalidRequest, NotFound, UnsupportedMediaType

_Endpoint = Callable[[Request], Awaitable[Response]]

_LEVELS: Final = ("debug", "info", "warning", "error")
_MOST: Final = 2000
"""Log lines in one response."""
_FIX: Final = '{"fix": true}'


class Tools(Protocol):
    """Administration commands. One runs at a time; others wait."""

    async def examine(self, token: str, *, fix: bool) -> object:
        """Return the findings of `edge doctor`. Raises `EdgeError`."""

    def backup(self) -> AsyncGenerator[bytes, None]:
        """Yield a backup of the data directory. Raises `EdgeError`."""


class Maintenance(Protocol):
    """What operators see of the process."""

    def log(self, level: str, text: str, most: int) -> Iterable[str]:
        """Return the last log lines of at least this level with this text, oldest first, each a JSON object."""

    def settings(self) -> str:
        """Return the settings in effect as TOML, without secrets."""

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
        by = self._by(request)
        if by.limited or by.actions != ACTIONS:
            raise Forbidden(
                "A backup holds all graphs, clients and keys, so only an administrator with all actions and graphs may "
                "have it; `edge backup` on the gateway makes one, too"
            )
        chunks = self._maintenance.tools.backup()
        first = await anext(chunks)  # an error before the first bytes is answered as one
        name = f"sepa-edge-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return StreamingResponse(_joined(first, chunks), headers=headers, media_type="application/gzip")


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
