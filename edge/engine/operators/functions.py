"""SPARQL's operators and functions on values, where Python gives exactly Oxigraph's result (sections 17.3 and 17.4).

Each takes values and returns a value, None for an error, or `NotImplemented` without a rule; Oxigraph then evaluates
the call. Numbers of different types are promoted: integer, decimal, float, double.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final

import pyoxigraph as ox

from edge.engine.operators.values import EXACT, INTEGERS, NATIVE_DATATYPES, Instant, Single, Value, encode, round_single

Operand = Any
"""A Value. The function checks its type at run time."""
Result = Any
"""A Value, None or NotImplemented."""
Function = Callable[..., Result]

_COMPARED: Final = frozenset({int, Decimal, float, Single, str, Instant})
"""Types whose values Python compares like SPARQL."""
EQUATED: Final = frozenset({*_COMPARED, bool, ox.NamedNode, ox.BlankNode})
_NUMBERS: Final = frozenset({int, Decimal, float})
"""Types with which Python computes."""
NUMERIC: Final = _NUMBERS | {Single}
_ORDER: Final = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


def _to_double(number: float | Decimal) -> float:
    """Return an xsd:integer, xsd:decimal or xsd:double as a double, rounded as in Oxigraph."""
    if type(number) is not Decimal:
        return float(number)
    text = str(number)
    if len(text) <= 16:
        return float(text)
    digits = EXACT.normalize(number)
    places = -int(digits.as_tuple().exponent)
    return float(digits) if places <= 0 else float(int(digits.scaleb(places, EXACT))) / float(10**places)


def _promoted(a: Operand, b: Operand) -> tuple[Operand, Operand] | None:
    """Return two numbers of different types in a common type; None if they are not two numbers."""
    kind = type(a)
    other = type(b)
    if kind not in NUMERIC or other not in NUMERIC:
        return None
    if kind is float or other is float:
        return _to_double(a), _to_double(b)
    if kind is Single:
        return a, round_single(_to_double(b))
    if other is Single:
        return round_single(_to_double(a)), b
    return a, b


def comparison(name: str) -> Function:
    """Return the function for `<`, `>`, `<=` or `>=`."""
    compares = _ORDER[name]

    def compare(a: Operand, b: Operand) -> Result:
        kind = type(a)
        if kind is type(b):
            return compares(a, b) if kind in _COMPARED else NotImplemented
        numbers = _promoted(a, b)
        return NotImplemented if numbers is None else compares(*numbers)

    return compare


def equal(a: Operand, b: Operand) -> Result:
    """Evaluate `=`."""
    kind = type(a)
    other = type(b)
    if kind is other:
        return a == b if kind in EQUATED else NotImplemented
    numbers = _promoted(a, b)
    if numbers is not None:
        return numbers[0] == numbers[1]
    return False if kind in EQUATED and other in EQUATED else NotImplemented


def unequal(a: Operand, b: Operand) -> Result:
    """Evaluate `!=`."""
    answer = equal(a, b)
    return answer if answer is NotImplemented else not answer


def truth(value: Operand) -> Result:
    """Return the effective boolean value (section 17.2.2)."""
    kind = type(value)
    if kind is bool:
        return value
    if kind is str or kind in NUMERIC:
        return bool(value)
    return NotImplemented


# Arithmetic

_SMALL: Final = 10**9
_NANO: Final = Decimal("1e-9")
_LAST: Final = Decimal("1e-18")


def _exactly(number: int | Decimal) -> Decimal | None:
    """Return a number with at most nine digits on each side of the point as a Decimal; None if it has more.

    The result of any operation on two such numbers fits into the 18 digits of Oxigraph's decimals.
    """
    if not -_SMALL < number < _SMALL:
        return None
    if isinstance(number, Decimal):
        return number if EXACT.quantize(number, _NANO) == number else None
    return Decimal(number)


def _arithmetic(on_numbers: Function, on_decimals: Function) -> Function:
    def compute(a: Operand, b: Operand) -> Result:
        kind = type(a)
        other = type(b)
        if kind is int and other is int:
            result = on_numbers(a, b)
            # Integers of Oxigraph have 64 bits, and an overflow is an error.
            return result if result in INTEGERS else None
        if kind not in _NUMBERS or other not in _NUMBERS:
            return NotImplemented
        if kind is float or other is float:
            result = on_numbers(_to_double(a), _to_double(b))
            return NotImplemented if math.isnan(result) else result
        left, right = _exactly(a), _exactly(b)
        return NotImplemented if left is None or right is None else on_decimals(left, right)

    return compute


def _divide(a: Operand, b: Operand) -> Result:
    kind = type(a)
    other = type(b)
    if kind not in _NUMBERS or other not in _NUMBERS or not b:
        return NotImplemented
    if kind is float or other is float:
        result = _to_double(a) / _to_double(b)
        return NotImplemented if math.isnan(result) else result
    left, right = _exactly(a), _exactly(b)
    if not left or right is None:  # Oxigraph has no quotient of zero and a fraction
        return NotImplemented
    # Decimals of Oxigraph have 18 digits after the point, and are cut off there.
    return EXACT.divide(left, right).quantize(_LAST, ROUND_DOWN, EXACT)


def _minus(a: Operand) -> Result:
    kind = type(a)
    if kind is int:
        return -a if -a in INTEGERS else None
    return -a if kind is float else -a + 0 if kind is Decimal and _exactly(a) is not None else NotImplemented


def _plus(a: Operand) -> Result:
    return a if type(a) in _NUMBERS else NotImplemented


# Terms (section 17.4.2)


def _str(a: Operand) -> Result:
    kind = type(a)
    if kind is str:
        return a
    if kind is ox.BlankNode or kind is ox.Triple:
        return None
    return encode(a).value  # type: ignore[union-attr]


def _lang(a: Operand) -> Result:
    kind = type(a)
    if kind is ox.Literal:
        return a.language or ""
    return "" if kind in NATIVE_DATATYPES else None


def _datatype(a: Operand) -> Result:
    kind = type(a)
    return a.datatype if kind is ox.Literal else NATIVE_DATATYPES.get(kind)


def _is_iri(a: Operand) -> bool:
    return type(a) is ox.NamedNode


def _is_blank(a: Operand) -> bool:
    return type(a) is ox.BlankNode


def _is_literal(a: Operand) -> bool:
    kind = type(a)
    return kind is ox.Literal or kind in NATIVE_DATATYPES


def _is_numeric(a: Operand) -> Result:
    kind = type(a)
    return NotImplemented if kind is ox.Literal else kind in NUMERIC


def same_term(a: Value, b: Value) -> bool:
    """Evaluate `sameTerm`: the same literal, IRI or blank node, not only the same value."""
    return type(a) is type(b) and encode(a) == encode(b)


# Strings (section 17.4.3)


def _on_strings(function: Function) -> Function:
    def call(a: Operand, b: Operand) -> Result:
        return function(a, b) if type(a) is str and type(b) is str else NotImplemented

    return call


def _strlen(a: Operand) -> Result:
    return len(a) if type(a) is str else NotImplemented


def _concat(*parts: Operand) -> Result:
    return "".join(parts) if parts and all(type(part) is str for part in parts) else NotImplemented


def _upper(a: Operand) -> Result:
    # Beyond ASCII, Python and Rust may follow different versions of Unicode.
    return a.upper() if type(a) is str and a.isascii() else NotImplemented


def _lower(a: Operand) -> Result:
    return a.lower() if type(a) is str and a.isascii() else NotImplemented


_TAGS: Final = 512
"""Characters of a tag and a range up to which Python splits them."""


def _lang_matches(tag: str, language_range: str) -> Result:
    """Match a language tag by basic filtering (RFC 4647, section 3.3.1)."""
    if not tag.isascii() or not language_range.isascii() or len(tag) + len(language_range) > _TAGS:
        return NotImplemented
    if language_range == "*":
        return tag != ""
    tags, ranges = tag.lower().split("-"), language_range.lower().split("-")
    return tags[: len(ranges)] == ranges


# Dates and times (section 17.4.5)


def _part(start: int, end: int) -> Function:
    def call(a: Operand) -> Result:
        return int(a[start:end]) if type(a) is Instant else NotImplemented

    return call


def _seconds(a: Operand) -> Result:
    return Decimal(a[17:]) if type(a) is Instant else NotImplemented


FUNCTIONS: Final[dict[str, Function]] = {
    "=": equal,
    "!=": unequal,
    **{name: comparison(name) for name in _ORDER},
    "+": _arithmetic(operator.add, EXACT.add),
    "-": _arithmetic(operator.sub, EXACT.subtract),
    "*": _arithmetic(operator.mul, EXACT.multiply),
    "/": _divide,
    "unary-": _minus,
    "unary+": _plus,
    "STR": _str,
    "LANG": _lang,
    "DATATYPE": _datatype,
    "ISIRI": _is_iri,
    "ISURI": _is_iri,
    "ISBLANK": _is_blank,
    "ISLITERAL": _is_literal,
    "ISNUMERIC": _is_numeric,
    "SAMETERM": same_term,
    "STRLEN": _strlen,
    "CONCAT": _concat,
    "UCASE": _upper,
    "LCASE": _lower,
    "STRSTARTS": _on_strings(str.startswith),
    "STRENDS": _on_strings(str.endswith),
    "CONTAINS": _on_strings(operator.contains),
    "LANGMATCHES": _on_strings(_lang_matches),
    "YEAR": _part(0, 4),
    "MONTH": _part(5, 7),
    "DAY": _part(8, 10),
    "HOURS": _part(11, 13),
    "MINUTES": _part(14, 16),
    "SECONDS": _seconds,
}
"""By the name of the call."""
