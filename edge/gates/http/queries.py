"""Resources of the continuous queries: list, read, write and delete."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from edge.gates.guard import check_everything
from edge.gates.http.body import content_type, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import Access
from edge.protocol.errors import NotReady, UnsupportedMediaType

_T = TypeVar("_T")
_Endpoint = Callable[[Request], Awaitable[Response]]

_QUERY: Final = "application/sparql-query"
_MOST: Final = 256 * 1024
"""Bytes of a query."""


class QueryDocuments(Protocol):
    """The continuous queries. Any thread may call it. Its methods raise `EdgeError`."""

    def listed(self) -> Sequence[Mapping[str, object]]:
        """Return a JSON object for each query."""

    def read(self, name: str) -> str:
        """Return the text of a query."""

    def write(self, name: str, text: str) -> None:
        """Check and write a query."""

    def delete(self, name: str) -> None:
        """Delete a query."""


class QueryResources:
    """The endpoints. Each is for administrators only, which the caller checks before it calls them."""

    def __init__(
        self,
        documents: Callable[[], QueryDocuments | None],
        settings: HttpGateSettings,
        by: Callable[[Request], Access],
    ) -> None:
        """`documents` returns None while the gateway starts. `by` returns the administrator, or raises `EdgeError`."""
        self._documents = documents
        self._settings = settings
        self._by = by
        self._slot = asyncio.Semaphore(1)

    def routes(self) -> Iterable[tuple[str, _Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource."""
        return (
            ("/api/queries", self._listed, ["GET"]),
            ("/api/queries/{name}", self._query, ["GET", "PUT", "DELETE"]),
        )

    async def _listed(self, request: Request) -> Response:
        return _json(await self._call(lambda documents: documents.listed()))

    async def _query(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.method in ("GET", "HEAD"):
            text = await self._call(lambda documents: documents.read(name))
            return Response(text, headers={"Content-Type": f"{_QUERY}; charset=utf-8"})
        if request.method == "PUT":
            if content_type(request).media_type != _QUERY:
                raise UnsupportedMediaType(f"Send the query as {_QUERY}")
            text = await read_text(request, self._settings, _MOST)
            self._check(request)
            await self._call(lambda documents: documents.write(name, text))
            return _json({"written": {"name": name}})
        self._check(request)
        await self._call(lambda documents: documents.delete(name))
        return _json({"deleted": {"name": name}})

    def _check(self, request: Request) -> None:
        why = "A continuous query reads all graphs, and everybody who may read its topic sees the result"
        check_everything(self._by(request), why)

    async def _call(self, call: Callable[[QueryDocuments], _T]) -> _T:
        documents = self._documents()
        if documents is None:
            raise NotReady("The gateway is starting; try again")
        async with self._slot:
            return await asyncio.to_thread(call, documents)


def _json(content: object) -> Response:
    return Response(json.dumps(content), headers={"Content-Type": "application/json"})
