"""Public keys of an authorization server: a JWK Set (RFC 7517, section 5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from edge.protocol.errors import EdgeError

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

_MOST: Final = 64
"""Maximum keys of one set; common servers publish two to six."""
_BITS: Final = range(2048, 8193)
"""Size of RSA keys (RFC 7518, section 3.3). Longer ones would let another server slow down the gateway."""
_EXPONENT: Final = 2**32
_READERS: Final[Mapping[str, Callable[[dict[str, Any]], object]]] = {
    "RSA": RSAAlgorithm.from_jwk,
    "EC": ECAlgorithm.from_jwk,
    "OKP": OKPAlgorithm.from_jwk,
}
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_PUBLIC: Final = ("kty", "kid", "use", "key_ops", "alg", "n", "e", "crv", "x", "y")


class KeysRefused(EdgeError):
    """The document contains no usable keys."""

    error: ClassVar[str] = "keys_unusable"
    status_code: ClassVar[int] = 503


class KeySet:
    """Keys for verifying signatures. Unsuitable ones (symmetric, short, private) are ignored."""

    def __init__(self, document: bytes) -> None:
        """Raises `KeysRefused` if no key is usable."""
        self._keys: list[tuple[object, str | None, PublicKey]] = []
        used = []
        for jwk in _jwks(document)[:_MOST]:
            key = _key(jwk)
            if key is not None:
                self._keys.append((jwk.get("kid"), jwk.get("alg"), key))
                used.append({name: jwk[name] for name in _PUBLIC if name in jwk})
        if not self._keys:
            raise KeysRefused("none of the keys can be used: RSA of 2048 bits and more, EC and Ed25519 can")
        self.text = json.dumps({"keys": sorted(used, key=json.dumps)})
        """Canonical JWK Set of the same keys."""

    def fitting(self, kid: str | None, algorithm: str) -> Sequence[PublicKey]:
        """Return the keys with this id for this algorithm. Without an id: the only suitable key."""
        found = [
            key
            for name, only, key in self._keys
            if (kid is None or name == kid) and only in (None, algorithm) and _fits(key, algorithm)
        ]
        return found if kid is not None or len(found) == 1 else ()


def _jwks(document: bytes) -> list[Any]:
    try:
        found: Any = json.loads(document)
    except (ValueError, RecursionError):
        raise KeysRefused("the document is not JSON") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise KeysRefused('the document is not a JWK Set: {"keys": [...]}')
    return keys


def _key(jwk: object) -> PublicKey | None:
    # A key set with a private key ("d") has published it, so its signatures prove nothing.
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    read = _READERS.get(str(jwk.get("kty")))
    if read is None or ("key_ops" in jwk and "verify" not in (jwk["key_ops"] or ())):
        return None
    try:
        key = read(jwk)
    except (jwt.PyJWTError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # a server may have keys of unknown types
    if isinstance(key, RSAPublicKey):
        return key if key.key_size in _BITS and key.public_numbers().e < _EXPONENT else None
    return key if isinstance(key, EllipticCurvePublicKey | Ed25519PublicKey) else None


def _fits(key: PublicKey, algorithm: str) -> bool:
    """Return whether the key type matches the algorithm, so that no public key is used as an HMAC secret."""
    if isinstance(key, RSAPublicKey):
        return algorithm[:2] in ("RS", "PS")
    if isinstance(key, EllipticCurvePublicKey):
        return _CURVES.get(key.curve.name) == algorithm
    return algorithm == "EdDSA"
