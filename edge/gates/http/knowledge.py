"""The resource `/kb`: the live graph, as clients of RDF stream processors use it.

They call it static knowledge. In addition to the operations of SPARQL, they send forms with the field `action`:
"update" with `queryBody`, "put" with `iri` and `serialization` (RDF/XML), and "delete" with `iri`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Final

import pyoxigraph as ox
from starlette.requests import Request

from edge.gates.http.body import FORM, content_type, parse_parameters, read_form
from edge.gates.http.rdf_body import read_graph
from edge.gates.http.sparql import Operation, Primitive, operation_of, read_operation
from edge.gates.settings import HttpGateSettings
from edge.protocol.errors import InvalidRequest

_RDF_XML: Final = "application/rdf+xml"


async def read_knowledge(request: Request, accepted: Collection[Primitive], settings: HttpGateSettings) -> Operation:
    """Return the operation of a request to `/kb`.

    Raises as `read_operation`.
    """
    if request.method != "POST" or content_type(request).media_type != FORM:
        return await read_operation(request, accepted, settings)
    parameters = [*parse_parameters(request.scope["query_string"]), *await read_form(request, settings)]
    actions = [value for name, value in parameters if name == "action"]
    if not actions:
        return operation_of(parameters, accepted)
    if len(actions) > 1:
        raise InvalidRequest('The parameter "action" must be given once')
    text = await asyncio.to_thread(_update, actions[0], parameters, str(request.base_url))
    return replace(operation_of([("update", text)], ["update"]), brief=True)


def _update(action: str, parameters: list[tuple[str, str]], base: str) -> str:
    """Return the SPARQL update of an action. Raises `InvalidRequest`."""
    if action == "update":
        return _field(parameters, "queryBody", action)
    if action not in ("put", "delete"):
        raise InvalidRequest('"action" can be "update", "put" or "delete"')
    graph = _graph(_field(parameters, "iri", action))
    drop = f"DROP SILENT GRAPH {graph}"
    if action == "delete":
        return drop
    triples = read_graph(_field(parameters, "serialization", action), _RDF_XML, base)
    lines = "".join(f"{triple} .\n" for triple in triples)
    return f"{drop} ;\nINSERT DATA {{ GRAPH {graph} {{\n{lines}}} }}" if lines else drop


def _field(parameters: list[tuple[str, str]], wanted: str, action: str) -> str:
    values = [value for name, value in parameters if name == wanted]
    if len(values) != 1:
        raise InvalidRequest(
            f'The action "{action}" needs the parameter "{wanted}" once, and has it {len(values)} times'
        )
    return values[0]


def _graph(iri: str) -> ox.NamedNode:
    try:
        return ox.NamedNode(iri)
    except ValueError as error:
        raise InvalidRequest(f'"iri" is not an absolute IRI: {error}') from None
