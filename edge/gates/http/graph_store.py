"""The resource `/graph-store`: SPARQL 1.1 Graph Store HTTP Protocol (W3C Recommendation, 21 March 2013).

The client names a graph in the URL: `?graph=IRI`, or `?default` (indirect identification, section 4.2). Direct
identification is not possible: a gateway has several host names and ports, so the URL of a request does not tell the
IRI of a graph.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeVar
from urllib.parse import quote

import pyoxigraph as ox
from starlette.requests import Request
from starlette.responses import Response

from edge.engine.admission.byte_quota import Charge
from edge.engine.requests import Answer, Precondition, UpdateOutcome, UpdateRequest
from edge.gates.engine_interface import OperatedEngine
from edge.gates.guard import check
from edge.gates.http.body import CHARGE, content_type, parse_parameters, read_text
from edge.gates.http.boundary import GRAPH_STORE, PRIMITIVE, error_response
from edge.gates.http.conditions import Conditions, read_conditions
from edge.gates.http.engine_future import result, shielded
from edge.gates.http.formats import choose_graph_format, with_charset
from edge.gates.http.graph_content import GraphReader
from edge.gates.http.graph_patch import limited_to
from edge.gates.http.inbox_address import inbox_link
from edge.gates.http.rdf_body import check_format, read_graph
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import DEFAULT_GRAPH, Access
from edge.protocol.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    RequestTimeout,
    UnsupportedEncoding,
    UnsupportedMediaType,
    UpdateConflict,
)

T = TypeVar("T")

_UPDATE: Final = "application/sparql-update"
_ACCEPT_PATCH: Final = {"Accept-Patch": _UPDATE}
"""Header with the media types of PATCH (RFC 5789, section 3.1)."""
_LONGEST_IRI: Final = 2_000
"""Characters of the IRI of a graph. The update of a PATCH has it in each operation."""
_LONGEST_PATCH: Final = 1024 * 1024
"""Bytes of the body of a PATCH. The gate holds all its tokens in memory."""
_TRIES: Final = 5
"""Attempts at a conditional change while other clients change the graph."""
_REMEDY: Final = "use ?graph= with the percent-encoded IRI of a graph, or ?default"


@dataclass(frozen=True, slots=True)
class GraphStore:
    """The graph store for one request."""

    METHODS: ClassVar[list[str]] = ["GET", "PUT", "POST", "DELETE", "PATCH"]
    OPTIONS: ClassVar[dict[str, str]] = _ACCEPT_PATCH
    """Headers of an answer to OPTIONS."""

    engine: OperatedEngine
    settings: HttpGateSettings
    timeout: float
    """Seconds for reading a graph."""
    source: str
    """Client, for quotas and rate limits."""

    async def serve(self, request: Request, access: Access, recheck: Callable[[Request], Access]) -> Response:
        """Answer a request. `recheck` returns the permissions again after the body was read. Raises `EdgeError`."""
        conditions = read_conditions(request)
        if request.method in ("GET", "HEAD"):
            request.scope[PRIMITIVE] = "query"
            check(access, "query")
            return await self._get(request, _required(_graph(request)), access, conditions)
        request.scope[PRIMITIVE] = "update"
        check(access, "update")
        graph = _graph(request)
        if graph is None and request.method == "POST":
            if access.write is not None:
                raise Forbidden(
                    f"This client may not change all graphs, so it cannot add one without a name; {_REMEDY}"
                )
            graph = f"urn:uuid:{uuid.uuid4()}"
        graph = _required(graph)
        _check_writable(graph, access)
        charge: Charge = request.scope[CHARGE]
        try:
            return await self._change(request, graph, conditions, recheck)
        except UnsupportedMediaType as error:
            if request.method != "PATCH" or isinstance(error, UnsupportedEncoding):
                raise
            return error_response(error, _ACCEPT_PATCH)  # RFC 5789, section 2.2
        finally:
            charge.release()

    async def _change(
        self, request: Request, graph: str, conditions: Conditions, recheck: Callable[[Request], Access]
    ) -> Response:
        """Change a graph. The caller releases the charge for the body, also if the client disconnects."""
        text = await self._text(request, graph)
        check(access := recheck(request), "update")
        if request.method == "PATCH":
            access = _only(graph, access)
        outcome = await self._update(graph, UpdateRequest(text, access=access, source=self.source), conditions)
        if request.method == "DELETE" and graph and not outcome.dropped:
            raise _not_found(graph)
        if outcome.created:
            return Response(status_code=201, headers={"Location": f"{GRAPH_STORE}?graph={quote(graph, safe='')}"})
        return Response(status_code=204)

    async def _get(self, request: Request, graph: str, access: Access, conditions: Conditions) -> Response:
        media_type = choose_graph_format(request.headers.get("accept"))
        if not access.reads(graph):
            raise _not_found(graph)
        found = await self._read(graph, access, lambda reader: reader.representation(media_type))
        if found is None:
            if conditions.match is not None:
                conditions.check(())
            raise _not_found(graph)
        headers = {"ETag": found.tag, "Vary": "Accept", **(inbox_link("graph", graph) if graph else {})}
        if conditions.unchanged(found.tag):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers={**headers, "Content-Type": with_charset(media_type)})

    async def _read(self, graph: str, access: Access, read: Callable[[GraphReader], Callable[[Answer], T]]) -> T:
        reader = GraphReader(graph, self.settings.max_result, self.timeout)
        try:
            async with asyncio.timeout(self.timeout):
                return await result(self.engine.read(reader.request(access, self.source), read(reader)))
        except TimeoutError:
            raise RequestTimeout(
                f"Reading the graph took longer than {self.timeout:g} s (engine.query_timeout); query a part of it"
            ) from None

    async def _text(self, request: Request, graph: str) -> str:
        """Return the SPARQL update of a request. The body stays charged to the client."""
        charge: Charge = request.scope[CHARGE]
        drop = f"DROP SILENT GRAPH {ox.NamedNode(graph)}" if graph else "CLEAR DEFAULT"
        if request.method == "DELETE":
            return drop
        media_type = content_type(request).media_type
        if request.method == "PATCH":
            if media_type != _UPDATE:
                raise UnsupportedMediaType(f'Cannot take "{media_type}" as a PATCH: send {_UPDATE}')
            body = await read_text(request, self.settings, _LONGEST_PATCH)
            charge.set(sys.getsizeof(body))
            return await asyncio.to_thread(limited_to, graph, body, self.settings.max_message)
        if request.method == "PUT" and "content-range" in request.headers:  # RFC 9110, section 14.5
            raise InvalidRequest(
                "PUT replaces the whole graph, and Content-Range is for a part of it: leave out Content-Range, or add "
                "triples by POST"
            )
        check_format(media_type)
        body = await read_text(request, self.settings)
        charge.set(sys.getsizeof(body))
        base = graph or str(request.url.replace(query=""))
        data = await asyncio.to_thread(_data, body, media_type, base, graph)
        create = [f"CREATE SILENT GRAPH {ox.NamedNode(graph)}"] if graph else []
        return " ;\n".join([*([drop] if request.method == "PUT" else []), *create, *data])

    async def _update(self, graph: str, update: UpdateRequest, conditions: Conditions) -> UpdateOutcome:
        """Run an update under the conditions of the request."""
        if conditions.given and not update.access.reads(graph):
            raise Forbidden(
                "A conditional change needs the right to read the graph: leave out If-Match and If-None-Match"
            )
        if not conditions.given:
            return await self._run(update)
        exists = conditions.exists
        if exists is not None:
            if not graph:
                conditions.check({""})  # the default graph always exists
            return await self._run(replace(update, condition=Precondition(graph, exists=exists)))
        for _ in range(_TRIES):
            # In this order: the writer then refuses the update if the graph has changed since it was read.
            watch = await result(self.engine.watch(graph, update.access, self.source))
            conditions.check(await self._read(graph, update.access, lambda reader: reader.tags))
            try:
                return await self._run(replace(update, condition=Precondition(graph, watch=watch)))
            except PreconditionFailed:
                continue
        raise UpdateConflict(
            f"Other clients changed the graph during each of {_TRIES} attempts; nothing was changed. Send it again"
        )

    async def _run(self, update: UpdateRequest) -> UpdateOutcome:
        (outcome,) = await shielded(self.engine.update([update]))
        return outcome


def _graph(request: Request) -> str | None:
    """Return the IRI of the graph in the URL, empty for the default graph; None: it names none.

    Raises `InvalidRequest`.
    """
    parameters = parse_parameters(request.scope["query_string"])
    unknown = next((name for name, _ in parameters if name not in ("default", "graph")), None)
    if unknown is not None:
        raise InvalidRequest(f'"{unknown[:40]}" is not a parameter of the graph store: {_REMEDY}')
    if len(parameters) > 1:
        raise InvalidRequest(f"The URL names {len(parameters)} graphs, and must name one: {_REMEDY}")
    if not parameters:
        return None
    ((name, value),) = parameters
    if name == "default":
        if value:
            raise InvalidRequest(f'"default" has no value: {_REMEDY}')
        return DEFAULT_GRAPH
    if len(value) > _LONGEST_IRI:
        raise InvalidRequest(f'"graph" has more than {_LONGEST_IRI:,} characters: use a shorter IRI')
    try:
        return ox.NamedNode(value).value
    except ValueError as error:
        raise InvalidRequest(f'"graph" is not an absolute IRI ({error}): {_REMEDY}') from None


def _required(graph: str | None) -> str:
    if graph is None:
        raise InvalidRequest(f"The URL names no graph: {_REMEDY}")
    return graph


def _check_writable(graph: str, access: Access) -> None:
    """Raise `Forbidden` before the body is read. The engine checks it again."""
    if access.write is not None and graph not in access.write:
        raise Forbidden(f"This client may not change {_shown(graph)}; the operator can allow it")


def _only(graph: str, access: Access) -> Access:
    """Return the permissions for a PATCH: the engine refuses to change another graph, whatever the text says."""
    # The default graph may be set to be the union of all graphs. Then this keeps the others out of WHERE.
    read = frozenset({graph} if access.reads(graph) else ()) if graph == DEFAULT_GRAPH else access.read
    return replace(access, read=read, write=frozenset({graph}) if access.write is None else access.write & {graph})


def _not_found(graph: str) -> NotFound:
    return NotFound(f"T{_shown(graph)[1:]} does not exist, or this client may not read it; PUT creates it")


def _shown(graph: str) -> str:
    return f"the graph <{graph}>" if graph else "the default graph"


def _data(body: str, media_type: str, base: str, graph: str) -> list[str]:
    """Return an operation that inserts the triples of a body into a graph; none without triples."""
    lines = "".join(f"{triple} .\n" for triple in read_graph(body, media_type, base))
    if not lines:
        return []
    return [f"INSERT DATA {{ GRAPH {ox.NamedNode(graph)} {{\n{lines}}} }}" if graph else f"INSERT DATA {{\n{lines}}}"]
