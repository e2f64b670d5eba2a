"""The keys that tokens are signed with. They rotate: a new one signs, the old ones verify until their tokens end."""

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
from edge.security.store import Store

_log = logging.getLogger(__name__)

_REMEDY: Final = (
    "Tokens that it signed are refused: clients ask for new ones. Remove the key, with all others: edge clients "
    "rotate-key --now"
)
_BITS: Final = 2048
_MICRO: Final = 1_000_000


class Keys:
    """The key ring of a gateway. Methods may be called from any thread; `rotate` may take a second."""

    def __init__(self, store: Store, *, rotate_after: float, lifetime: float) -> None:
        """`rotate_after`: seconds that a key signs. `lifetime`: seconds that what it signed last is valid."""
        self._store = store
        self._rotate_after = rotate_after
        self._lifetime = lifetime
        self._version: tuple[int, int] | None = None
        self._newest = ("", 0)
        self._private: dict[str, RSAPrivateKey] = {}
        self._public: dict[str, RSAPublicKey] = {}

    def signing(self) -> tuple[str, RSAPrivateKey]:
        """The key that signs now, and its id. A new one where the last has signed for long enough."""
        self._load()
        kid, created = self._newest
        if not kid or time.time() - created / _MICRO > self._rotate_after:
            self.rotate()
            self._load()
            kid, _ = self._newest
        return kid, self._private[kid]

    def verifying(self, kid: str) -> RSAPublicKey | None:
        """The key of this id, if it is one of ours."""
        self._load()
        return self._public.get(kid)

    def public(self) -> dict[str, Any]:
        """The public part of the key that signs now, as a JWK (RFC 7517)."""
        kid, key = self.signing()
        found: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
        return {**found, "kid": kid, "use": "sig", "alg": "RS256"}

    def rotate(self, *, forget: bool = False) -> str:
        """Make a new key that signs from now on; forget those whose tokens have all ended. Returns its id.

        With `forget` all others are: what they signed is valid no more.
        """
        key = generate_private_key(public_exponent=65537, key_size=_BITS)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        kid = uuid.uuid4().hex
        with self._store.change() as connection:
            (last,) = connection.execute("SELECT max(created) FROM signing_key").fetchone()
            now = max(time.time_ns() // 1000, (last or 0) + 1)  # clocks are set back, too
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
        """The ids of all of them."""
        self._load()
        return frozenset(self._public)

    def keep(self, kid: str, until: int) -> None:
        """Do not forget a key before this time, in seconds since 1970."""
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
                # What it signed is refused. The others go on, and `signing` makes a new one where none is left.
                _log.error("security.key_damaged", extra={"kid": row_checksums.printable(kid), "remedy": _REMEDY})
            else:
                private[kid] = key
                newest = kid, created
        self._private = private
        self._public = {kid: key.public_key() for kid, key in private.items()}
        self._newest = newest
        self._version = version


def _read(text: str) -> RSAPrivateKey | None:
    """A key from its PEM text; None: it is not one."""
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, RSAPrivateKey) else None
