"""Signing keys of tokens, with rotation: a new key signs, old ones verify until their tokens have expired."""

from __future__ import annotations

import json
import logging
import time
import uuid
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from edge.security import row_checksums
from edge.security.client_database import ClientDatabase

_log = logging.getLogger(__name__)

_REMEDY: Final = (
    "Tokens that it signed are refused: clients ask for new ones. Remove the key, with all others: edge clients "
    "rotate-key --now"
)
_BITS: Final = 2048
_MICRO: Final = 1_000_000


class Keys:
    """Key ring of a gateway. Thread-safe; `rotate` may take a second."""

    def __init__(self, store: ClientDatabase, *, rotate_after: float, lifetime: float) -> None:
        """`rotate_after`: seconds that a key signs. `lifetime`: seconds that its last token is valid."""
        self._store = store
        self._rotate_after = rotate_after
        self._lifetime = lifetime
        self._version: tuple[int, int] | None = None
        self._newest = ("", 0)
        self._private: dict[str, RSAPrivateKey] = {}
        self._public: dict[str, RSAPublicKey] = {}

    def signing(self) -> tuple[str, RSAPrivateKey]:
        """Return the signing key and its id. Rotates if the key has signed long enough."""
        self._load()
        kid, created = self._newest
        if not kid or time.time() - created / _MICRO > self._rotate_after:
            self.rotate()
            self._load()
            kid, _ = self._newest
        return kid, self._private[kid]

    def verifying(self, kid: str) -> RSAPublicKey | None:
        """Return the key with this id, if it exists."""
        self._load()
        return self._public.get(kid)

    def public(self) -> dict[str, Any]:
        """Return the public part of the signing key as a JWK (RFC 7517)."""
        kid, key = self.signing()
        found: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
        return {**found, "kid": kid, "use": "sig", "alg": "RS256"}

    def rotate(self, *, forget: bool = False) -> str:
        """Create a new signing key, and remove keys whose tokens have all expired. Returns its id.

        `forget` removes all other keys, which invalidates their tokens.
        """
        key = generate_private_key(public_exponent=65537, key_size=_BITS)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        kid = uuid.uuid4().hex
        with self._store.change() as connection:
            (last,) = connection.execute("SELECT max(created) FROM signing_key").fetchone()
            now = max(time.time_ns() // 1000, (last or 0) + 1)  # the clock may have been set back
            if forget:
                connection.execute("DELETE FROM signing_key")
                connection.execute("UPDATE client SET token_until = NULL")
            # A key's last token was signed when the next key came.
            connection.execute(
                "DELETE FROM signing_key WHERE EXISTS (SELECT 1 FROM signing_key AS next "
                "WHERE next.created > signing_key.created AND next.created < ?) AND needed < ?",
                [now - int(self._lifetime * _MICRO), now],
            )
            connection.execute(
                "INSERT INTO signing_key (kid, private, created, needed) VALUES (?, ?, ?, 0)", [kid, text, now]
            )
        return kid

    @property
    def ring(self) -> frozenset[str]:
        """Return the ids of all keys."""
        self._load()
        return frozenset(self._public)

    def keep(self, kid: str, until: int) -> None:
        """Retain a key until this time, in seconds since 1970."""
        with self._store.change() as connection:
            connection.execute("UPDATE signing_key SET needed = max(needed, ?) WHERE kid = ?", [until * _MICRO, kid])

    def _load(self) -> None:
        version = self._store.version
        if version == self._version:
            return
        private: dict[str, RSAPrivateKey] = {}
        newest = ("", 0)
        for row in self._store.rows(f"{row_checksums.select('signing_key')} ORDER BY created"):
            kid, text, created = row[:3]
            key = _read(text) if row_checksums.is_sound(row) else None
            if key is None:
                # Its tokens are refused. Other keys stay valid, and `signing` creates a new one if none is left.
                _log.error("security.key_damaged", extra={"kid": row_checksums.printable(kid), "remedy": _REMEDY})
            else:
                private[kid] = key
                newest = kid, created
        self._private = private
        self._public = {kid: key.public_key() for kid, key in private.items()}
        self._newest = newest
        self._version = version


def _read(text: str) -> RSAPrivateKey | None:
    """Return a key from its PEM text, or None if the text is not a key."""
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, RSAPrivateKey) else None
