"""The parameters of requests for delayed updates."""

from __future__ import annotations

from typing import cast, get_args

from starlette.requests import Request

from edge.gates.http.body import parse_parameters
from edge.protocol.errors import InvalidRequest
from edge.protocol.timers import DEFAULT_LISTED, MAX_LISTED, TimerState


def read_listing(request: Request) -> tuple[TimerState | None, int]:
    """Return the wanted state and the maximum number of delayed updates. Raises `InvalidRequest`."""
    parameters = dict(parse_parameters(request.scope["query_string"]))
    state = parameters.get("state")
    if state is not None and state not in get_args(TimerState):
        raise InvalidRequest(f'"state" must be one of {", ".join(get_args(TimerState))}')
    limit = parameters.get("limit", str(DEFAULT_LISTED))
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit) <= MAX_LISTED):
        raise InvalidRequest(f'"limit" must be a number from 1 to {MAX_LISTED}')
    return cast("TimerState | None", state), int(limit)


def read_client(request: Request) -> str | None:
    """Return the owner of the requested delayed update; None: the client itself. Raises `InvalidRequest`."""
    return dict(parse_parameters(request.scope["query_string"])).get("client")
