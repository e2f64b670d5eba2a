"""Literals as values: frequent types as Python objects, all others as terms.

A number, string, boolean or dateTime in the engine's value form (`edge.engine.store.terms`) becomes a Python object
that compares and computes as SPARQL requires. The others stay terms (NaN, language strings, dates, durations, dateTimes
in other zones, huge numbers, ill-typed literals), and Oxigraph evaluates them.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal
from typing import Final

import pyoxigraph as ox

from edge.engine.store.lru_cache import bounded_cache
from edge.engine.store.terms import XSD, canonical, size
from edge.protocol.results import Term

INTEGER: Final = ox.NamedNode(XSD + "integer")
DECIMAL: Final = ox.NamedNode(XSD + "decimal")
DOUBLE: Final = ox.NamedNode(XSD + "double")
FLOAT: Final = ox.NamedNode(XSD + "float")
BOOLEAN: Final = ox.NamedNode(XSD + "boolean")
DATE_TIME: Final = ox.NamedNode(XSD + "dateTime")

TRUE: Final = ox.Literal("true", datatype=BOOLEAN)
FALSE: Final = ox.Literal("false", datatype=BOOLEAN)


class Single(float):
    """An xsd:float, with its literal."""

    __slots__ = ("literal",)
    literal: ox.Literal


class Instant(str):
    """An xsd:dateTime in UTC: its lexical form without the Z. With four-digit years it sorts by time."""

    __slots__ = ()


Value = int | Decimal | float | Single | bool | str | Instant | Term
"""xsd:integer, xsd:decimal, xsd:double, xsd:float, xsd:boolean, xsd:string, xsd:dateTime, or any term."""

EXACT: Final = Context(prec=80)
"""Context for decimal arithmetic: precise enough that nothing is rounded."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"-?[0-9]{1,21}(?:\.[0-9]{1,18})?")
_SHORT = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,18})?")
_PLAIN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_INSTANT = re.compile(
    r"([12][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,18})?Z"
)

INTEGERS: Final = range(-(2**63), 2**63)
"""The integers with which Oxigraph can compute."""
DECIMALS: Final = range(-(2**127), 2**127)
"""The decimals with which Oxigraph can compute, times 10 to the power of 18."""


def _integer(literal: ox.Literal, text: str) -> Value:
    return number if _INTEGER.fullmatch(text) and (number := int(text)) in INTEGERS else literal


def _decimal(literal: ox.Literal, text: str) -> Value:
    if not _DECIMAL.fullmatch(text):
        return literal
    number = Decimal(text)
    return number if len(text) <= 20 or int(number.scaleb(18, EXACT)) in DECIMALS else literal


def _double(literal: ox.Literal, text: str) -> Value:
    if _SHORT.fullmatch(text) or _same_double(text):
        return float(text)
    return literal


def _same_double(text: str) -> bool:
    """Return whether the text is the canonical form of a double, including very large, small and infinite ones."""
    try:
        return double_text(float(text)) == text != "NaN"
    except ValueError:
        return False


def round_single(value: float) -> float:
    """Return the nearest xsd:float."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, value)


def _float(literal: ox.Literal, text: str) -> Value:
    # Nine digits identify every xsd:float, so the nearest double lies on the right side of the midpoint between two
    # floats.
    if text in ("INF", "-INF") or _SHORT.fullmatch(text) or (_PLAIN.fullmatch(text) and len(_digits(text)) <= 9):
        single = Single(round_single(float(text)))
        single.literal = literal
        return single
    return literal


def _boolean(literal: ox.Literal, text: str) -> Value:
    return text == "true" if text in ("true", "false") else literal


def _instant(literal: ox.Literal, text: str) -> Value:
    match = _INSTANT.fullmatch(text)
    if match is None:
        return literal
    year, month, day = match.groups()
    if day > "28":
        try:
            date(int(year), int(month), int(day))
        except ValueError:
            return literal
    return Instant(text[:-1])


def _string(literal: ox.Literal, text: str) -> Value:
    return text


_DECODERS: Final[dict[str, Callable[[ox.Literal, str], Value]]] = {
    XSD + "integer": _integer,
    XSD + "decimal": _decimal,
    XSD + "double": _double,
    XSD + "float": _float,
    XSD + "boolean": _boolean,
    XSD + "dateTime": _instant,
    XSD + "string": _string,
}


@bounded_cache(8192, size)
def literal_value(literal: ox.Literal) -> Value:
    """Return the value of a literal in value form."""
    decoder = _DECODERS.get(literal.datatype.value)
    return literal if decoder is None else decoder(literal, literal.value)


def decode(term: Term) -> Value:
    """Return the value of a term in value form."""
    return literal_value(term) if type(term) is ox.Literal else term


def decimal_text(value: Decimal) -> str:
    """Return the canonical lexical form of an xsd:decimal."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def double_text(value: float) -> str:
    """Return the lexical form that Oxigraph gives an xsd:double: the shortest unique digits, without an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    text = repr(value)
    if "e" in text:
        text = format(Decimal(text), "f")
    elif text.endswith(".0"):
        text = text[:-2]
    if len(text) > 16 and _has_twin(value, text):
        return canonical(ox.Literal(text, datatype=DOUBLE)).value  # type: ignore[union-attr]
    return text


def _has_twin(value: float, text: str) -> bool:
    """Return whether another text is equally short and near: then Oxigraph may choose that one."""
    numerator, denominator = value.as_integer_ratio()
    if denominator == 1:
        return len(_digits(text)) + 1 == len(_digits(str(numerator)))
    return len(text.partition(".")[2]) + 1 == denominator.bit_length() - 1  # places of the text, and of the number


def _digits(text: str) -> str:
    return text.lstrip("-").replace(".", "").strip("0")


def encode(value: Value) -> Term:
    """Return the term of a value."""
    encoder = _ENCODERS.get(type(value))
    return value if encoder is None else encoder(value)  # type: ignore[return-value]


_ENCODERS: Final[dict[type, Callable[..., Term]]] = {
    int: lambda value: ox.Literal(str(value), datatype=INTEGER),
    Decimal: lambda value: ox.Literal(decimal_text(value), datatype=DECIMAL),
    float: lambda value: ox.Literal(double_text(value), datatype=DOUBLE),
    Single: lambda value: value.literal,
    bool: lambda value: TRUE if value else FALSE,
    str: ox.Literal,
    Instant: lambda value: ox.Literal(value + "Z", datatype=DATE_TIME),
}

NATIVE_DATATYPES: Final[dict[type, ox.NamedNode]] = {
    int: INTEGER,
    Decimal: DECIMAL,
    float: DOUBLE,
    Single: FLOAT,
    bool: BOOLEAN,
    str: ox.NamedNode(XSD + "string"),
    Instant: DATE_TIME,
}
