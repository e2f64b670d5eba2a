"""The messages of the SPARQL 1.1 Subscribe Language, JSON serialisation (seed draft; SEPA paper, Listings 1-4)."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from edge.protocol.errors import InvalidRequest


def _as_list(value: object) -> object:
    """Graph members come as arrays or as one string."""
    return [value] if isinstance(value, str) else value


GraphUris = Annotated[list[str] | None, BeforeValidator(_as_list)]


class SubscribeRequest(BaseModel):
    """`{"subscribe": {...}}`. Members that nobody defined are ignored: clients in the wild send some."""

    model_config = ConfigDict(extra="ignore", strict=True)

    sparql: str
    alias: str | None = None
    authorization: str | None = None
    default_graph_uri: GraphUris = Field(default=None, alias="default-graph-uri")
    named_graph_uri: GraphUris = Field(default=None, alias="named-graph-uri")
    timeout: float | None = None
    """Milliseconds after which the client no longer wants the answer; the gate may give up then."""


class UnsubscribeRequest(BaseModel):
    """`{"unsubscribe": {"spuid": ".."}}`."""

    model_config = ConfigDict(extra="ignore", strict=True)

    spuid: str
    authorization: str | None = None


Request = SubscribeRequest | UnsubscribeRequest

_REQUESTS: dict[str, type[SubscribeRequest] | type[UnsubscribeRequest]] = {
    "subscribe": SubscribeRequest,
    "unsubscribe": UnsubscribeRequest,
}


def parse_request(text: str | bytes) -> Request:
    """One JSON message from a client. Raises `InvalidRequest`, carrying the alias whenever it could be read."""
    try:
        message: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise InvalidRequest('The message must be a JSON object such as {"subscribe":{"sparql":"SELECT ..."}}')
    kinds = [kind for kind in _REQUESTS if kind in message]
    if len(kinds) != 1:
        raise InvalidRequest('The message must have exactly one of the members "subscribe", "unsubscribe"')
    body = message[kinds[0]]
    if not isinstance(body, dict):
        raise InvalidRequest(f'"{kinds[0]}" must be a JSON object')
    if "authorization" not in body and isinstance(message.get("authorization"), str):
        body = {**body, "authorization": message["authorization"]}
    alias = body.get("alias")
    try:
        return _REQUESTS[kinds[0]].model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        member = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(
            f'"{kinds[0]}": member "{member}": {first["msg"]}', alias=alias if isinstance(alias, str) else None
        ) from None
