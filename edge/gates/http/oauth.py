"""Registration and tokens over HTTP: OAuth 2.0 client credentials as the SEPA protocol has them.

A client registers once at `/oauth/register`, and requests tokens at `/oauth/token` with the received credentials.
Clients disagree on the position of the token in the response, so the response contains it twice.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edge.gates.guard import TokenIssuer
from edge.gates.http.body import read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.errors import InvalidRequest, MissingAuthorization
from edge.protocol.json_faults import json_fault

_LONGEST = 16 * 1024
"""Maximum bytes of a registration; existing clients send up to 10 KB of additional objects."""


async def register(request: Request, authority: TokenIssuer, settings: HttpGateSettings) -> Response:
    """`POST /oauth/register`. Raises `InvalidRequest`, and the errors of `TokenIssuer.register`."""
    identity = _identity(await read_text(request, settings, _LONGEST))
    return _created({"credentials": await authority.register(identity)})


async def token(request: Request, authority: TokenIssuer) -> Response:
    """`POST` or `GET /oauth/token`. Raises `MissingAuthorization`, and the errors of `TokenIssuer.token`."""
    issued = await authority.token(*_credentials(request.headers.get("authorization")))
    return _created({"token": issued, **issued})


def _identity(text: str) -> str:
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(json_fault("The body", error)) from None
    wanted = body.get("register") if isinstance(body, dict) else None
    if not isinstance(wanted, dict) or not isinstance(wanted.get("client_identity"), str):
        raise InvalidRequest(
            'The body must be {"register":{"client_identity":"...","grant_types":["client_credentials"]}}'
        )
    types = wanted.get("grant_types", ["client_credentials"])
    if not isinstance(types, list) or "client_credentials" not in types:
        raise InvalidRequest('The only grant type is "client_credentials"')
    identity = str(wanted["client_identity"])
    try:
        identity.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("The client identity is not Unicode text: it contains half of a surrogate pair") from None
    return identity


def _credentials(header: str | None) -> tuple[str, str]:
    """Client id and secret of HTTP Basic authentication (RFC 7617)."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() == "basic":
        try:
            text = base64.b64decode(encoded.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            text = ""
        client_id, colon, secret = text.partition(":")
        if colon:
            return client_id, secret
    raise MissingAuthorization("The header must be: Authorization: Basic base64(client_id:client_secret)")


def _created(value: object) -> Response:
    headers = {"Cache-Control": "no-store"}  # RFC 6749, section 5.1
    return Response(json.dumps(value), 201, headers, "application/json")
