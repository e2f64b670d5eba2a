"""Solutions of a query as far as messages can hold them: from RDF terms to the scalars of JSON and text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple
from urllib.parse import unquote

from edge.mapping.binary import FLOATS, INTEGERS
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
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_NUMBER: Final = Converter(kind="number")


class Term(NamedTuple):
    """An IRI or a literal."""

    text: str
    datatype: str | None = XSD_STRING
    """IRI of the literal's datatype; None: an IRI."""


class Scalar(NamedTuple):
    """What a message is given for a term."""

    text: str
    plain: bool
    """Whether JSON has it without quotes: a number or a truth value."""


class CommandError(ValueError):
    """A solution of which no message can be made; the text says why."""


def local_name(text: str) -> str:
    """The end of an IRI, after the last `#` or `/`, else `:`, with its percent-encoding undone."""
    tail = re.split("[#/]", text)[-1]
    return unquote(tail.rpartition(":")[2])


def _bytes_of(kind: str) -> Callable[[str], str]:
    """From the text of a number to its bytes in hexadecimal, which raises `CommandError` where they cannot say it."""

    def encode(text: str) -> str:
        try:
            if kind in FLOATS:
                return FLOATS[kind].pack(float(text)).hex()
            size, signed, endian = INTEGERS[kind]
            number = Decimal(text)
            if number != int(number):
                raise CommandError(f"{shown(text)} is no whole number, which {kind} needs")
            return int(number).to_bytes(size, endian, signed=signed).hex()
        except (ArithmeticError, ValueError) as error:
            if isinstance(error, CommandError):
                raise
            raise CommandError(f"{shown(text)} cannot be written as {kind}") from None

    return encode


ACTUATOR_FILTERS: Final[dict[str, Callable[[str], str]]] = {
    **FILTERS,
    "local": local_name,
    **{kind: _bytes_of(kind) for kind in (*INTEGERS, *FLOATS)},
}
"""What may follow the name of a variable: those of captures, the local name of an IRI, and the bytes of a number."""


@dataclass(frozen=True, slots=True)
class Solution:
    """One solution of an actuator's query. Variables that have no value, or a blank node, are not in `terms`."""

    terms: Mapping[str, Term]
    converters: Mapping[str, Converter]

    def scalar(self, name: str) -> Scalar | None:
        """The value of a variable, converted; None where it has none. Raises `CommandError`."""
        term = self.terms.get(name)
        if term is None:
            return None
        try:
            return _converted(term, self.converters.get(name))
        except BadValueError as error:
            raise CommandError(f"?{name} {error}") from None

    def text(self, name: str, filters: tuple[Callable[[str], str], ...]) -> str:
        """The value as text. Raises `CommandError`, also where there is none."""
        scalar = self.scalar(name)
        if scalar is None:
            raise CommandError(f"?{name} has no value")
        text = scalar.text
        for function in filters:
            text = function(text)
        return text


def _converted(term: Term, converter: Converter | None) -> Scalar | None:
    raw: bool | str = term.text
    if term.datatype == XSD_BOOLEAN:
        if term.text not in _BOOLEANS:
            raise BadValueError(f"{shown(term.text)} is not a truth value")
        raw = _BOOLEANS[term.text]
    elif term.datatype in _NUMBERS:
        raw = JsonNumber(term.text)
    if converter is None:
        if isinstance(raw, bool):
            return Scalar("true" if raw else "false", plain=True)
        if not isinstance(raw, JsonNumber):
            return Scalar(raw, plain=False)
        converter = _NUMBER
    converted = converter(raw)
    return None if converted is None else Scalar(converted[0], converted[1] in _PLAIN)
