"""RSA keys for the gateways of a process of tests: making one takes longer than many tests."""

from __future__ import annotations

import itertools
import threading

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from edge.security import keys

_COUNT = 16
"""Different keys. More than one test needs at once."""


def share_keys() -> None:
    """Let gateways in this process use the same keys in turn. Each stays the key of its identifier, which is new."""
    make = keys.generate_private_key
    made: dict[tuple[int, int, int], RSAPrivateKey] = {}
    numbers, lock = itertools.count(), threading.Lock()

    def shared(public_exponent: int, key_size: int) -> RSAPrivateKey:
        with lock:
            which = (next(numbers) % _COUNT, public_exponent, key_size)
            if which not in made:
                made[which] = make(public_exponent, key_size)
            return made[which]

    keys.generate_private_key = shared  # type: ignore[assignment]
