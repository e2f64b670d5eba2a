"""Tokens: JSON Web Tokens (RFC 7519) signed with RS256, as in the SEPA protocol."""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from edge.protocol.errors import InvalidGrant
from edge.security.issuer import Issuer, not_valid
from edge.security.keys import Keys, SigningKey

_ALGORITHM: Final = "RS256"
"""The only algorithm. The one that a token names is ignored."""
_REQUIRED: Final = ["sub", "iat", "exp", "iss", "aud", "jti", "nbf"]
_LONGEST: Final = 8192
"""Maximum characters of a token; the gateway's own have about 700."""
_REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class Issued:
    """A token and its expiry, in seconds since 1970."""

    token: str
    expires: int
    key: SigningKey
    """The key that signed it."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of a valid token."""

    client_id: str
    """Client id; for a client of another issuer, its identity."""
    expires: int
    """Seconds since 1970."""
    key: SigningKey | None = None
    """The gateway's key that signed it; None if another issuer did."""

    @property
    def foreign(self) -> bool:
        """Whether another issuer signed it."""
        return self.key is None


class Tokens:
    """Issues and verifies the gateway's tokens, and verifies those of trusted issuers."""

    def __init__(self, keys: Keys, *, issuer: str, audience: str, lifetime: int, others: Mapping[str, Issuer]) -> None:
        """`lifetime`: lifetime of a token in seconds. `others`: trusted external issuers, by name."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._lifetime = lifetime
        self._others = others
        self._last: dict[str, Issued] = {}
        self._verified: OrderedDict[str, Claims] = OrderedDict()

    def issue(self, client_id: str, lifetime: int | None = None) -> Issued:
        """Return a token: the client's last one while more than half of its lifetime is left.

        With `lifetime`: a new one.
        """
        now = int(time.time())
        last = self._last.get(client_id)
        fresh = last is not None and self._lifetime / 2 < last.expires - now <= self._lifetime
        # A token whose key was removed would be refused, so it is not returned again.
        if lifetime is None and last is not None and fresh and self._is_current(last.key):
            return last
        key = self._keys.signing()
        expires = now + (self._lifetime if lifetime is None else lifetime)
        if lifetime is not None:
            # Rotation would otherwise remove the key before this long-lived token expires.
            self._keys.keep(key.kid, expires)
        claims = {
            "sub": client_id,
            "iat": now,
            "nbf": now,
            "exp": expires,
            "iss": self._issuer,
            "aud": self._audience,
            "jti": uuid.uuid4().hex,
        }
        issued = Issued(jwt.encode(claims, key.private, _ALGORITHM, {"kid": key.kid}), expires, key)
        if lifetime is None:
            # Expired tokens leave with each new one, so the cache is bounded by the active clients.
            self._last = {known: token for known, token in self._last.items() if token.expires > now} | {
                client_id: issued
            }
        return issued

    @property
    def ring(self) -> frozenset[SigningKey]:
        """Return the keys whose tokens are valid."""
        return self._keys.ring

    def forget_others(self) -> None:
        """Clear the cache of other issuers' tokens: their keys may have changed."""
        for token in [token for token, claims in self._verified.items() if claims.foreign]:
            del self._verified[token]

    def verify(self, token: str) -> Claims:
        """Return the claims of a token. Raises `InvalidGrant`, and `NotReady` if an issuer's keys are not known."""
        claims = self._verified.get(token)
        if claims is None:
            claims = self._read(token)
            self._verified[token] = claims
            if len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        # The cache must not outlive the key: removing a key ends all its tokens at once.
        elif claims.key is not None and not self._is_current(claims.key):
            del self._verified[token]
            raise _unknown_key()
        # Checked for cached claims, too; PyJWT checks the expiry only once.
        if claims.expires <= time.time():
            where = "its issuer" if claims.foreign else "/oauth/token"
            raise InvalidGrant(f"The token has expired; ask for another one at {where}")
        return claims

    def _is_current(self, key: SigningKey) -> bool:
        return self._keys.verifying(key.kid) is key

    def _read(self, token: str) -> Claims:
        # Before any decoding, whose cost grows with the length.
        if len(token) > _LONGEST:
            raise InvalidGrant("This is not a token of this gateway")
        try:
            header = jwt.get_unverified_header(token)
            issuer = self._others.get(_named_in(token)) if self._others else None
            if issuer is not None:
                return Claims(*issuer.verify(token, header))
            kid = header.get("kid")
            key = self._keys.verifying(kid) if isinstance(kid, str) else None
            if key is None:
                raise _unknown_key()
            found: dict[str, Any] = jwt.decode(
                token,
                key.public,
                # Fixed, not from the token's header: RFC 8725, section 3.1.
                algorithms=[_ALGORITHM],
                issuer=self._issuer,
                audience=self._audience,
                options={"require": _REQUIRED},
            )
        except jwt.ExpiredSignatureError:
            raise InvalidGrant("The token has expired; ask for another one at /oauth/token") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise not_valid(error) from None
        return Claims(str(found["sub"]), int(found["exp"]), key)


def _unknown_key() -> InvalidGrant:
    return InvalidGrant("The token is signed with a key that this gateway does not know; ask for another token")


def _named_in(token: str) -> str:
    """Return the issuer that an unverified token names. It only selects the keys for the verification."""
    issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
    return issuer if isinstance(issuer, str) else ""
