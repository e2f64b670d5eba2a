"""Signing keys of tokens, with rotation: a new key signs, old ones verify until their tokens have expired."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
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

from edge.protocol.errors import StorageFailed
from edge.security import row_checksums
from edge.security.client_database import ClientDatabase

_log = logging.getLogger(__name__)

_REMEDY: Final = (
    "Tokens that it signed are refused: clients ask for new ones. Remove the key, with all others: edge clients "
    "rotate-key --now"
)
_BITS: Final = 2048
_MICRO: Final = 1_000_000


@dataclass(frozen=True, eq=False, slots=True)
class SigningKey:
    """A key of the ring. Two are equal only if they are one object.

    A key that was removed and is stored again is another one, even with the same id.
    """

    kid: str
    private: RSAPrivateKey = field(repr=False)
    public: RSAPublicKey = field(repr=False)
    text: str = field(repr=False)
    """The private key as PEM."""


@dataclass(frozen=True, slots=True)
class _Ring:
    """The stored keys, as one value for all threads."""

    version: tuple[int, int] | None = None
    """Version of the client file."""
    keys: Mapping[str, SigningKey] = field(default_factory=lambda: MappingProxyType({}))
    newest: SigningKey | None = None
    created: int = 0
    """Time of the newest key, in microseconds since 1970."""


class Keys:
    """Key ring of a gateway. Thread-safe; `rotate` may take a second."""

    def __init__(self, store: ClientDatabase, *, rotate_after: float, lifetime: float) -> None:
        """`rotate_after`: seconds that a key signs. `lifetime`: seconds that its last token is valid."""
        self._store = store
        self._rotate_after = rotate_after
        self._lifetime = lifetime
        self._ring = _Ring()
        self._loading = threading.Lock()

    def signing(self) -> SigningKey:
        """Return the key that signs. Rotates if it has signed long enough. Raises `StorageFailed`."""
        ring = self._load()
        if ring.newest is None or time.time() - ring.created / _MICRO > self._rotate_after:
            self.rotate()
            ring = self._load()
        if ring.newest is None:
            raise StorageFailed("The new signing key is not in the client file; check its disk, and try again")
        return ring.newest

    def verifying(self, kid: str) -> SigningKey | None:
        """Return the key with this id, if it exists."""
        return self._load().keys.get(kid)

    def public(self) -> dict[str, Any]:
        """Return the public part of the signing key as a JWK (RFC 7517)."""
        key = self.signing()
        found: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public))
        return {**found, "kid": key.kid, "use": "sig", "alg": "RS256"}

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
    def ring(self) -> frozenset[SigningKey]:
        """Return all keys."""
        return frozenset(self._load().keys.values())

    def keep(self, kid: str, until: int) -> None:
        """Retain a key until this time, in seconds since 1970."""
        with self._store.change() as connection:
            connection.execute("UPDATE signing_key SET needed = max(needed, ?) WHERE kid = ?", [until * _MICRO, kid])

    def _load(self) -> _Ring:
        # Under the lock: a thread with an older state must not bring a removed key back.
        with self._loading:
            version = self._store.version
            if version != self._ring.version:
                self._ring = self._read(version)
            return self._ring

    def _read(self, version: tuple[int, int]) -> _Ring:
        # The version changes with each client, and it takes a millisecond to read a key: unchanged ones stay.
        before = {(key.kid, key.text): key for key in self._ring.keys.values()}
        keys: dict[str, SigningKey] = {}
        newest, latest = None, 0
        for row in self._store.rows(f"{row_checksums.select('signing_key')} ORDER BY created"):
            kid, text, created = row[:3]
            key = (before.get((kid, text)) or _parsed(kid, text)) if row_checksums.is_sound(row) else None
            if key is None:
                # Its tokens are refused. Other keys stay valid, and `signing` creates a new one if none is left.
                _log.error("security.key_damaged", extra={"kid": row_checksums.printable(kid), "remedy": _REMEDY})
            else:
                keys[kid] = newest = key
                latest = created
        return _Ring(version, MappingProxyType(keys), newest, latest)


def _parsed(kid: str, text: str) -> SigningKey | None:
    """Return a key from its PEM text, or None if the text is not a key."""
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return SigningKey(kid, key, key.public_key(), text) if isinstance(key, RSAPrivateKey) else None
