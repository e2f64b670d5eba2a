"""From what CBOR can say to what JSON can (RFC 8949, section 6.1). What JSON has nothing for becomes null."""

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
"""What JSON can say; numbers that are not finite, too, as Python writes and reads them."""

_MAX_SIZE: Final = 4 * 1024 * 1024
"""Values and characters in one body: references make what is small on the way large when it is written."""
_MAX_DEPTH: Final = 100

_SINGLE: Final = 0x5365_7061_4564_6765
"""The tag by which floats of four bytes are told apart while they are read; nobody else's (RFC 8949, 9.2)."""
_MARK: Final = b"\xdb" + _SINGLE.to_bytes(8)
_ARGUMENTS: Final = {24: 1, 25: 2, 26: 4, 27: 8}
"""Bytes after the first one of an item, by its lower five bits (RFC 8949, section 3)."""
_FLOAT32: Final = 0xFA
_LARGEST: Final = struct.unpack(">f", b"\x7f\x7f\xff\xff")[0]
_INDEFINITE: Final = 31


def read_cbor(payload: bytes) -> Json:
    """Values that JSON has, too; keys of maps may be integers. Raises `InvalidRequest`, `TooLarge`."""
    try:
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
        return key if isinstance(key, str | int) and not isinstance(key, bool) else str(self.value(key))


def _scalar(item: object) -> Json:
    if isinstance(item, str | bool | int | float):
        return item
    if isinstance(item, bytes):
        return base64.urlsafe_b64encode(item).rstrip(b"=").decode()
    if isinstance(item, Decimal | Fraction):
        return float(item)
    return item.isoformat() if isinstance(item, date) else None


def _marked(payload: bytes) -> bytes:
    """With a tag before each float of four bytes. Items are a row of heads and of what is in strings."""
    if _FLOAT32 not in payload:
        return payload
    parts: list[bytes] = []
    done = at = 0
    while at < len(payload):
        head = payload[at]
        kind, short = head >> 5, head & 0x1F
        if head == _FLOAT32:
            parts += payload[done:at], _MARK
            done = at
        end = at + 1 + _ARGUMENTS.get(short, 0)
        if kind in (2, 3) and short != _INDEFINITE:
            end += int.from_bytes(payload[at + 1 : end]) if short in _ARGUMENTS else short
        at = end
    return b"".join((*parts, payload[done:]))


def _shortest(number: float) -> float:
    """The number with the fewest digits that four bytes hold as this one: 21.6, which is 21.600000381469727 there."""
    if not math.isfinite(number) or number.is_integer():
        return number
    written = struct.pack(">f", number)
    rounded = (float(f"{number:.{digits}g}") for digits in range(6, 10))
    return next((found for found in rounded if abs(found) <= _LARGEST and struct.pack(">f", found) == written), number)
