"""Resources of things: descriptions, the directory (W3C Recommendation "WoT Discovery", section 7.3), properties."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import pyoxigraph as ox
from starlette.requests import Request
from starlette.responses import Response

from edge.engine.requests import Answer, QueryRequest, UpdateRequest
from edge.gates.engine_interface import SparqlEngine
from edge.gates.guard import check
from edge.gates.http.body import content_type, parse_parameters, read_text
from edge.gates.http.boundary import PRIMITIVE, error_response
from edge.gates.http.conditions import Conditions, read_conditions
from edge.gates.http.documents import Endpoint
from edge.gates.http.engine_future import result, shielded
from edge.gates.http.graph_content import tag
from edge.gates.http.things.description import LIST_TYPE, MEDIA_TYPE, PROPERTIES, THINGS, Describer
from edge.gates.http.things.graph import (
    Property,
    Thing,
    facts_query,
    read_iris,
    read_property,
    read_things,
    things_query,
)
from edge.gates.http.things.observing import MEDIA_TYPE as EVENTS
from edge.gates.http.things.observing import PropertyObservers
from edge.gates.rate_limit import client_of, peer_of
from edge.gates.settings import HttpGateSettings
from edge.negotiation import choose, names
from edge.observed_values import Settable, desired_value, to_json
from edge.protocol.access import DEFAULT_GRAPH, Access
from edge.protocol.errors import (
    InvalidRequest,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestTimeout,
    ResultTooLarge,
    UnsupportedMediaType,
)
from edge.protocol.results import Term

T = TypeVar("T")
Setters = Callable[[Sequence[str]], Mapping[str, Settable]]

MOST_THINGS: Final = 100
"""Descriptions in a response, by default and at most."""
_JSON: Final = "application/json"
_LONGEST_BASE: Final = 500
"""Characters of the URL of the gateway, which each description has."""
_LONGEST_VALUE: Final = 64 * 1024
"""Bytes of a value to set."""
_SLOTS: Final = 2
"""Responses that are made at the same time. Others wait, so that updates get the processor."""
_SET: Final = """PREFIX edge: <urn:sepa-edge:>
DELETE { ?observation edge:desired ?old }
INSERT { ?observation edge:desired ?value }
WHERE { OPTIONAL { ?observation edge:desired ?old } }"""


@dataclass(frozen=True, slots=True)
class _Page:
    """A part of the list of things."""

    offset: int
    limit: int
    asked: bool
    """Whether the client asked for a part."""


class ThingResources:
    """The endpoints over one engine. They read by queries and write by updates of the client."""

    def __init__(
        self,
        engine: SparqlEngine,
        settings: HttpGateSettings,
        setters: Setters,
        access: Callable[[Request], Access],
        recheck: Callable[[Request], Access],
        timeout: float,
        observers: PropertyObservers,
        *,
        secured: bool,
    ) -> None:
        """`setters` returns how values can be set; it may take long. `timeout`: seconds for reading the graph.

        `access` and `recheck` return the client's permissions before and after the body was read. `observers` serves
        clients that observe properties.
        """
        self._engine = engine
        self._settings = settings
        self._setters = setters
        self._access = access
        self._recheck = recheck
        self._timeout = timeout
        self._observers = observers
        self._secured = secured
        self._slots = asyncio.Semaphore(_SLOTS)

    def routes(self) -> Iterable[tuple[str, Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource that needs the permissions of a client."""
        return (
            (THINGS, self._list, ["GET"]),
            (f"{THINGS}/{{id:path}}", self._thing, ["GET"]),
            (f"{PROPERTIES}/{{observation:path}}", self._property, ["GET", "PUT"]),
        )

    async def directory(self, request: Request) -> Response:
        """Return the description of the gateway. It has only what `/api/endpoints` and `/api/openapi.json` tell, too.

        Raises `EdgeError`.
        """
        conditions, media_type = read_conditions(request), _accepted(request, MEDIA_TYPE, _JSON, LIST_TYPE)
        content = json.dumps(self._describer(request).directory(), ensure_ascii=False).encode()
        return _response(content, media_type, conditions)

    async def _list(self, request: Request) -> Response:
        access = self._reader(request)
        conditions, media_type = read_conditions(request), _accepted(request, LIST_TYPE, _JSON)
        page, describer = _page(request), self._describer(request)
        async with self._limited(), self._slots:
            iris = await self._read(request, access, things_query(), read_iris)
            wanted = iris[page.offset : page.offset + page.limit]
            things, read = await self._fitting(request, access, wanted)
            content, first_left = await asyncio.to_thread(self._listed, things, access, describer)
        if first_left is not None:
            read = wanted.index(first_left)
        digest = hashlib.sha256("\n".join(iris).encode()).hexdigest()[:32]
        links = [f'<{THINGS}>; rel="canonical"; etag="{digest}"']
        following = page.offset + read
        if following < len(iris):
            links.append(f'<{THINGS}?offset={following}&limit={page.limit}>; rel="next"')
        paged = page.asked or following < len(iris)
        return _response(content, media_type, conditions, {"Link": ", ".join(links)} if paged else {})

    async def _thing(self, request: Request) -> Response:
        access = self._reader(request)
        conditions, media_type = read_conditions(request), _accepted(request, MEDIA_TYPE, _JSON, LIST_TYPE)
        iri, describer = _iri(request, "id"), self._describer(request)
        async with self._limited(), self._slots:
            things = await self._things(request, access, [iri])
            if not things:
                raise _no_thing()
            content = await asyncio.to_thread(self._alone, things[0], access, describer)
        return _response(content, media_type, conditions)

    async def _property(self, request: Request) -> Response:
        if request.method == "PUT":
            return await self._set(request)
        # A client that accepts any text would wait for the end of the stream.
        offers = (_JSON, EVENTS) if names(request.headers.get("accept"), EVENTS) else (_JSON,)
        if _accepted(request, *offers) == EVENTS:
            return await self._observe(request)
        access = self._reader(request)
        found = await self._found(request, access, _iri(request, "observation"))
        if found is None:
            raise _no_property()
        if found.value is None:
            raise NotFound("This property has no value yet; its device has not reported one")
        return Response(to_json(found.value), headers={"Content-Type": _JSON, "Cache-Control": "no-cache"})

    async def _observe(self, request: Request) -> Response:
        """Return the values of a property as an event stream."""
        request.scope[PRIMITIVE] = "subscribe"
        check(access := self._access(request), "subscribe")
        iri = _iri(request, "observation")
        if await self._found(request, access, iri) is None:
            raise _no_property()
        return await self._observers.serve(request, iri, access, client_of(access, _peer(request)))

    async def _set(self, request: Request) -> Response:
        """Write the desired value of a property."""
        request.scope[PRIMITIVE] = "update"
        check(self._access(request), "update")
        if content_type(request).media_type not in ("", _JSON):
            raise UnsupportedMediaType(f"Send the value as {_JSON}")
        text = await read_text(request, self._settings, _LONGEST_VALUE)
        check(access := self._recheck(request), "update")
        iri = _iri(request, "observation")
        settable = (await asyncio.to_thread(self._setters, [iri])).get(iri)
        if settable is None:
            if "query" in access.actions and await self._found(request, access, iri) is not None:
                error = MethodNotAllowed(
                    "This property can only be read: no mapping says how it is set at its device (`set`), or "
                    "actuation.desired_values is false"
                )
                return error_response(error, {"Allow": "GET, HEAD, OPTIONS"})
            raise _no_property()
        bindings: dict[str, Term] = {"observation": ox.NamedNode(iri), "value": desired_value(text, settable)}
        # The old value is found also by a client that may only write: the response does not tell it.
        source, writer = client_of(access, _peer(request)), replace(access, read=None)
        update = UpdateRequest(_SET, bindings=bindings, access=writer, source=source)
        await shielded(self._engine.update([update]))
        return Response(status_code=204)

    def _reader(self, request: Request) -> Access:
        """Return the permissions of a client that may query. Raises `EdgeError`."""
        request.scope[PRIMITIVE] = "query"
        check(access := self._access(request), "query")
        return access

    async def _found(self, request: Request, access: Access, iri: str) -> Property | None:
        async with self._limited():
            return await self._read(request, access, facts_query([iri]), read_property(iri))

    async def _things(self, request: Request, access: Access, iris: Sequence[str]) -> list[Thing]:
        return await self._read(request, access, facts_query(iris), read_things(iris))

    async def _fitting(self, request: Request, access: Access, iris: Sequence[str]) -> tuple[list[Thing], int]:
        """Return the first things, and how many of the IRIs were read: fewer than all if all are too large together.

        One that is too large alone is left out, so that it does not hide the others.
        """
        while iris:
            try:
                return await self._things(request, access, iris), len(iris)
            except ResultTooLarge:
                if len(iris) == 1:
                    return [], 1
                iris = iris[: len(iris) // 2]
        return [], 0

    async def _read(self, request: Request, access: Access, query: str, read: Callable[[Answer], T]) -> T:
        source = client_of(access, _peer(request))
        return await result(self._engine.read(QueryRequest(query, access=access, source=source), read))

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        """Limit the time of a block. Raises `RequestTimeout`."""
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except TimeoutError:
            raise RequestTimeout(
                f"The response took longer than {self._timeout:g} s, the limit engine.query_timeout; try again later"
            ) from None

    def _listed(self, things: Sequence[Thing], access: Access, describer: Describer) -> tuple[bytes, str | None]:
        """Return the descriptions of the first things that fit a response together, as a JSON list, and the IRI of the
        thing that comes next, if there is one. A thing that is too large alone is left out.
        """
        texts: list[bytes] = []
        size = 0
        for thing, text in self._described(things, access, describer):
            length = len(text) + 2  # with the separator
            if length > self._settings.max_result:
                continue
            if size + length > self._settings.max_result:
                return _json_list(texts), thing.iri
            texts.append(text)
            size += length
        return _json_list(texts), None

    def _alone(self, thing: Thing, access: Access, describer: Describer) -> bytes:
        """Return the description of a thing as JSON. Raises `ResultTooLarge`."""
        ((_, text),) = self._described([thing], access, describer)
        if len(text) > self._settings.max_result:
            raise ResultTooLarge(
                f"The description of this device has more than {self._settings.max_result:,} bytes (http.max_result); "
                "query a part of it"
            )
        return text

    def _described(
        self, things: Sequence[Thing], access: Access, describer: Describer
    ) -> Iterator[tuple[Thing, bytes]]:
        """Yield each thing with its description as JSON."""
        may_set = "update" in access.actions and (access.write is None or DEFAULT_GRAPH in access.write)
        observations = [each.iri for thing in things for each in thing.properties] if may_set else []
        settable = self._setters(observations) if observations else {}
        observable = "subscribe" in access.actions
        for thing in things:
            yield (
                thing,
                json.dumps(
                    describer.thing(thing, settable, observable=observable), ensure_ascii=False, allow_nan=False
                ).encode(),
            )

    def _describer(self, request: Request) -> Describer:
        """Return the describer for the URL that the client used. Raises `InvalidRequest`."""
        base = str(request.base_url)
        try:
            if len(base) <= _LONGEST_BASE:
                return Describer(ox.NamedNode(base).value, self._secured)
        except ValueError:
            pass
        raise InvalidRequest("The header Host is not the name of a host; send the name and port of this server")


def _accepted(request: Request, *offers: str) -> str:
    """Return the media type of the response. Raises `NotAcceptable`."""
    media_type = choose(request.headers.get("accept"), offers)
    if media_type is None:
        raise NotAcceptable(f"This is available as {', '.join(offers)}")
    return media_type


def _response(
    content: bytes, media_type: str, conditions: Conditions, more: Mapping[str, str] | None = None
) -> Response:
    entity_tag = tag(hashlib.sha256(content).digest(), media_type)
    headers = {"ETag": entity_tag, "Vary": "Accept, Authorization", "Cache-Control": "no-cache", **(more or {})}
    if conditions.unchanged(entity_tag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "Content-Type": media_type})


def _json_list(texts: Iterable[bytes]) -> bytes:
    return b"[" + b", ".join(texts) + b"]"


def _page(request: Request) -> _Page:
    """Return the wanted part of the list. Raises `InvalidRequest`."""
    given: dict[str, int] = {}
    for name, text in parse_parameters(request.scope["query_string"]):
        if name not in ("offset", "limit"):
            raise InvalidRequest(f'Unknown parameter "{name}"; use offset, limit')
        least = 1 if name == "limit" else 0
        if name in given or not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least):
            raise InvalidRequest(f'"{name}" must be given once, as a number from {least} on; it is {text[:50]!r}')
        given[name] = int(text)
    return _Page(given.get("offset", 0), min(given.get("limit", MOST_THINGS), MOST_THINGS), bool(given))


def _iri(request: Request, name: str) -> str:
    """Return the IRI in the path. Raises `NotFound`."""
    text: str = request.path_params[name]
    try:
        return ox.NamedNode(text).value
    except ValueError:
        raise NotFound(
            f'The path must end with an IRI, percent-encoded also in its slashes; "{text[:200]}" is not one'
        ) from None


def _no_thing() -> NotFound:
    return NotFound(
        f"The graph has no device of this IRI with observations that this client may read; {THINGS} lists all"
    )


def _no_property() -> NotFound:
    return NotFound(f"The graph has no observation of this IRI that this client may read; {THINGS} describes all")


def _peer(request: Request) -> str:
    return peer_of(*request.client) if request.client is not None else ""
