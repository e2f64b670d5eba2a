"""Values of Modbus registers: conversion between 16-bit words and scalars of a payload."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final, Literal

from edge.mapping.binary import shortest
from edge.mapping.values import JsonNumber, shown

Order = Literal["big", "little"]
Scalar = bool | str | None
"""A value of a payload: truth value, text or number (`JsonNumber`); None: the device has no value."""

INTEGERS: Final = {f"{sign}int{size}": (size // 16, sign == "") for size in (16, 32, 64) for sign in ("", "u")}
"""Number of registers, and whether the type is signed."""
FLOATS: Final = {"float32": (2, struct.Struct(">f")), "float64": (4, struct.Struct(">d"))}
_TRUTH: Final = {"true": 1, "on": 1, "1": 1, "false": 0, "off": 0, "0": 0}
_MOST_EXPONENT: Final = 400
"""Size of numbers that are converted: that of float64. Exact arithmetic with larger exponents takes too much memory."""
_MOST_DIGITS: Final = 80


@dataclass(frozen=True, slots=True)
class RegisterFormat:
    """How registers represent a value."""

    type: str
    """A key of `INTEGERS` or `FLOATS`, or "string"."""
    count: int
    """Number of registers."""
    byte_order: Order = "big"
    word_order: Order = "big"
    bits: tuple[int, int] | None = None
    """Lowest bit, and number of bits, of an integer; None: all."""
    no_value: frozenset[int] = frozenset()
    """Contents, as unsigned integers, that mean "no value"."""

    def decode(self, words: Sequence[int]) -> Scalar:
        """Return the value of registers. NaN and infinite numbers mean "no value"."""
        data = self._ordered(b"".join(word.to_bytes(2, "big") for word in words))
        content = int.from_bytes(data, "big")
        if content in self.no_value:
            return None
        if self.type == "string":
            text = data.rstrip(b"\0 ").decode("utf-8", errors="replace")
            return text.partition("\0")[0].strip()
        if self.type in FLOATS:
            return _float(data, FLOATS[self.type][1])
        if self.bits is not None:
            low, count = self.bits
            part = content >> low & (1 << count) - 1
            return bool(part) if count == 1 else JsonNumber(part)
        return JsonNumber(int.from_bytes(data, "big", signed=INTEGERS[self.type][1]))

    def encode(self, text: str, scale: Decimal | None = None, offset: Decimal | None = None) -> list[int]:
        """Return the registers for a value. It is (value - offset) / scale, rounded for integers (half to even).

        Raises `ValueError` with the reason if the type cannot represent it.
        """
        data = self._ordered(self._bytes(text, scale, offset))
        return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]

    def _bytes(self, text: str, scale: Decimal | None, offset: Decimal | None) -> bytes:
        size = 2 * self.count
        if self.type == "string":
            data = text.encode("utf-8", errors="strict")
            if len(data) > size:
                raise ValueError(f"the text has {len(data)} bytes, the registers hold {size}")
            return data.ljust(size, b"\0")
        content = _unscaled(text, scale, offset)
        if self.type in FLOATS:
            try:
                return FLOATS[self.type][1].pack(float(content))
            except OverflowError:
                raise ValueError(f"{shown(text)} is too large for {self.type}") from None
        whole = round(content)
        signed = INTEGERS[self.type][1]
        try:
            data = whole.to_bytes(size, "big", signed=signed)
        except OverflowError:
            raise ValueError(f"{whole} is out of the range of {self.type}") from None
        if int.from_bytes(data, "big") in self.no_value:
            raise ValueError(f'{whole} means "no value" (no_value)')
        return data

    def _ordered(self, data: bytes) -> bytes:
        """Return the bytes with the highest one first, or in the order of the device. It is its own inverse."""
        words = [data[at : at + 2] for at in range(0, len(data), 2)]
        if self.byte_order == "little":
            words = [word[::-1] for word in words]
        if self.word_order == "little" and self.type != "string":
            words.reverse()
        return b"".join(words)


def truth(text: str) -> bool:
    """Return the state of a coil. Raises `ValueError`."""
    found = _TRUTH.get(text.strip().lower())
    if found is None:
        raise ValueError(f"{shown(text)} is not a truth value")
    return bool(found)


def _float(data: bytes, form: struct.Struct) -> Scalar:
    (number,) = form.unpack(data)
    if not math.isfinite(number):
        return None
    return JsonNumber(repr(number) if form.size == 8 else shortest(number, data, form))


def number(text: str) -> Decimal:
    """Return the number that a text stands for. Raises `ValueError`."""
    found = _TRUTH.get(text.strip().lower()) if not text.strip().isdigit() else None
    try:
        given = Decimal(text.strip() if found is None else found)
    except InvalidOperation:
        raise ValueError(f"{shown(text)} is not a number") from None
    if not given.is_finite() or "_" in text:
        raise ValueError(f"{shown(text)} is not a number")
    if given and (abs(given.adjusted()) > _MOST_EXPONENT or len(text) > _MOST_DIGITS):
        raise ValueError(f"{shown(text)} has too many digits")
    return given


def _unscaled(text: str, scale: Decimal | None, offset: Decimal | None) -> Fraction:
    difference = Fraction(number(text)) - (0 if offset is None else Fraction(offset))
    return difference if scale is None else difference / Fraction(scale)
