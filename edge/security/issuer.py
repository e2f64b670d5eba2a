"""An authorisation server of somebody else, whose tokens count here, too (RFC 9068; OpenID Connect providers)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import jwt

from edge.protocol.access import DEFAULT_GRAPH
from edge.protocol.errors import InvalidGrant, InvalidRequest, NotReady
from edge.security.clients import Client, Rights, foreign
from edge.security.issuer_keys import IssuerKeys
from edge.security.issuer_settings import IssuerSettings

DIRECTORY: Final = "issuers"
"""In the data directory: the keys that were fetched last."""


_ALL: Final = "all"
_LONGEST: Final = 3650 * 86_400
"""Seconds that a token may be valid."""
_ACCESS: Final = frozenset({"jwt", "at+jwt"})
"""Types of access tokens (`typ` of the header): RFC 9068, section 4, and those of servers that name no other."""
_BEARER: Final = "Bearer"
"""What Keycloak's access tokens say they are; its ID and refresh tokens say something else."""
_ONLY_OF_ID_TOKENS: Final = frozenset({"at_hash", "c_hash"})
"""OpenID Connect Core, sections 3.1.3.6 and 3.3.2.11."""


class Issuer:
    """Verifies the tokens of one server. Used on the event loop."""

    def __init__(self, settings: IssuerSettings, data_dir: Path, changed: Callable[[], None]) -> None:
        """`changed` is called when tokens that were verified need no longer be valid."""
        self._settings = settings
        where = hashlib.sha256(f"{settings.url} {settings.jwks_url}".encode()).hexdigest()[:16]
        self.keys = IssuerKeys(settings, data_dir / DIRECTORY / f"{where}.json", changed)

    def verify(self, token: str, header: Mapping[str, Any]) -> tuple[str, int]:
        """Identity and end (seconds since 1970) of a token that says it is of this issuer.

        Raises `InvalidGrant`; `NotReady` where there are no keys.
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
            f"The token is signed with no key of {settings.url} that is known. They are fetched again: try again in a "
            "minute, or ask for another token"
        )

    def usual(self, identity: str) -> Client | None:
        """A client of whom nothing was said here, where all clients of this issuer may come in."""
        settings = self._settings
        if not settings.actions:
            return None
        rights = Rights(frozenset(settings.actions), _graphs(settings.read), _graphs(settings.write))
        return Client(identity, "trusted", rights, identity, 0)

    def _named(self, claims: Mapping[str, Any]) -> tuple[str, int]:
        settings = self._settings
        name = claims[settings.claim]
        if not isinstance(name, str):
            raise InvalidGrant(f'The token names no client: its "{settings.claim}" is no text')
        if claims.get("typ", _BEARER) != _BEARER or not _ONLY_OF_ID_TOKENS.isdisjoint(claims):
            raise InvalidGrant("This is an ID token, or one of another kind; send an access token")
        ends = claims["exp"]
        if isinstance(ends, bool) or not isinstance(ends, int | float):
            raise InvalidGrant('The token is not valid: its "exp" is no number')
        if ends > time.time() + _LONGEST:
            raise InvalidGrant("The token is valid for longer than ten years; ask for one that ends sooner")
        try:
            identity = foreign(settings.url, name)
        except InvalidRequest as error:
            raise InvalidGrant(error.description) from None
        return identity, int(ends + settings.leeway)


def not_valid(error: Exception) -> InvalidGrant:
    """What is told of a token that could not be read, or says what it must not."""
    told = isinstance(error, jwt.PyJWTError) and type(error) is not jwt.DecodeError
    return InvalidGrant(f"The token is not valid: {error if told else 'it is no JSON Web Token that can be read'}")


def _bare(kind: object) -> str:
    """A media type without its `application/`, which may be left out (RFC 7515, section 4.1.9)."""
    return str(kind).lower().removeprefix("application/")


def _graphs(names: tuple[str, ...]) -> frozenset[str] | None:
    return None if _ALL in names else frozenset(DEFAULT_GRAPH if name == "default" else name for name in names)
