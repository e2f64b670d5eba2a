"""Observed properties: names, terms of the graph as JSON, and desired values from JSON with their checks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import unquote

import pyoxigraph as ox

from edge.number_text import NOT_A_DOUBLE, number_text
from edge.protocol.errors import InvalidRequest
from edge.protocol.json_faults import json_fault

Settable = Mapping[str, Any]
"""How a value can be set: `kind`, and its `choices`, or `min` and `max`. See `/api/settable`."""

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_BOOLEAN: Final = f"{_XSD}boolean"
_NUMERIC: Final = frozenset(f"{_XSD}{name}" for name in ("integer", "decimal", "double", "float"))
"""Datatypes of numbers. The live graph has no others: it converts those derived from integer."""
_MOST_DIGITS: Final = 300
"""Digits of a number in JSON without an exponent."""


def local_name(iri: str) -> str:
    """Return the last part of an IRI, decoded. In a URN, a name may have slashes."""
    return unquote(re.split(":" if iri.startswith("urn:") else "[/#:]", iri.rstrip("/#:"))[-1]) or iri


def to_json(value: ox.Literal) -> str:
    """Return a value as JSON: a number, a boolean or a string."""
    if value.datatype.value == _BOOLEAN and value.value in ("true", "false"):
        return value.value
    number = _number(value)
    if number is None:
        return json.dumps(value.value, ensure_ascii=False)
    return f"{number:f}" if abs(number.adjusted()) < _MOST_DIGITS else f"{number:e}"


def is_numeric(value: ox.Literal) -> bool:
    """Whether the datatype of a value is one of numbers. Its lexical form may be NaN, INF or invalid."""
    return value.datatype.value in _NUMERIC


def type_of(value: ox.Literal | None) -> str:
    """Return the type of a value in JSON Schema."""
    if value is not None:
        if value.datatype.value == _BOOLEAN:
            return "boolean"
        if _number(value) is not None:
            return "number"
    return "string"


def data_schema(value: ox.Literal | None, settable: Settable | None) -> dict[str, object]:
    """Return the members of a data schema (Thing Description 1.1, section 5.3.2) of a property.

    `value`: its present value. `settable`: how it can be set; None: it cannot.
    """
    if settable is None:
        return {"type": type_of(value), "readOnly": True}
    kind = settable.get("kind")
    if kind == "switch":
        return {"type": "boolean"}
    if kind == "number":
        limits = {"minimum": settable.get("min"), "maximum": settable.get("max")}
        return {
            "type": "number",
            **{name: _plain(each) for name, each in limits.items() if each is not None and math.isfinite(each)},
        }
    if kind == "choice":
        choices: Sequence[str] = settable.get("choices", ())
        numbers = [_decimal(each) for each in choices]
        if type_of(value) == "number" and all(number is not None for number in numbers):
            finite = [_plain(float(number)) for number in numbers if number is not None and math.isfinite(number)]
            return {"type": "number", "enum": list(dict.fromkeys(finite))}
        return {"type": "string", "enum": list(choices)}
    return {"type": type_of(value)}


def desired_value(text: str, settable: Settable) -> ox.Literal:
    """Return the value in a JSON text, if the property can have it. Raises `InvalidRequest` with the possible ones."""
    try:
        given: object = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)
        if isinstance(given, str):
            given.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("The body has half a surrogate pair, which is not a character") from None
    except (ValueError, ArithmeticError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError | RecursionError):
            raise InvalidRequest(json_fault("The body", error)) from None
        raise InvalidRequest(f"The body has a number that cannot be read; send {possible(settable)}") from None
    found = _accepted(given, settable)
    if found is None:
        shown = text.strip()
        shown = shown if len(shown) <= 50 else f"{shown[:50]}…"
        is_chosen = settable.get("kind") in ("switch", "choice")
        if isinstance(given, Decimal) and not is_chosen and _within(given, settable) and number_text(given) is None:
            raise InvalidRequest(f"{shown} is not possible: {NOT_A_DOUBLE}")
        raise InvalidRequest(f"{shown} is not possible; send {possible(settable)} as JSON")
    return found


def possible(settable: Settable) -> str:
    """Return the values that a property can have, in words."""
    kind = settable.get("kind")
    if kind == "switch":
        return "true or false"
    if kind == "choice":
        return "one of " + ", ".join(json.dumps(each, ensure_ascii=False) for each in settable.get("choices", ()))
    if kind != "number":
        return "a string, a number or a boolean"
    limits = [
        f"{word} {settable[key]:g}" for word, key in (("from", "min"), ("to", "max")) if settable.get(key) is not None
    ]
    return " ".join(["a number", *limits])


def _accepted(given: object, settable: Settable) -> ox.Literal | None:
    """Return a value as a term; None: it is not possible."""
    kind = settable.get("kind")
    if kind == "switch":
        return ox.Literal(given) if isinstance(given, bool) else None
    number = _term(given) if isinstance(given, Decimal) else None
    if kind == "number":
        return number if isinstance(given, Decimal) and _within(given, settable) else None
    if kind == "choice":
        text = _choice(given, settable.get("choices", ()))
        return None if text is None else ox.Literal(text)
    return ox.Literal(given) if isinstance(given, str | bool) else number


def _choice(given: object, choices: Sequence[str]) -> str | None:
    """Return the choice that equals a value; None: none does."""
    if not isinstance(given, Decimal):
        return given if isinstance(given, str) and given in choices else None
    if (number := _term(given)) is None or number.value in choices:
        return None if number is None else number.value
    # As doubles, because the schema has these.
    same = (each for each in choices if (known := _decimal(each)) is not None and float(known) == float(given))
    return next(same, None)


def _within(number: Decimal, settable: Settable) -> bool:
    low, high = settable.get("min"), settable.get("max")
    return (low is None or number >= Decimal(str(low))) and (high is None or number <= Decimal(str(high)))


def _term(number: Decimal) -> ox.Literal | None:
    """Return a number as a term; None: a double cannot represent its size."""
    if (text := number_text(number)) is None:
        return None
    datatype = "double" if "e" in text else "decimal" if "." in text else "integer"
    return ox.Literal(text, datatype=ox.NamedNode(_XSD + datatype))


def _number(value: ox.Literal) -> Decimal | None:
    return _decimal(value.value) if value.datatype.value in _NUMERIC else None


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _plain(number: float) -> float:
    """Return a whole number as an integer, which is shorter in JSON."""
    return int(number) if float(number).is_integer() else number


def _refuse(constant: str) -> object:
    raise ValueError(constant)
