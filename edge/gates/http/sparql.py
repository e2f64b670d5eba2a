"""The operations of the SPARQL 1.1 Protocol (https://www.w3.org/TR/sparql11-protocol/, section 2) in HTTP requests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request

from edge.engine.requests import Dataset
from edge.gates.http.body import FORM, content_type, parse_parameters, read_form, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.due_time import When, read_when
from edge.protocol.errors import InvalidRequest, UnsupportedMediaType

Primitive = Literal["query", "update"]

_DIRECT: dict[str, Primitive] = {
    "application/sparql-query": "query",
    "application/sparql-update": "update",
}
_DATASET: dict[Primitive, tuple[str, str]] = {
    "query": ("default-graph-uri", "named-graph-uri"),
    "update": ("using-graph-uri", "using-named-graph-uri"),
}


@dataclass(frozen=True, slots=True)
class Operation:
    """A query or an update, as a client sent it."""

    primitive: Primitive
    text: str
    dataset: Dataset
    when: When | None = None
    """When a delayed update is to be run."""
    name: str | None = None
    """The id that the client wants for it."""
    brief: bool = False
    """Whether the answer to an update is only its text, as a JSON string."""


async def read_operation(request: Request, accepted: Collection[Primitive], settings: HttpGateSettings) -> Operation:
    """The operation in a GET or POST request to a path that takes the `accepted` ones.

    Raises `InvalidRequest`, `UnsupportedMediaType`, `TooLarge`, `RequestTimeout`.
    """
    parameters = parse_parameters(request.scope["query_string"])
    if request.method in ("GET", "HEAD"):
        if any(name == "update" for name, _ in parameters):
            raise InvalidRequest("Updates are sent with POST: a GET must change nothing")
        return operation_of(parameters, ["query"])
    media_type = content_type(request).media_type
    if media_type == FORM:
        return operation_of([*parameters, *await read_form(request, settings)], accepted)
    primitive = _DIRECT.get(media_type)
    if primitive is None or primitive not in accepted:
        types = [name for name, direct in _DIRECT.items() if direct in accepted]
        shown = f'the content type "{media_type}"' if media_type else "a body without content type"
        raise UnsupportedMediaType(f"Cannot take {shown} here: send {', '.join([*types, FORM])}")
    for name, _ in parameters:
        if name in _DATASET:
            raise InvalidRequest(f'With {media_type} the text is the body: leave out the parameter "{name}"')
    text = await read_text(request, settings)
    return _operation(primitive, text, parameters)


def operation_of(parameters: list[tuple[str, str]], accepted: Collection[Primitive]) -> Operation:
    """Return the operation in parameters of a URL or of a form. Raises `InvalidRequest`."""
    texts: list[tuple[Primitive, str]] = [
        (primitive, value) for primitive in accepted for name, value in parameters if name == primitive
    ]
    names = " or ".join(f'"{primitive}"' for primitive in accepted)
    if not texts:
        raise InvalidRequest(f"The parameter {names} is missing")
    if len(texts) > 1:
        raise InvalidRequest(f"The parameter {names} must be given once, and is there {len(texts)} times")
    primitive, text = texts[0]
    return _operation(primitive, text, parameters)


def _operation(primitive: Primitive, text: str, parameters: list[tuple[str, str]]) -> Operation:
    dataset = _dataset(primitive, parameters)
    delay, at, name = (_single(parameter, parameters) for parameter in ("delay", "at", "id"))
    if primitive == "query":
        if delay is not None or at is not None:
            raise InvalidRequest('"delay" and "at" are for updates; a query is answered at once')
        return Operation(primitive, text, dataset)
    try:
        when = read_when(delay, at, name)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    return Operation(primitive, text, dataset, when, name)


def _single(wanted: str, parameters: list[tuple[str, str]]) -> str | None:
    values = [value for name, value in parameters if name == wanted]
    if len(values) > 1:
        raise InvalidRequest(f'The parameter "{wanted}" must be given once, and is there {len(values)} times')
    return values[0] if values else None


def _dataset(primitive: Primitive, parameters: list[tuple[str, str]]) -> Dataset:
    """The dataset that the parameters give; section 2.1.4 and 2.2.3. Empty values count as not given."""
    default_name, named_name = _DATASET[primitive]
    given: dict[str, list[str]] = {}
    for name, value in parameters:
        if value:
            given.setdefault(name, []).append(value)
    other: Primitive = "update" if primitive == "query" else "query"
    for name in _DATASET[other]:
        if name in given:
            raise InvalidRequest(f'"{name}" is for {other} requests; a {primitive} takes {default_name}, {named_name}')
    defaults, named = given.get(default_name), given.get(named_name)
    return Dataset.of(defaults, named)
