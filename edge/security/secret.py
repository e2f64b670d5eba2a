"""Secrets and enrolment codes: made by the gateway alone, and never kept as they are."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

_SALT: Final = 16
_COST: Final = 2**14
"""scrypt's N (RFC 7914) with r = 8: 16 MiB and about 50 ms on a PC, 200 ms on a Pi 4."""

_LETTERS: Final = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
"""What people do not mistake for something else."""
_GROUPS: Final = 6
_GROUP: Final = 5


def new_secret() -> str:
    """A client secret of 256 bits."""
    return secrets.token_urlsafe(32)


def new_code() -> str:
    """An enrolment code of 147 bits in groups that can be typed: `QJ4TZ-8MRWK-...`."""
    return "-".join("".join(secrets.choice(_LETTERS) for _ in range(_GROUP)) for _ in range(_GROUPS))


def hashed(secret: str) -> bytes:
    """What is kept of a secret: salt and scrypt hash."""
    salt = secrets.token_bytes(_SALT)
    return salt + _scrypt(secret, salt)


def matches(secret: str, kept: bytes) -> bool:
    """Whether a secret is the one of which `kept` was made. How long that takes does not depend on either."""
    return hmac.compare_digest(_scrypt(secret, kept[:_SALT]), kept[_SALT:])


def fingerprint(code: str) -> bytes:
    """What is kept of a code, to look it up by: nobody guesses 147 bits, so no salt and no work are needed."""
    return hashlib.sha256(code.encode()).digest()


NOBODY: Final = bytes(_SALT + 32)
"""Kept of no secret. Compared with it, a client that does not exist takes as long as one that does."""


def _scrypt(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, n=_COST, r=8, p=1, dklen=32)
