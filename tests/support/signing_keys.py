"""RSA keys for the gateways of a process of tests: making one takes longer than many tests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from edge.security import keys

GENERATE = keys.generate_private_key
"""The function that makes a new key for each call."""
_COUNT = 16
"""Different keys. More than one test needs at once."""


_made: dict[tuple[int, int, int], RSAPrivateKey] = {}
_numbers, _lock = itertools.count(), threading.Lock()


@contextmanager
def shared_keys() -> Iterator[None]:
    """Let gateways in this process use the same keys in turn. Each stays the key of its identifier, which is new."""
    keys.generate_private_key = _shared  # type: ignore[assignment]
    try:
        yield
    finally:
        keys.generate_private_key = GENERATE


def _shared(public_exponent: int, key_size: int) -> RSAPrivateKey:
    with _lock:
        which = (next(_numbers) % _COUNT, public_exponent, key_size)
        if which not in _made:
            _made[which] = GENERATE(public_exponent, key_size)
        return _made[which]
