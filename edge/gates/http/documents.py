"""Resources of the operator's documents: list, read, write and delete. Mapping files, continuous queries and rules."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from edge.gates.guard import check_everything
from edge.gates.http.body import content_type, read_text
from edge.gates.http.conditions import Conditions, read_conditions
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest, NotFound, NotReady, UnsupportedMediaType
from edge.protocol.json_faults import json_fault

_D = TypeVar("_D", bound="Documents")
_T = TypeVar("_T")
Endpoint = Callable[[Request], Awaitable[Response]]

MOST: Final = 256 * 1024
"""Bytes of a document."""


class Documents(Protocol):
    """Documents of one kind. Any thread may call it. Its methods raise `EdgeError`."""

    def listed(self) -> Sequence[Mapping[str, object]]:
        """Return a JSON object for each document."""

    def read(self, name: str, *, previous: bool = False) -> str:
        """Return the text of a document, or of its previous version."""

    def write(self, name: str, text: str) -> None:
        """Check and write a document."""

    def delete(self, name: str) -> None:
        """Delete a document."""


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of documents."""

    path: str
    """Path of their list."""
    media_type: str
    accepted: Sequence[str]
    """Media types in which a document may be sent; "" stands for a missing header."""
    why: str
    """Why not every administrator may write them."""


class DocumentResources:
    """The endpoints of one kind. Each is for administrators only, which the caller checks before it calls them."""

    def __init__(
        self,
        kind: DocumentKind,
        documents: Callable[[], Documents | None],
        settings: HttpGateSettings,
        by: Callable[[Request], Access],
    ) -> None:
        """`documents` returns None while the gateway starts. `by` returns the administrator, or raises `EdgeError`."""
        self._kind = kind
        self._documents = documents
        self._settings = settings
        self._by = by
        self._slot = asyncio.Semaphore(1)
        """Documents are checked, read and written one after the other: a large one takes a second."""

    def routes(self) -> Iterable[tuple[str, Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource."""
        return (
            (self._kind.path, self._listed, ["GET"]),
            (f"{self._kind.path}/{{name}}", self._document, ["GET", "PUT", "DELETE"]),
        )

    async def call(self, documents: _D | None, call: Callable[[_D], _T]) -> _T:
        """Call a method of the documents on a thread. Raises its errors, and `NotReady` without documents."""
        if documents is None:
            raise NotReady("The gateway is starting or stopping; try again in a few seconds")
        async with self._slot:
            return await asyncio.to_thread(call, documents)

    def check(self, request: Request) -> None:
        """Check that the client may write documents, after the body was read. Raises `EdgeError`."""
        check_everything(self._by(request), self._kind.why)

    async def _listed(self, request: Request) -> Response:
        return to_json(await self.call(self._documents(), lambda documents: documents.listed()))

    async def _document(self, request: Request) -> Response:
        name, kind, conditions = request.path_params["name"], self._kind, read_conditions(request)
        if request.method in ("GET", "HEAD"):
            return await self._read(name, _wants_previous(request), conditions)
        if request.method == "PUT":
            if content_type(request).media_type not in kind.accepted:
                raise UnsupportedMediaType(f"Send the document as {kind.media_type}")
            text = await read_text(request, self._settings, MOST)
            self.check(request)
            tag = await self.call(self._documents(), lambda documents: _write(documents, name, text, conditions))
            return to_json({"written": {"name": name}}, {"ETag": tag})
        self.check(request)
        await self.call(self._documents(), lambda documents: _delete(documents, name, conditions))
        return to_json({"deleted": {"name": name}})

    async def _read(self, name: str, previous: bool, conditions: Conditions) -> Response:
        text = await self.call(self._documents(), lambda documents: documents.read(name, previous=previous))
        headers = {"ETag": _tag(text)}
        if conditions.unchanged(headers["ETag"]):
            return Response(status_code=304, headers=headers)
        return Response(text, headers={**headers, "Content-Type": f"{self._kind.media_type}; charset=utf-8"})


def _write(documents: Documents, name: str, text: str, conditions: Conditions) -> str:
    """Write a document and return its entity tag. Raises `PreconditionFailed` and the errors of the documents."""
    _check(documents, name, conditions)
    documents.write(name, text)
    return _tag(documents.read(name))  # the text of GET, whose line ends may be others


def _delete(documents: Documents, name: str, conditions: Conditions) -> None:
    _check(documents, name, conditions)
    documents.delete(name)


def _check(documents: Documents, name: str, conditions: Conditions) -> None:
    """Check the conditions of a change. The caller holds the slot: no other client changes the document meanwhile."""
    if not conditions.given:
        return
    try:
        tags = [_tag(documents.read(name))]
    except NotFound:
        tags = []
    conditions.check(tags, "document")


def _tag(text: str) -> str:
    """Return the strong entity tag of a document (RFC 9110, section 8.8.3)."""
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


async def read_members(request: Request, settings: HttpGateSettings) -> Mapping[str, object]:
    """Return the members of the JSON object in a body; none if it is another JSON value.

    Raises `InvalidRequest`, also for texts that are not Unicode, and the errors of `read_text`.
    """
    try:
        found = json.loads(await read_text(request, settings, 4 * MOST))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(json_fault("The body", error)) from None
    members = found if isinstance(found, dict) else {}
    try:
        for member in members.values():
            if isinstance(member, str):
                member.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"The body has half a surrogate pair, which is not a character: {error.reason}") from None
    return members


def to_json(content: object, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    """Return a JSON response. Raises `ValueError` for an infinite number or NaN, which JSON cannot have."""
    return Response(
        json.dumps(content, ensure_ascii=False, allow_nan=False),
        headers={**headers, "Content-Type": "application/json"},
    )


def _wants_previous(request: Request) -> bool:
    """Return whether the request is for the previous version of a document. Raises `InvalidRequest`."""
    value = request.query_params.get("previous", "false")
    if value not in ("true", "false"):
        raise InvalidRequest(f'"previous" is {json.dumps(value)}; it can be "true" or "false"')
    return value == "true"
