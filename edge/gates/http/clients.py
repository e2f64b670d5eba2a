"""Resources of the clients: list, invite, allow, revoke, tokens, and the gateway's certificate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from edge.gates.http.body import content_type, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest, NotFound, UnsupportedMediaType
from edge.protocol.json_faults import json_fault

_T = TypeVar("_T")
_Endpoint = Callable[[Request], Awaitable[Response]]

_JSON: Final = "application/json"
_LARGEST: Final = 64 * 1024
"""Bytes of a request body."""
_LONGEST: Final = 3650 * 86_400
"""Seconds of the longest lifetime of a code or token."""
_HEADERS: Final = {"Content-Type": _JSON, "Cache-Control": "no-store"}
"""A code or token must not stay in a cache."""


class ClientManagement(Protocol):
    """The clients of the gateway. Any thread may call it, one at a time. Its methods raise `EdgeError`.

    `by`: the administrator.
    """

    def listed(self) -> Mapping[str, object]:
        """Return all clients."""

    def allow(self, identity: str, rights: object, by: Access) -> None:
        """Allow a client to register, or change its permissions."""

    def invite(self, identity: str, rights: object, seconds: int, by: Access) -> str:
        """Return an invitation code."""

    def open(self, rights: object, seconds: int, by: Access) -> None:
        """Let all new clients register for a limited time."""

    def revoke(self, identity: str, by: Access) -> None:
        """Revoke a client."""

    def token(self, identity: str, seconds: int, by: Access) -> str:
        """Return a token of a client."""

    def certificate(self) -> Mapping[str, object]:
        """Return the gateway's certificate."""


class ClientResources:
    """The endpoints. Each is for administrators only, which the caller checks before it calls them."""

    def __init__(
        self,
        management: Callable[[], ClientManagement | None],
        settings: HttpGateSettings,
        by: Callable[[Request], Access],
    ) -> None:
        """`management` returns None without security. `by` returns the administrator, or raises `EdgeError`."""
        self._management = management
        self._settings = settings
        self._by = by
        self._slot = asyncio.Semaphore(1)

    def routes(self) -> Iterable[tuple[str, _Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource."""
        return (
            ("/api/clients", self._listed, ["GET"]),
            ("/api/clients/{identity:path}", self._client, ["PUT", "DELETE"]),
            ("/api/invitations", self._invite, ["POST"]),
            ("/api/tokens", self._token, ["POST"]),
            ("/api/opening", self._open, ["PUT"]),
            ("/api/certificate", self._certificate, ["GET"]),
        )

    async def _listed(self, request: Request) -> Response:
        return _answer(await self._call(lambda management: management.listed()))

    async def _certificate(self, request: Request) -> Response:
        return _answer(await self._call(lambda management: management.certificate()))

    async def _client(self, request: Request) -> Response:
        identity: str = request.path_params["identity"]
        if request.method == "DELETE":
            by = self._by(request)
            await self._call(lambda management: management.revoke(identity, by))
            return _answer({"revoked": {"identity": identity}})
        body = await self._body(request, ("rights",))
        by = self._by(request)
        await self._call(lambda management: management.allow(identity, body["rights"], by))
        return _answer({"allowed": {"identity": identity}})

    async def _invite(self, request: Request) -> Response:
        body = await self._body(request, ("identity", "rights", "seconds"))
        identity, seconds, by = _identity(body), _seconds(body, 1), self._by(request)
        code = await self._call(lambda management: management.invite(identity, body["rights"], seconds, by))
        return _answer({"invitation": {"identity": identity, "code": code, "seconds": seconds}}, 201)

    async def _token(self, request: Request) -> Response:
        body = await self._body(request, ("identity", "seconds"))
        identity, seconds, by = _identity(body), _seconds(body, 1), self._by(request)
        token = await self._call(lambda management: management.token(identity, seconds, by))
        return _answer({"token": {"identity": identity, "access_token": token, "expires_in": seconds}}, 201)

    async def _open(self, request: Request) -> Response:
        body = await self._body(request, ("seconds",), ("rights",))
        seconds, by = _seconds(body, 0), self._by(request)
        rights = body.get("rights", {"actions": [], "read": []} if seconds == 0 else None)
        await self._call(lambda management: management.open(rights, seconds, by))
        return _answer({"opening": {"seconds": seconds}})

    async def _call(self, call: Callable[[ClientManagement], _T]) -> _T:
        """Call a method on a thread, because it writes to the disk."""
        management = self._management()
        if management is None:
            raise NotFound("The gateway has no clients: security.enabled is false, so all local programs have access")
        async with self._slot:
            return await asyncio.to_thread(call, management)

    async def _body(
        self, request: Request, members: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> dict[str, object]:
        example = json.dumps({name: _EXAMPLES[name] for name in (*optional, *members)})
        if content_type(request).media_type != _JSON:
            raise UnsupportedMediaType(f"Send {_JSON}, for example {example}")
        try:
            found = json.loads(await read_text(request, self._settings, _LARGEST))
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(json_fault("The body", error)) from None
        if not isinstance(found, dict) or found.keys() - set(optional) != set(members):
            raise InvalidRequest(f"Send an object with the members of this example: {example}")
        return found


_EXAMPLES: Final[Mapping[str, object]] = {
    "identity": "kitchen-display",
    "rights": {"actions": ["query", "subscribe"]},
    "seconds": 86_400,
}


def _identity(body: Mapping[str, object]) -> str:
    identity = body["identity"]
    if not isinstance(identity, str):
        raise InvalidRequest('"identity" must be a text, the name of a client')
    return identity


def _seconds(body: Mapping[str, object], least: int) -> int:
    seconds = body["seconds"]
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not least <= seconds <= _LONGEST:
        raise InvalidRequest(f'"seconds" must be a whole number from {least} to {_LONGEST:,} (3,650 days)')
    return seconds


def _answer(content: object, status: int = 200) -> Response:
    return Response(json.dumps(content), status, _HEADERS)
