"""Queries in HTTP requests (https://www.w3.org/TR/sparql11-protocol/, section 2.1)."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import pyoxigraph as ox
from starlette.requests import ClientDisconnect, Request

from spark_offload.connection_slots import BODY_GRACE
from spark_offload.http_problems import refuse

MOST: Final = 1 << 20
"""Maximum length of a body in bytes."""
_FORM: Final = "application/x-www-form-urlencoded"
_QUERY: Final = "application/sparql-query"
_UPDATE: Final = "application/sparql-update"
_DATASET: Final = ("default-graph-uri", "named-graph-uri")
_FIELDS: Final = 1000
"""Maximum number of parameters; a request needs a few, and graphs."""

Parameters = list[tuple[str, str]]


class QueryOperation(NamedTuple):
    """A query, and the dataset that the request gives instead of FROM and FROM NAMED."""

    text: str
    default_graphs: tuple[str, ...] = ()
    named_graphs: tuple[str, ...] = ()


async def read_operation(request: Request) -> QueryOperation | None:
    """Return the query of a request, or None for a GET without parameters. Status 4xx if the request is not valid."""
    parameters = _parameters(request.scope["query_string"])
    if request.method != "POST":
        return _operation(parameters) if parameters else None
    media_type, _, rest = request.headers.get("content-type", "").partition(";")
    media_type = media_type.strip().lower()
    if media_type == _UPDATE:
        _refuse_update()
    if media_type not in (_FORM, _QUERY):
        refuse(415, f'A body with the content type "{media_type}" is not supported: send {_QUERY} or {_FORM}')
    charset = rest.lower().replace('"', "").replace(" ", "").partition("charset=")[2].partition(";")[0]
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        refuse(415, f'The charset "{charset}" is not supported: send UTF-8')
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        refuse(415, "Send the body uncompressed, without the header Content-Encoding")
    body = await _body(request)
    if media_type == _FORM:
        return _operation([*parameters, *await asyncio.to_thread(_parameters, body)])
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        refuse(400, f"The query is not UTF-8: {error.reason} at byte {error.start}")
    return _operation([*parameters, ("query", text)])


def _operation(parameters: Parameters) -> QueryOperation:
    names = {name for name, _ in parameters}
    if names & {"update", "using-graph-uri", "using-named-graph-uri"}:
        _refuse_update()
    texts = [value for name, value in parameters if name == "query"]
    if len(texts) != 1:
        refuse(400, f'The parameter "query" must be given once, and is there {len(texts)} times')
    default, named = (tuple(value for one, value in parameters if one == name and value) for name in _DATASET)
    for graph in (*default, *named):
        try:
            ox.NamedNode(graph)
        except ValueError as error:
            refuse(400, f"<{graph}> is not the IRI of a graph: {error}")
    return QueryOperation(texts[0], default, named)


def _refuse_update() -> None:
    refuse(403, "The history cannot be changed with SPARQL Update: gateways send its observations")


def _parameters(text: bytes | bytearray) -> Parameters:
    try:
        return parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    except UnicodeDecodeError:
        refuse(400, "The parameters are not UTF-8 with percent-encoding")
    except ValueError:
        refuse(400, f"There are more than {_FIELDS} parameters")


async def _body(request: Request) -> bytearray:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_GRACE):
            async for part in request.stream():
                body += part
                if len(body) > MOST:
                    refuse(413, f"The body is longer than {MOST} bytes", {"Connection": "close"})
    except TimeoutError:
        refuse(408, f"The body took longer than {BODY_GRACE:g} s", {"Connection": "close"})
    except ClientDisconnect:
        refuse(400, "The client disconnected")  # the response is not sent; this only ends the request
    return body
