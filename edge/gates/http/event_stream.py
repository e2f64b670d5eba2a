"""The stored observations as a Linked Data Event Stream (LDES 1.0) on pages of the TREE hypermedia specification.

The root node at `/ldes/observations` links to sections, and each section to its pages. A client that reads again all
nodes that may change finds each new page: no page is reachable through immutable nodes only.
https://w3id.org/ldes/specification, https://w3id.org/tree/specification
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import pyoxigraph as ox
from starlette.requests import Request
from starlette.responses import Response

from edge.gates.http.body import parse_parameters
from edge.gates.http.boundary import EVENT_STREAM, error_response
from edge.gates.http.conditions import read_conditions
from edge.gates.http.formats import GRAPH_FORMATS, with_charset
from edge.gates.http.graph_content import tag
from edge.gates.result_limit import ResultLimit
from edge.negotiation import choose
from edge.protocol.access import Access
from edge.protocol.errors import Gone, InvalidRequest, NotAcceptable, NotFound, RequestTimeout
from edge.protocol.event_stream import Link, Member, NodeName, StreamNode, StreamOutline, read_name
from edge.protocol.series import Value

_XML: Final = ox.RdfFormat.RDF_XML
FORMATS: Final = {
    **{media_type: form for media_type, form in GRAPH_FORMATS.items() if form != _XML},
    "application/n-quads": ox.RdfFormat.N_QUADS,
    "application/trig": ox.RdfFormat.TRIG,
}
"""Media types of the nodes, the preferred one first. Texts may have characters that XML cannot carry."""

_LDES: Final = "https://w3id.org/ldes#"
_TREE: Final = "https://w3id.org/tree#"
_DCTERMS: Final = "http://purl.org/dc/terms/"
_SOSA: Final = "http://www.w3.org/ns/sosa/"
_QUDT: Final = "http://qudt.org/1.1/schema/qudt#"
_TIME: Final = "http://www.w3.org/2006/time#"
_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_PREFIXES: Final = {
    "ldes": _LDES,
    "tree": _TREE,
    "dcterms": _DCTERMS,
    "sosa": _SOSA,
    "qudt": _QUDT,
    "time": _TIME,
    "xsd": _XSD,
}

_TYPE: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_EVENT_STREAM: Final = ox.NamedNode(f"{_LDES}EventStream")
_TIMESTAMP_PATH: Final = ox.NamedNode(f"{_LDES}timestampPath")
_VERSION_OF_PATH: Final = ox.NamedNode(f"{_LDES}versionOfPath")
_VERSION_TIMESTAMP_PATH: Final = ox.NamedNode(f"{_LDES}versionTimestampPath")
_POLLING_INTERVAL: Final = ox.NamedNode(f"{_LDES}pollingInterval")
_RETENTION_POLICY: Final = ox.NamedNode(f"{_LDES}retentionPolicy")
_POLICY: Final = ox.NamedNode(f"{_LDES}RetentionPolicy")
_FULL_LOG_DURATION: Final = ox.NamedNode(f"{_LDES}fullLogDuration")
_IMMUTABLE: Final = ox.NamedNode(f"{_LDES}immutable")
_NODE: Final = ox.NamedNode(f"{_TREE}Node")
_VIEW: Final = ox.NamedNode(f"{_TREE}view")
_MEMBER: Final = ox.NamedNode(f"{_TREE}member")
_RELATION: Final = ox.NamedNode(f"{_TREE}relation")
_NOT_BEFORE: Final = ox.NamedNode(f"{_TREE}GreaterThanOrEqualToRelation")
_NOT_AFTER: Final = ox.NamedNode(f"{_TREE}LessThanOrEqualToRelation")
_TO_NODE: Final = ox.NamedNode(f"{_TREE}node")
_PATH: Final = ox.NamedNode(f"{_TREE}path")
_BOUND: Final = ox.NamedNode(f"{_TREE}value")
_VERSION_OF: Final = ox.NamedNode(f"{_DCTERMS}isVersionOf")
_ISSUED: Final = ox.NamedNode(f"{_DCTERMS}issued")
_OBSERVATION: Final = ox.NamedNode(f"{_SOSA}Observation")
_RESULT_TIME: Final = ox.NamedNode(f"{_SOSA}resultTime")
_HAS_RESULT: Final = ox.NamedNode(f"{_SOSA}hasResult")
_QUANTITY: Final = ox.NamedNode(f"{_QUDT}QuantityValue")
_NUMERIC_VALUE: Final = ox.NamedNode(f"{_QUDT}numericValue")
_HAS_TIME: Final = ox.NamedNode(f"{_TIME}hasTime")
_INSTANT: Final = ox.NamedNode(f"{_TIME}Instant")
_STAMP: Final = ox.NamedNode(f"{_TIME}inXSDDateTimeStamp")
_DATE_TIME: Final = ox.NamedNode(f"{_XSD}dateTime")
_DATE_TIME_STAMP: Final = ox.NamedNode(f"{_XSD}dateTimeStamp")
_DURATION: Final = ox.NamedNode(f"{_XSD}duration")

MOST_BYTES: Final = 32 * 1024 * 1024
"""Largest node. It is not a setting: with the limits of the stream, all nodes are much smaller."""
_LONGEST_ROOT: Final = 500
"""Characters of the URL of the root node. Pages have it with each member."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TRUE: Final = ox.Literal(True)


class EventStream(Protocol):
    """The event stream. Its methods may take long, and any thread may call them."""

    def outline(self, timeout: float) -> StreamOutline:
        """Return the sections of the stream, within `timeout` seconds. Raises `EdgeError`."""

    def node(self, name: NodeName, access: Access, timeout: float) -> StreamNode:
        """Return a section, or a page with the members that the client may read, within `timeout` seconds.

        Raises `EdgeError`.
        """


@dataclass(frozen=True, slots=True)
class _EncodedNode:
    """A node in one format."""

    content: bytes
    complete: bool
    """Whether the node cannot change any more."""


@dataclass(frozen=True, slots=True)
class EventStreamResource:
    """The nodes of the event stream for one request."""

    stream: EventStream | None
    """None: the gateway keeps no recent values."""
    timeout: float
    """Seconds for reading a node."""
    slots: asyncio.Semaphore
    """Requests that read the recent history at the same time."""

    async def serve(self, request: Request, access: Access) -> Response:
        """Answer a GET or HEAD of a client that may query. Raises `EdgeError`."""
        try:
            return await self._serve(request, access)
        except (NotFound, Gone) as error:
            # By default, caches may keep these responses (RFC 9110, section 15.1), but a page may begin later.
            return error_response(error, {"Cache-Control": "no-cache"})

    async def _serve(self, request: Request, access: Access) -> Response:
        stream = self.stream
        if stream is None:
            raise NotFound("The gateway keeps no recent values: the setting recent.enabled is false")
        if parse_parameters(request.scope["query_string"]):
            raise InvalidRequest("The event stream has no parameters: leave out the part of the URL after ?")
        conditions = read_conditions(request)
        media_type = choose(request.headers.get("accept"), list(FORMATS))
        if media_type is None:
            raise NotAcceptable(f"The event stream is available as {', '.join(FORMATS)}")
        name = self._name(request)
        root = _root(request)
        deadline = time.monotonic() + self.timeout

        def read() -> _EncodedNode:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RequestTimeout(f"The request waited for {self.timeout:g} s behind others; try again later")
            if name is None:
                return _EncodedNode(serialized(outline_triples(root, stream.outline(left)), media_type, left), False)
            node = stream.node(name, access, left)
            return _EncodedNode(serialized(node_triples(root, name, node), media_type, left), node.complete)

        async with self.slots:
            found = await asyncio.to_thread(read)
        entity_tag = tag(hashlib.sha256(found.content).digest(), media_type)
        headers = {"ETag": entity_tag, "Vary": "Accept, Authorization", "Cache-Control": _caching(request, found)}
        if conditions.unchanged(entity_tag):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers={**headers, "Content-Type": with_charset(media_type)})

    def _name(self, request: Request) -> NodeName | None:
        """Return the requested section or page; None: the root node."""
        text: str | None = request.path_params.get("node")
        if text is None:
            return None
        name = read_name(text)
        if name is None:
            raise NotFound(f"The event stream has no node of this name; {EVENT_STREAM} links to all nodes")
        return name


def serialized(triples: Iterator[ox.Triple], media_type: str, seconds: float) -> bytes:
    """Return a node in one format, made within `seconds`. Raises `RequestTimeout`, `ResultTooLarge`."""
    output = ResultLimit(MOST_BYTES, seconds, "limit of the event stream")
    form = FORMATS[media_type]
    prefixes = _PREFIXES if form in (ox.RdfFormat.TURTLE, ox.RdfFormat.TRIG) else None
    ox.serialize(triples, output, format=form, prefixes=prefixes)
    content = output.getvalue()
    if prefixes:
        # The serialiser declares them in an order that changes. An unchanged node must have the same bytes.
        *declared, rest = content.split(b"\n", len(prefixes))
        content = b"\n".join([*sorted(declared), rest])
    return content


def _caching(request: Request, found: _EncodedNode) -> str:
    """Return the value of `Cache-Control` (RFC 9111, RFC 8246)."""
    scope = "private" if "authorization" in request.headers else "public"
    return f"{scope}, max-age=86400, immutable" if found.complete else f"{scope}, no-cache"


def _root(request: Request) -> str:
    """Return the URL of the root node as the client wrote it. Raises `InvalidRequest`."""
    root = str(request.base_url).rstrip("/") + EVENT_STREAM
    try:
        if len(root) <= _LONGEST_ROOT:
            return ox.NamedNode(root).value
    except ValueError:
        pass
    raise InvalidRequest("The header Host is not the name of a host; send the name and port of this server")


def _stream(root: str) -> ox.NamedNode:
    return ox.NamedNode(f"{root}#stream")


def outline_triples(root: str, outline: StreamOutline) -> Iterator[ox.Triple]:
    """Yield the triples of the root node: the context of the stream, and links to its sections."""
    stream, node, policy = _stream(root), ox.NamedNode(root), ox.NamedNode(f"{root}#retention")
    yield ox.Triple(stream, _TYPE, _EVENT_STREAM)
    yield ox.Triple(stream, _VIEW, node)
    yield ox.Triple(stream, _TIMESTAMP_PATH, _ISSUED)
    yield ox.Triple(stream, _VERSION_OF_PATH, _VERSION_OF)
    yield ox.Triple(stream, _VERSION_TIMESTAMP_PATH, _RESULT_TIME)
    yield ox.Triple(stream, _POLLING_INTERVAL, ox.Literal(outline.interval))
    yield ox.Triple(node, _TYPE, _NODE)
    yield ox.Triple(node, _RETENTION_POLICY, policy)
    yield ox.Triple(policy, _TYPE, _POLICY)
    yield ox.Triple(policy, _FULL_LOG_DURATION, ox.Literal(f"PT{outline.retention}S", datatype=_DURATION))
    yield from _links(root, node, outline.sections)


def node_triples(root: str, name: NodeName, found: StreamNode) -> Iterator[ox.Triple]:
    """Yield the triples of a section or page."""
    stream, node = _stream(root), ox.NamedNode(f"{root}/{name}")
    yield ox.Triple(node, _TYPE, _NODE)
    if found.complete:
        yield ox.Triple(node, _IMMUTABLE, _TRUE)
    yield from _links(root, node, found.links)
    for member in found.members:
        yield from _member(stream, member)


def _links(root: str, node: ox.NamedNode, links: Iterable[Link]) -> Iterator[ox.Triple]:
    for link in links:
        # The names of blank nodes are fixed, so that an unchanged node has the same bytes.
        label = str(link.name).replace("-", "p")
        yield from _relation(node, ox.BlankNode(f"b{label}"), _NOT_BEFORE, f"{root}/{link.name}", link.begins)
        if link.ends is not None:
            yield from _relation(node, ox.BlankNode(f"a{label}"), _NOT_AFTER, f"{root}/{link.name}", link.ends)


def _relation(
    node: ox.NamedNode, relation: ox.BlankNode, kind: ox.NamedNode, target: str, bound: int
) -> Iterator[ox.Triple]:
    yield ox.Triple(node, _RELATION, relation)
    yield ox.Triple(relation, _TYPE, kind)
    yield ox.Triple(relation, _TO_NODE, ox.NamedNode(target))
    yield ox.Triple(relation, _PATH, _ISSUED)
    yield ox.Triple(relation, _BOUND, ox.Literal(_text(bound), datatype=_DATE_TIME))


def _member(stream: ox.NamedNode, member: Member) -> Iterator[ox.Triple]:
    """Yield the triples of a member: a version of an observation, in the form of the live graph."""
    version = ox.NamedNode(f"{member.observation}/{member.section:012x}-{member.position}")
    result, instant = ox.BlankNode(f"r{member.position}"), ox.BlankNode(f"t{member.position}")
    measured = _text(member.time)
    yield ox.Triple(stream, _MEMBER, version)
    yield ox.Triple(version, _TYPE, _OBSERVATION)
    yield ox.Triple(version, _VERSION_OF, ox.NamedNode(member.observation))
    yield ox.Triple(version, _ISSUED, ox.Literal(_text(member.published), datatype=_DATE_TIME))
    yield ox.Triple(version, _RESULT_TIME, ox.Literal(measured, datatype=_DATE_TIME))
    yield ox.Triple(version, _HAS_RESULT, result)
    yield ox.Triple(result, _TYPE, _QUANTITY)
    yield ox.Triple(result, _NUMERIC_VALUE, _literal(member.value))
    yield ox.Triple(result, _HAS_TIME, instant)
    yield ox.Triple(instant, _TYPE, _INSTANT)
    yield ox.Triple(instant, _STAMP, ox.Literal(measured, datatype=_DATE_TIME_STAMP))


_literal: Final[Callable[[Value], ox.Literal]] = ox.Literal


def _text(at: int) -> str:
    """Return a time in microseconds since 1970 with a fixed number of digits, so that texts sort as times do."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
