"""The resource `/inbox`: receiver of W3C Linked Data Notifications (Recommendation, 2 May 2017).

A named graph lists the notifications of an inbox, and another one stores each of them, so they are durable, and
queries and subscriptions see them. The engine's permissions are for exact graphs, and the IRI of a notification is
new. So the gate checks the permissions for the inbox, and its own requests name the graphs of the inbox only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeVar

import pyoxigraph as ox
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from edge.engine.admission.byte_quota import Charge
from edge.engine.requests import Answer, Precondition, QueryRequest, UpdateOutcome, UpdateRequest
from edge.gates.engine_interface import OperatedEngine
from edge.gates.guard import check
from edge.gates.http.body import CHARGE, content_type, read_text
from edge.gates.http.boundary import PRIMITIVE, error_response
from edge.gates.http.conditions import Conditions, read_conditions
from edge.gates.http.engine_future import result, shielded
from edge.gates.http.formats import GRAPH_FORMATS, choose_graph_format, serialize_graph, with_charset
from edge.gates.http.graph_content import GraphReader, Representation, tag
from edge.gates.http.inbox_address import LDP, InboxAddress, read_address
from edge.gates.http.rdf_body import FORMATS, RDF_JSON, check_format, read_graph
from edge.gates.settings import HttpGateSettings
from edge.negotiation import choose
from edge.protocol.access import Access
from edge.protocol.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    RequestTimeout,
    ResultTooLarge,
    TooManyRequests,
    UnsupportedEncoding,
    UnsupportedMediaType,
)

T = TypeVar("T")

_JSON_LD: Final = "application/ld+json"
_OFFERS: Final = sorted(GRAPH_FORMATS, key=lambda offer: offer != _JSON_LD)
"""Media types of answers, the preferred one first: section 3.2 requires JSON-LD of all receivers."""
_CONTAINS: Final = ox.NamedNode(f"{LDP}contains")
_TYPE: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_CONTAINER: Final = ox.NamedNode(f"{LDP}Container")
_CONTEXT: Final = {"ldp": LDP, "contains": {"@id": "ldp:contains", "@type": "@id"}}
"""With these terms, programs find the notifications in `contains`, as in the examples of the Recommendation."""
_CONSTRAINTS: Final = f'</api/openapi.json#/paths/~1inbox/post>; rel="{LDP}constrainedBy"'
"""Link to the constraints on notifications (Linked Data Platform 1.0, section 4.2.1.6)."""
_OFFER: Final = {
    "Accept-Post": ", ".join((_JSON_LD, *(each for each in FORMATS if each != _JSON_LD), RDF_JSON)),
    "Link": _CONSTRAINTS,
}
"""Headers that tell senders which notifications an inbox accepts."""


@dataclass(frozen=True, slots=True)
class Inboxes:
    """The inboxes for one request."""

    METHODS: ClassVar[list[str]] = ["GET", "POST", "DELETE"]
    OPTIONS: ClassVar[dict[str, str]] = _OFFER
    """Headers of an answer to OPTIONS."""

    engine: OperatedEngine
    settings: HttpGateSettings
    timeout: float
    """Seconds for reading an inbox or a notification."""
    source: str
    """Client, for quotas and rate limits."""

    async def serve(self, request: Request, access: Access, recheck: Callable[[Request], Access]) -> Response:
        """Answer a request. `recheck` returns the permissions again after the body was read. Raises `EdgeError`."""
        address, conditions = read_address(request.scope["query_string"]), read_conditions(request)
        reads = request.method in ("GET", "HEAD")
        request.scope[PRIMITIVE] = "query" if reads else "update"
        check(access, "query" if reads else "update")
        if reads:
            return await self._get(request, address, access, conditions)
        if request.method == ("POST" if address.notification else "DELETE"):
            allowed = ["GET", "HEAD", "OPTIONS", "DELETE" if address.notification else "POST"]
            raise HTTPException(405, headers={"Allow": ", ".join(allowed)})
        _check_writable(address, access)
        if request.method == "DELETE":
            return await self._delete(address, access, conditions)
        charge: Charge = request.scope[CHARGE]
        try:
            return await self._post(request, address, conditions, recheck)
        except UnsupportedEncoding:
            raise
        except UnsupportedMediaType as error:
            return error_response(error, _OFFER)
        finally:
            charge.release()

    async def _get(self, request: Request, address: InboxAddress, access: Access, conditions: Conditions) -> Response:
        accept = request.headers.get("accept")
        media_type = choose(accept, _OFFERS) or choose_graph_format(accept)
        _check_readable(address, access)
        if address.notification:
            found = await self._notification(address, access, lambda reader: reader.representation(media_type))
            if found is None:
                raise _not_found()
        else:
            found = await self._listing(address, access, _base(request), media_type)
        headers = {"ETag": found.tag, "Vary": "Accept", **({} if address.notification else _OFFER)}
        if conditions.unchanged(found.tag):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers={**headers, "Content-Type": with_charset(media_type)})

    async def _listing(self, address: InboxAddress, access: Access, base: str, media_type: str) -> Representation:
        # Clients with the right to change the inbox can add other entries by SPARQL: they are bounded, and left out.
        text = f"SELECT ?n {{ {_entries(address)} }} LIMIT {2 * self.settings.max_notifications}"

        def read(answer: Answer) -> Representation:
            graphs = (row[0] for row in answer)  # type: ignore[union-attr]  # the rows of a SELECT
            found = (address.of(graph.value) for graph in graphs if isinstance(graph, ox.NamedNode))
            urls = sorted(base + each.path for each in found if each is not None)
            content = self._serialized(base + address.path, urls, media_type)
            return Representation(content, tag(hashlib.sha256(content).digest(), media_type))

        query = QueryRequest(text, access=replace(access, read=None), source=self.source)
        return await self._read(query, read)

    def _serialized(self, url: str, urls: list[str], media_type: str) -> bytes:
        most = self.settings.max_result
        if GRAPH_FORMATS[media_type] != ox.RdfFormat.JSON_LD:
            return serialize_graph(_container(url, urls), media_type, most, self.timeout)
        document = {"@context": _CONTEXT, "@id": url, "@type": "ldp:Container", "contains": urls}
        content = json.dumps(document, ensure_ascii=False).encode()
        if len(content) > most:
            raise ResultTooLarge(f"The list has {len(content):,} bytes, and http.max_result is {most:,}; raise it")
        return content

    async def _notification(
        self, address: InboxAddress, access: Access, read: Callable[[GraphReader], Callable[[Answer], T]]
    ) -> T:
        reader = GraphReader(address.graph, self.settings.max_result, self.timeout)
        return await self._read(reader.request(access, self.source), read(reader))

    async def _read(self, query: QueryRequest, read: Callable[[Answer], T]) -> T:
        try:
            async with asyncio.timeout(self.timeout):
                return await result(self.engine.read(query, read))
        except TimeoutError:
            raise RequestTimeout(
                f"Reading took longer than {self.timeout:g} s, the limit engine.query_timeout; try again later"
            ) from None

    async def _post(
        self, request: Request, inbox: InboxAddress, conditions: Conditions, recheck: Callable[[Request], Access]
    ) -> Response:
        """Store a notification. The caller releases the charge for the body, also if the client disconnects."""
        if conditions.given:
            raise InvalidRequest("A notification has no condition: leave out If-Match and If-None-Match")
        media_type = content_type(request).media_type
        check_format(media_type)
        address = inbox.new()
        url = _base(request) + address.path
        body = await read_text(request, self.settings)
        charge: Charge = request.scope[CHARGE]
        charge.set(sys.getsizeof(body))
        access = recheck(request)
        check(access, "update")
        _check_writable(address, access)
        text = await asyncio.to_thread(_insertion, body, media_type, url, address, self.settings.max_notifications)
        outcome = await self._update(address, access, text)
        if not outcome.added:
            raise TooManyRequests(
                f"The inbox is full: it has {self.settings.max_notifications:,} notifications, the limit "
                "http.max_notifications. DELETE some of them"
            )
        return Response(status_code=201, headers={"Location": url})

    async def _delete(self, address: InboxAddress, access: Access, conditions: Conditions) -> Response:
        condition = None
        if conditions.given:
            _check_readable(address, access)
            # In this order: the writer then refuses the update if the notification has changed since it was read.
            watch = await result(self.engine.watch(address.graph, access, self.source))
            conditions.check(await self._notification(address, access, lambda reader: reader.tags))
            condition = Precondition(address.graph, watch=watch)
        inbox, graph = ox.NamedNode(address.inbox), ox.NamedNode(address.graph)
        text = f"DROP SILENT GRAPH {graph} ; DELETE DATA {{ GRAPH {inbox} {{ {inbox} {_CONTAINS} {graph} }} }}"
        outcome = await self._update(address, access, text, condition)
        if not outcome.dropped and not outcome.removed:
            raise _not_found()
        return Response(status_code=204)

    async def _update(
        self, address: InboxAddress, access: Access, text: str, condition: Precondition | None = None
    ) -> UpdateOutcome:
        # The text reads the list only. Without a limit of reading the engine evaluates it 20 times as fast.
        access = replace(access, read=None, write=frozenset({address.inbox, address.graph}))
        update = UpdateRequest(text, access=access, source=self.source, condition=condition)
        (outcome,) = await shielded(self.engine.update([update]))
        return outcome


def _insertion(body: str, media_type: str, url: str, address: InboxAddress, most: int) -> str:
    """Return an update that stores a notification, unless the inbox is full. `url`: base of relative IRIs.

    The writer counts and inserts in one step, so senders at the same time cannot exceed the limit.
    """
    lines = "".join(f"{triple} .\n" for triple in read_graph(body, media_type, url))
    if not lines:
        raise InvalidRequest("The notification has no triples; JSON-LD needs absolute IRIs or an @context")
    inbox, graph = ox.NamedNode(address.inbox), ox.NamedNode(address.graph)
    return (
        f"INSERT {{ GRAPH {graph} {{\n{lines}}} GRAPH {inbox} {{ {inbox} {_CONTAINS} {graph} }} }} WHERE {{ "
        f"{{ SELECT (COUNT(?n) AS ?number) {{ {_entries(address)} }} }} "
        f"FILTER(?number < {most}) }}"
    )


def _entries(address: InboxAddress) -> str:
    """Return the pattern of the notifications ?n in the list of an inbox."""
    inbox = ox.NamedNode(address.inbox)
    return f'GRAPH {inbox} {{ {inbox} {_CONTAINS} ?n }} FILTER(STRSTARTS(STR(?n), "{address.inbox}:"))'


def _container(url: str, urls: list[str]) -> Iterator[ox.Triple]:
    inbox = ox.NamedNode(url)
    yield ox.Triple(inbox, _TYPE, _CONTAINER)
    for each in urls:
        yield ox.Triple(inbox, _CONTAINS, ox.NamedNode(each))


def _base(request: Request) -> str:
    """Return the URL of the gateway as the client wrote it, without a slash at the end. Raises `InvalidRequest`."""
    base = str(request.base_url).rstrip("/")
    try:
        return ox.NamedNode(base).value
    except ValueError:
        raise InvalidRequest(
            "The header Host is not the name of a host; send the name and port of this server"
        ) from None


def _check_readable(address: InboxAddress, access: Access) -> None:
    if not access.reads(address.inbox):
        raise Forbidden(f"This client may not read the graph <{address.inbox}>; the operator can allow it")


def _check_writable(address: InboxAddress, access: Access) -> None:
    if access.write is not None and address.inbox not in access.write:
        raise Forbidden(f"This client may not change the graph <{address.inbox}>; the operator can allow it")


def _not_found() -> NotFound:
    return NotFound("The inbox has no such notification; GET of the inbox lists them")
