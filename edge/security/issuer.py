"""External authorization server whose tokens the gateway accepts (RFC 9068; OpenID Connect providers)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import jwt

from edge.protocol.access import DEFAULT_GRAPH
from edge.protocol.errors import InvalidGrant, InvalidRequest, NotReady
from edge.security.clients import RegisteredClient, Rights, foreign
from edge.security.issuer_keys import IssuerKeys
from edge.security.settings import IssuerSettings

DIRECTORY: Final = "issuers"
"""Subdirectory of the data directory for downloaded keys."""


_ALL: Final = "all"
_LONGEST: Final = 3650 * 86_400
"""Longest accepted lifetime of a token in seconds."""
_ACCESS: Final = frozenset({"jwt", "at+jwt"})
"""Types of access tokens (`typ` of the header): RFC 9068, section 4, and those of servers without a specific type."""
_BEARER: Final = "Bearer"
"""Type claim of Keycloak's access tokens; its ID and refresh tokens have others."""
_ONLY_OF_ID_TOKENS: Final = frozenset({"at_hash", "c_hash"})
"""Claims of ID tokens (OpenID Connect Core, sections 3.1.3.6 and 3.3.2.11)."""


class Issuer:
    """Verifies the tokens of one server. Used on the event loop."""

    def __init__(self, settings: IssuerSettings, data_dir: Path, changed: Callable[[], None]) -> None:
        """`changed` is called when verified tokens may have become invalid."""
        self._settings = settings
        where = hashlib.sha256(f"{settings.url} {settings.jwks_url}".encode()).hexdigest()[:16]
        self.keys = IssuerKeys(settings, data_dir / DIRECTORY / f"{where}.json", changed)

    def verify(self, token: str, header: Mapping[str, Any]) -> tuple[str, int]:
        """Return identity and expiry (seconds since 1970) of a token of this issuer.

        Raises `InvalidGrant`; `NotReady` if its keys are not known.
        """
        settings = self._settings
        kid, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in settings.algorithms or not isinstance(kid, str | None):
            raise InvalidGrant(f"Tokens of {settings.url} must be signed with {' or '.join(settings.algorithms)}")
        if _bare(header.get("typ", "JWT")) not in _ACCESS:
            raise InvalidGrant("This is a token of another kind; send an access token")
        keys = self.keys.fitting(kid, str(algorithm))
        if not self.keys.known:
            raise NotReady(f"The keys of {settings.url} are not known: {self.keys.fault}")
        for key in keys:
            try:
                return self._named(
                    jwt.decode(
                        token,
                        key,
                        algorithms=[str(algorithm)],
                        issuer=settings.url,
                        audience=settings.audience,
                        leeway=settings.leeway,
                        options={"require": ["iss", "aud", "exp", settings.claim]},
                    )
                )
            except jwt.ExpiredSignatureError:
                raise InvalidGrant(f"The token has expired; ask {settings.url} for another one") from None
            except jwt.InvalidSignatureError:
                continue
            except (jwt.PyJWTError, ArithmeticError, ValueError, TypeError, RecursionError) as error:
                raise not_valid(error) from None
        self.keys.ask()
        raise InvalidGrant(
            f"The token is not signed with a known key of {settings.url}. The keys are fetched again: try again in a "
            "minute, or ask for another token"
        )

    def usual(self, identity: str) -> RegisteredClient | None:
        """Return a client without an entry of its own, if all clients of this issuer have access."""
        settings = self._settings
        if not settings.actions:
            return None
        rights = Rights(frozenset(settings.actions), _graphs(settings.read), _graphs(settings.write))
        return RegisteredClient(identity, "trusted", rights, identity, 0)

    def _named(self, claims: Mapping[str, Any]) -> tuple[str, int]:
        settings = self._settings
        name = claims[settings.claim]
        if not isinstance(name, str):
            raise InvalidGrant(f'The token names no client: its "{settings.claim}" is not a text')
        if claims.get("typ", _BEARER) != _BEARER or not _ONLY_OF_ID_TOKENS.isdisjoint(claims):
            raise InvalidGrant("This is an ID token, or one of another kind; send an access token")
        ends = claims["exp"]
        if isinstance(ends, bool) or not isinstance(ends, int | float):
            raise InvalidGrant('The token is not valid: its "exp" is not a number')
        if ends > time.time() + _LONGEST:
            raise InvalidGrant("The token is valid for longer than ten years; ask for one that ends sooner")
        try:
            identity = foreign(settings.url, name)
        except InvalidRequest as error:
            raise InvalidGrant(error.description) from None
        return identity, int(ends + settings.leeway)


def not_valid(error: Exception) -> InvalidGrant:
    """Return the error for a token that cannot be parsed, or has invalid claims."""
    described = isinstance(error, jwt.PyJWTError) and type(error) is not jwt.DecodeError
    return InvalidGrant(f"The token is not valid: {error if described else 'it is not a readable JSON Web Token'}")


def _bare(kind: object) -> str:
    """Return a media type without its optional `application/` (RFC 7515, section 4.1.9)."""
    return str(kind).lower().removeprefix("application/")


def _graphs(names: tuple[str, ...]) -> frozenset[str] | None:
    return None if _ALL in names else frozenset(DEFAULT_GRAPH if name == "default" else name for name in names)
