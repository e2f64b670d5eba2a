"""Resources for the update of an image's system: its state, its file, and the restart into it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Final, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from edge.gates.guard import check_everything
from edge.gates.http.body import content_type, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest, NotFound, UnsupportedMediaType

_Endpoint = Callable[[Request], Awaitable[Response]]

_BUNDLE: Final = "application/octet-stream"
_RESTART: Final = '{"restart": true}'
_REASON: Final = "An update replaces the system of the host"


class SystemUpdates(Protocol):
    """See `edge.gateway.system_updates.SystemUpdates`."""

    def state(self) -> dict[str, object]:
        """Return the state as JSON."""

    async def install(self, parts: AsyncGenerator[bytes, None], size: int | None) -> None:
        """Take the file of an update, and ask for its installation. Raises `EdgeError`, such as `NotFound` without a
        system that takes updates.
        """

    async def restart(self) -> None:
        """Ask for a restart into the installed system. Raises `EdgeError`."""


class SystemUpdateResources:
    """The endpoints. Each is for administrators only, which the caller checks before it calls them."""

    def __init__(
        self, updates: SystemUpdates | None, settings: HttpGateSettings, by: Callable[[Request], Access]
    ) -> None:
        """`by` returns the administrator, or raises `EdgeError`."""
        self._found = updates
        self._settings = settings
        self._by = by

    def routes(self) -> Iterable[tuple[str, _Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource."""
        return (
            ("/api/system-update", self._update, ["GET", "POST"]),
            ("/api/system-update/restart", self._restart, ["POST"]),
        )

    @property
    def _updates(self) -> SystemUpdates:
        if self._found is None:
            raise NotFound("This gate runs without a gateway around it")
        return self._found

    async def _update(self, request: Request) -> Response:
        if request.method == "GET":
            return _json(self._updates.state())
        # With these media types, a page of another origin cannot send the requests.
        if content_type(request).media_type != _BUNDLE:
            raise UnsupportedMediaType(f"Send the .raucb file of an update as {_BUNDLE}")
        check_everything(self._by(request), _REASON)
        length = request.headers.get("content-length", "")
        try:
            await self._updates.install(request.stream(), int(length) if length else None)
        except ClientDisconnect:
            raise InvalidRequest("The client went away before it had sent the whole update") from None
        return _json(self._updates.state(), 202)

    async def _restart(self, request: Request) -> Response:
        if content_type(request).media_type != "application/json":
            raise UnsupportedMediaType(f"Send application/json: {_RESTART}")
        if (await read_text(request, self._settings, 1024)).replace(" ", "") != _RESTART.replace(" ", ""):
            raise InvalidRequest(f"Send {_RESTART}")
        check_everything(self._by(request), _REASON)
        await self._updates.restart()
        return _json(self._updates.state(), 202)


def _json(found: object, status: int = 200) -> Response:
    return Response(json.dumps(found), status, media_type="application/json")
