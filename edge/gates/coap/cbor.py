"""Conversion of CBOR to JSON values (RFC 8949, section 6.1). Values without a JSON equivalent become null."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import cbor2

from edge.protocol.errors import InvalidRequest, TooLarge

Json = Any
"""A JSON value; as in Python's json module, numbers may be infinite or NaN."""

_MAX_SIZE: Final = 4 * 1024 * 1024
"""Upper bound of values and characters in one body: references can expand a small body to a large value."""
_MAX_DEPTH: Final = 100

_SINGLE: Final = 0x5365_7061_4564_6765
"""Private tag (RFC 8949, section 9.2) that marks four-byte floats during decoding."""
_MARK: Final = b"\xdb" + _SINGLE.to_bytes(8)
_ARGUMENTS: Final = {24: 1, 25: 2, 26: 4, 27: 8}
"""Length of an item's argument by the lower five bits of its first byte (RFC 8949, section 3)."""
_FLOAT32: Final = 0xFA
_LARGEST: Final = struct.unpack(">f", b"\x7f\x7f\xff\xff")[0]
_INDEFINITE: Final = 31
_MOST_BITS: Final = 1024
"""Bits of an integer: those of the largest double."""


def read_cbor(payload: bytes) -> Json:
    """Parse a body to JSON values; map keys may be integers. Raises `InvalidRequest`, `TooLarge`."""
    try:
        # Duplicate keys are refused as in JSON: decoders disagree on which one counts (RFC 8949, section 5.6).
        item = cbor2.loads(_marked(payload), max_depth=_MAX_DEPTH, allow_duplicate_keys=False)
        return _Plain().value(item)
    except (cbor2.CBORError, ValueError, OverflowError, EOFError) as error:
        raise InvalidRequest(f"The body is not CBOR that can be read: {error}") from None
    except RecursionError:
        raise InvalidRequest("The body is not CBOR that can be read: it is nested too deep") from None


class _Plain:
    def __init__(self) -> None:
        self._left = _MAX_SIZE

    def value(self, item: object) -> Json:
        self._left -= 1 + len(item) if isinstance(item, str | bytes) else 1
        if self._left < 0:
            raise TooLarge(f"The body holds more than {_MAX_SIZE} values and characters")
        if isinstance(item, Mapping):
            return {self._key(key): self.value(member) for key, member in item.items()}
        if isinstance(item, list | tuple | set | frozenset):
            return [self.value(member) for member in item]
        if isinstance(item, cbor2.CBORTag):
            return _shortest(item.value) if item.tag == _SINGLE else self.value(item.value)
        return _scalar(item)

    def _key(self, key: object) -> str | int:
        if isinstance(key, int) and not isinstance(key, bool):
            return _integer(key)
        return key if isinstance(key, str) else str(self.value(key))


def _integer(number: int) -> int:
    """Return a number that JSON can have. Raises `ValueError`: Python does not write one of over 4,300 digits."""
    if number.bit_length() > _MOST_BITS:
        raise ValueError(f"a number has {number.bit_length()} bits, the limit is {_MOST_BITS}")
    return number


def _scalar(item: object) -> Json:
    if isinstance(item, str | bool | int | float):
        return _integer(item) if isinstance(item, int) else item
    if isinstance(item, bytes):
        # Base64url without padding (RFC 8949, section 6.1).
        return base64.urlsafe_b64encode(item).rstrip(b"=").decode()
    if isinstance(item, Decimal | Fraction):
        return float(item)
    return item.isoformat() if isinstance(item, date) else None


def _marked(payload: bytes) -> bytes:
    """Insert a tag before each four-byte float. Scans item heads and skips the content of strings."""
    if _FLOAT32 not in payload:
        return payload
    parts: list[bytes] = []
    done = at = 0
    while at < len(payload):
        head = payload[at]
        kind, short = head >> 5, head & 0x1F
        if head == _FLOAT32:
            parts += payload[done:at], _MARK
            # The tag ends up before the float, because the next slice starts at its head byte.
            done = at
        end = at + 1 + _ARGUMENTS.get(short, 0)
        if kind in (2, 3) and short != _INDEFINITE:
            end += int.from_bytes(payload[at + 1 : end]) if short in _ARGUMENTS else short
        at = end
    return b"".join((*parts, payload[done:]))


def _shortest(number: float) -> float:
    """Return the shortest decimal with the same four-byte encoding: 21.6 instead of 21.600000381469727."""
    if not math.isfinite(number) or number.is_integer():
        return number
    written = struct.pack(">f", number)
    rounded = (float(f"{number:.{digits}g}") for digits in range(6, 10))
    return next((found for found in rounded if abs(found) <= _LARGEST and struct.pack(">f", found) == written), number)
