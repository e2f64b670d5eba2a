"""Authentication of requests by tokens (RFC 6750), which a file of `Gateways` lists."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from starlette.requests import Request

from spark_offload.errors import GatewayRefused
from spark_offload.gateways import Gateways
from spark_offload.http_problems import refuse

AUTHENTICATED: Final = "authenticated"
"""Member of the state of a request: function that takes the owner of the token of the request."""

_log = logging.getLogger(__name__)


async def token_owner(request: Request, gateways: Gateways) -> str:
    """Return the name to which the token of a request belongs. Status 401 without a valid token."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    try:
        whose = await asyncio.to_thread(gateways.whose, token.strip()) if token else None
    except GatewayRefused as error:
        _log.error("%s", error)
        refuse(503, "The file of tokens cannot be read; the error is in the server's log")
    if scheme.lower() != "bearer" or whose is None:
        refuse(
            401,
            "Send a token as Authorization: Bearer TOKEN; `edge-history gateways add` creates one",
            {"WWW-Authenticate": 'Bearer realm="edge-history"'},
        )
    accepted(request, whose)
    return whose


def accepted(request: Request, client: str) -> None:
    """Let the connection of a request count as that of a known client."""
    if (note := request.scope.get("state", {}).get(AUTHENTICATED)) is not None:
        note(client)
