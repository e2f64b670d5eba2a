"""Query solutions for messages: converts RDF terms to scalars of JSON and text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import unquote

from edge.mapping.binary import FLOATS, INTEGERS
from edge.mapping.bounded_numbers import bounded_number
from edge.mapping.reading import XSD, XSD_BOOLEAN, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, XSD_STRING
from edge.mapping.template import FILTERS
from edge.mapping.values import BadValueError, Converter, JsonNumber, shown

_NUMBERS: Final = frozenset(
    {XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER}
    | {XSD + name for name in ("float", "byte", "short", "int", "long")}
    | {XSD + name for name in ("unsignedByte", "unsignedShort", "unsignedInt", "unsignedLong")}
    | {XSD + name for name in ("positiveInteger", "nonNegativeInteger", "nonPositiveInteger", "negativeInteger")}
)
_PLAIN: Final = frozenset({XSD_BOOLEAN, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER})
_DOUBLES: Final = frozenset({XSD_DOUBLE, XSD + "float"})
_LONG: Final = 30
"""Characters that the shortest text of a double does not exceed."""
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_BITS: Final = {"true": "1", "false": "0"}
_NUMBER: Final = Converter(kind="number")


class SolutionTerm(NamedTuple):
    """An IRI or a literal."""

    text: str
    datatype: str | None = XSD_STRING
    """IRI of the literal's datatype; None: an IRI."""


class Scalar(NamedTuple):
    """Value of a term in a message."""

    text: str
    plain: bool
    """Whether JSON writes it without quotes: a number or a boolean."""


class CommandError(ValueError):
    """A message cannot be built from a solution; the text gives the reason."""


def local_name(text: str) -> str:
    """Return the local part of an IRI, after the last `#` or `/`, else `:`, with percent-encoding decoded."""
    tail = re.split("[#/]", text)[-1]
    # The mapping percent-encodes captures in IRIs. This restores the text of the device.
    return unquote(tail.rpartition(":")[2])


def _bytes_of(kind: str) -> Callable[[str], str]:
    """Convert the text of a number to its bytes in hexadecimal. Raises `CommandError` if it does not fit.

    For the types of integers, a boolean is 1 or 0.
    """

    floating = kind in FLOATS

    def encode(text: str) -> str:
        # Bounded before any arithmetic: Python computes the integer of 1e1000000 without releasing the GIL, so that it
        # would stop the whole gateway.
        number = bounded_number(text if floating else _BITS.get(text, text))
        if number is None:
            raise CommandError(f"{shown(text)} cannot be written as {kind}")
        # Not rounded: a device would act on another value than the graph has.
        if not floating and number != number.to_integral_value():
            raise CommandError(f"{shown(text)} is not an integer, which {kind} needs")
        try:
            if floating:
                return FLOATS[kind].pack(_finite(float(number))).hex()
            size, signed, endian = INTEGERS[kind]
            return int(number).to_bytes(size, endian, signed=signed).hex()
        except OverflowError:
            raise CommandError(f"{shown(text)} cannot be written as {kind}") from None

    return encode


def _finite(number: float) -> float:
    """Return a double. Raises `OverflowError` if the decimal number was too large for one."""
    if not math.isfinite(number):
        raise OverflowError
    return number


_BYTES: Final = {kind: _bytes_of(kind) for kind in (*INTEGERS, *FLOATS)}
BYTES_OF_NUMBERS: Final = frozenset(_BYTES.values())
"""The filters that return the bytes of a number."""
ACTUATOR_FILTERS: Final[dict[str, Callable[[str], str]]] = {
    **FILTERS,
    "local": local_name,
    **_BYTES,
}
"""Filters after the name of a variable: those of captures, the local name of an IRI, and the bytes of a number."""


@dataclass(frozen=True, slots=True)
class Solution:
    """One solution of an actuator's query. Unbound variables and blank nodes are not in `terms`."""

    terms: Mapping[str, SolutionTerm]
    converters: Mapping[str, Converter]

    def scalar(self, name: str) -> Scalar | None:
        """Return the converted value of a variable; None if it is unbound. Raises `CommandError`."""
        term = self.terms.get(name)
        if term is None:
            return None
        try:
            return _converted(term, self.converters.get(name))
        except BadValueError as error:
            raise CommandError(f"?{name} {error}") from None

    def text(self, name: str, filters: tuple[Callable[[str], str], ...]) -> str:
        """Return the value as text. Raises `CommandError`, also if the variable is unbound."""
        scalar = self.scalar(name)
        if scalar is None:
            raise CommandError(f"?{name} has no value")
        text = scalar.text
        for function in filters:
            text = function(text)
        return text


def _short(text: str) -> str:
    """Return a double as its shortest text: the graph writes 1e308 with 309 digits."""
    number = bounded_number(text) if len(text) > _LONG else None
    return text if number is None else repr(float(number))


def _converted(term: SolutionTerm, converter: Converter | None) -> Scalar | None:
    raw: bool | str = term.text
    if term.datatype == XSD_BOOLEAN:
        if term.text not in _BOOLEANS:
            raise BadValueError(f"{shown(term.text)} is not a truth value")
        raw = _BOOLEANS[term.text]
    elif term.datatype in _NUMBERS:
        raw = JsonNumber(_short(term.text) if term.datatype in _DOUBLES else term.text)
    if converter is None:
        if isinstance(raw, bool):
            return Scalar("true" if raw else "false", plain=True)
        if not isinstance(raw, JsonNumber):
            return Scalar(raw, plain=False)
        converter = _NUMBER
    converted = converter(raw)
    return None if converted is None else Scalar(converted[0], converted[1] in _PLAIN)
