"""Conversion of payload values to lexical form and datatype: exact decimal scaling, value tables, plausibility
checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Final

from edge.mapping.bounded_numbers import MOST_EXPONENT
from edge.mapping.reading import XSD_BOOLEAN, XSD_DATE_TIME, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, XSD_STRING

KINDS: Final = ("number", "integer", "decimal", "double", "boolean", "string", "auto")
"""Names of datatypes. `number`: decimal, or double with an exponent; `auto`: follows JSON."""

# Already a valid lexical form of xsd:decimal: most values need no further work.
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?").fullmatch
_NUMBER = re.compile(r"([-+]?)([0-9]*)(?:\.([0-9]*))?([eE][-+]?[0-9]+)?").fullmatch
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]{1,9})?(?:Z|[-+](?:0[0-9]|1[0-3]):[0-5][0-9]|[-+]14:00)?"
).fullmatch
"""The forms of xsd:dateTime (XML Schema 1.1 part 2, section 3.3.7) with the years 0001 to 9999 and hours below 24."""
_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]").search
# Enough for a number of `MappingLimits.digits` characters times a scale plus an offset, without rounding.
EXACT: Final = Context(prec=1000)
_DOUBLE: Final = Context(prec=17)
_MOST_FACTOR: Final = 40
"""Limit of the characters of a factor in a payload, and of its exponent. Those of mapping files have the same."""
_BOOLEANS: Final = {"true": "true", "1": "true", "on": "true", "yes": "true"} | {
    "false": "false",
    "0": "false",
    "off": "false",
    "no": "false",
}


class JsonNumber(str):
    """The digits of a JSON number as in the payload (including NaN and Infinity, which JSON forbids)."""

    __slots__ = ()


class BadValueError(ValueError):
    """The value is invalid for this observation; the text gives the reason."""


class OtherKindError(BadValueError):
    """The value has another type (a text, an object); readings with wildcards skip it."""


@dataclass(frozen=True, slots=True)
class Converter:
    """Converts one raw value: None, bool, `JsonNumber`, str, or (refused) list and dict."""

    kind: str = "number"
    datatype: str | None = None
    """IRI of a datatype without a kind; the text is not converted. One of XSD is `xsd:dateTime`, which is checked."""
    table: Mapping[str, tuple[str, str]] | None = None
    absent: frozenset[str] = frozenset()
    scale: Decimal | None = None
    offset: Decimal | None = None
    low: Decimal | None = None
    high: Decimal | None = None
    decimal_comma: bool = False
    round: int | str | None = None
    """Decimals after scaling, or "down": to a whole number, towards zero."""
    case: str | None = None
    """ "lower" or "upper": case of texts."""
    max_digits: int = 64
    max_text: int = 65_536
    _calculated: bool = field(init=False, default=False)
    _unchanged: bool = field(init=False, default=False)
    """Whether a plain JSON number is the value itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_calculated", self.calculated or self.round is not None)
        unlimited = self.low is None and self.high is None and not self.absent
        plain = self.kind in ("number", "decimal") and self.datatype is None and self.table is None
        object.__setattr__(self, "_unchanged", plain and unlimited and not self._calculated)

    @property
    def calculated(self) -> bool:
        """Whether values are scaled."""
        return self.scale is not None or self.offset is not None

    def __call__(self, raw: object) -> tuple[str, str] | None:
        """Return lexical form and datatype IRI; None if the payload has no value. Raises `BadValueError`."""
        # Most values by far.
        if self._unchanged and type(raw) is JsonNumber and _PLAIN(raw) and len(raw) <= self.max_digits:
            return raw, XSD_DECIMAL
        if raw is None:
            return None
        if isinstance(raw, dict | list):
            raise OtherKindError(f"is {'an object' if isinstance(raw, dict) else 'an array'}, not a value")
        if self.case is not None and isinstance(raw, str) and not isinstance(raw, JsonNumber):
            raw = raw.lower() if self.case == "lower" else raw.upper()
        if self.absent and str(raw).strip() in self.absent:
            return None
        if self.table is not None:
            return self._look_up(raw)
        kind = self.kind
        if kind == "auto":
            kind = "boolean" if isinstance(raw, bool) else "number" if isinstance(raw, JsonNumber) else "string"
        if kind == "string":
            return self._string(raw)
        if kind == "boolean":
            return _boolean(raw), XSD_BOOLEAN
        return self._number(raw, kind)

    def _look_up(self, raw: object) -> tuple[str, str]:
        word = plain_text(raw)
        found = (self.table or {}).get(word)
        if found is None:
            known = ", ".join(list(self.table or {})[:10])
            raise BadValueError(f"{shown(word)} is not in the table of values ({known})")
        return found

    def _string(self, raw: object) -> tuple[str, str]:
        text = plain_text(raw)
        if len(text) > self.max_text:
            raise BadValueError(f"is a text of {len(text)} characters, the limit is {self.max_text}")
        if not storable(text):
            raise BadValueError(f"{shown(text)} holds control characters or broken Unicode")
        if self.datatype == XSD_DATE_TIME and not _is_time(text):
            raise OtherKindError(f"{shown(text)} is not a time such as 2026-01-31T12:00:00Z")
        return text, self.datatype or XSD_STRING

    def _number(self, raw: object, kind: str) -> tuple[str, str]:
        if isinstance(raw, bool):
            raise OtherKindError(f'{str(raw).lower()} is not a number; for on/off values set datatype = "boolean"')
        if not isinstance(raw, str):
            raise OtherKindError("is not a number")
        if len(raw) > self.max_digits:
            raise (BadValueError if isinstance(raw, JsonNumber) else OtherKindError)(
                f"{shown(raw)} is not a number of at most {self.max_digits} characters"
            )
        text = raw if _PLAIN(raw) else self._tidy(raw)
        exponent = "e" in text or "E" in text
        if exponent:
            _check_exponent(text)
        if self._calculated:
            text, exponent = self._calculate(text, exponent=exponent)
        if self.low is not None or self.high is not None:
            self._check(text)
        if kind == "number":
            return text, XSD_DOUBLE if exponent else XSD_DECIMAL
        if kind == "double":
            return text, XSD_DOUBLE
        return _plain(text, exponent=exponent, whole=kind == "integer", max_digits=self.max_digits)

    def _tidy(self, raw: str) -> str:
        text = raw.strip()
        if self.decimal_comma:
            text = text.replace(",", ".")
        match = _NUMBER(text)
        if match is None or not (match[2] or match[3]):
            # "NaN" and "Infinity" in JSON are invalid numbers; in a text they are ordinary words.
            kind = BadValueError if isinstance(raw, JsonNumber) else OtherKindError
            raise kind(f"{shown(raw)} is not a number")
        sign, whole, fraction, exponent = match.groups()
        text = (sign if sign == "-" else "") + (whole.lstrip("0") or "0")
        return text + (f".{fraction}" if fraction else "") + (exponent or "")

    def _calculate(self, text: str, *, exponent: bool) -> tuple[str, bool]:
        number = Decimal(text)
        if self.scale is not None:
            number = EXACT.multiply(number, self.scale)
        if self.offset is not None:
            number = EXACT.add(number, self.offset)
        if self.round is not None:
            number = _rounded(number, self.round)
        if not exponent:
            return format(number, "f"), False
        return f"{_DOUBLE.plus(number):E}", True

    def _check(self, text: str) -> None:
        number = Decimal(text)
        if self.low is not None and number < self.low:
            raise BadValueError(f"{text} is below the minimum {self.low}")
        if self.high is not None and number > self.high:
            raise BadValueError(f"{text} is above the maximum {self.high}")


def _rounded(number: Decimal, how: int | str) -> Decimal:
    places, rounding = (how, ROUND_HALF_EVEN) if isinstance(how, int) else (0, ROUND_DOWN)
    rounded = number.quantize(Decimal(1).scaleb(-places), rounding, EXACT)
    # Tens without an exponent; and zero has no sign.
    return (rounded if places >= 0 else rounded.quantize(Decimal(1), context=EXACT)) or abs(rounded)


def json_number(number: Decimal) -> JsonNumber:
    """Return a number of a mapping file as that of a payload; without an exponent, unless it is very long."""
    return JsonNumber(format(number, "f") if abs(number.adjusted()) <= MOST_EXPONENT else str(number))


def payload_factor(raw: object, *, power: bool) -> Decimal | None:
    """Return the factor that a payload has for its values; None if it is not a number of usual size.

    `power`: it is the exponent of a power of ten. The size is bounded, because the exact product would be as long.
    """
    if not isinstance(raw, str) or len(raw) > _MOST_FACTOR or not _NUMBER(raw.strip()):
        return None
    try:
        number = Decimal(raw.strip())
    except InvalidOperation:
        return None
    if not number:
        # Without its exponent, which can be of any size.
        return Decimal(1 if power else 0)
    # Before any arithmetic, which overflows with a large exponent.
    if abs(number.adjusted()) > _MOST_FACTOR:
        return None
    if not power:
        return number
    whole = number == number.to_integral_value() and abs(number) <= _MOST_FACTOR
    return Decimal(1).scaleb(int(number)) if whole else None


def _check_exponent(text: str) -> None:
    """Raise `BadValueError` if a number is too large for a double, or its exponent too long for arithmetic."""
    if float(text) in (float("inf"), float("-inf")):
        raise BadValueError(f"{text} is too large a number")
    try:
        Decimal(text)
    except InvalidOperation:
        raise BadValueError(f"{text} has too long an exponent") from None


def _plain(text: str, *, exponent: bool, whole: bool, max_digits: int) -> tuple[str, str]:
    if exponent:
        number = Decimal(text)
        # A number such as 1e300 would expand to 300 digits.
        if abs(number.adjusted()) > max_digits:
            raise BadValueError(f"{text} is too long to be written without an exponent")
        text = format(number, "f")
    if not whole:
        return text, XSD_DECIMAL
    if "." in text:
        text, _, fraction = text.partition(".")
        if fraction.strip("0"):
            raise BadValueError(f"{text}.{fraction} is not a whole number")
    return "0" if text == "-0" else text, XSD_INTEGER


def _boolean(raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    found = _BOOLEANS.get(str(raw).strip().lower())
    if found is None:
        raise OtherKindError(f"{shown(str(raw))} is not a truth value; say in `values` what it means")
    return found


def _is_time(text: str) -> bool:
    match = _TIME(text)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1])
    except ValueError:
        return False
    return True


def storable(text: str) -> bool:
    """Whether a literal can contain `text`: no control characters, no invalid Unicode (Char of XML 1.0)."""
    return _UNSTORABLE(text) is None


def plain_text(raw: object) -> str:
    """Return a scalar of a payload as text, without surrounding blanks."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    return str(raw) if isinstance(raw, JsonNumber) else str(raw).strip()


def shown(text: str) -> str:
    """Format `text` for messages: quoted, escaped, shortened."""
    cut = text if len(text) <= 60 else text[:60] + "..."
    return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in cut) + '"'


def literal(value: bool | Decimal | str, kind: str | None) -> tuple[str, str]:
    """Return the entry of a value table as lexical form and datatype IRI. Raises `BadValueError`."""
    if kind is None:
        kind = "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
    raw: object = value
    if isinstance(value, Decimal):
        raw = json_number(value)
    converted = Converter(kind=kind)(raw)
    if converted is None:
        raise BadValueError("is not a value")
    return converted
