"""Series: the recorded values of one observation, and their times."""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

import pyoxigraph as ox

Kind = Literal["number", "boolean", "text"]
"""Kind of the values of a series. Texts are those of enumerations, such as the state of a switch."""

KINDS: Final[tuple[Kind, ...]] = ("number", "boolean", "text")

TICKS: Final = 100
"""Ticks of a second. The times of samples are ticks since 1970, UTC."""
MICROSECONDS: Final = 1_000_000 // TICKS
"""Microseconds of a tick."""

LONGEST_TEXT: Final = 256
"""Characters of the longest recorded text. Longer ones are messages, not states."""

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_NUMBERS: Final = frozenset(
    _XSD + name
    for name in (
        *("decimal", "double", "float", "integer", "long", "int", "short", "byte", "nonNegativeInteger"),
        *("positiveInteger", "nonPositiveInteger", "negativeInteger"),
        *("unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"),
    )
)
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(_NUMBERS, "number"),
    _XSD + "boolean": "boolean",
    _XSD + "string": "text",
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString": "text",
}


class SeriesKey(NamedTuple):
    """Identity of a series."""

    graph: str
    """IRI of the named graph that holds the observation; empty for the default graph."""
    observation: str
    """IRI of the observation."""
    kind: Kind


def kind_of(value: ox.Literal) -> Kind | None:
    """Return the kind of series that records a value; None: values of its datatype are not recorded."""
    return _KINDS.get(value.datatype.value)


def number_of(value: ox.Literal, kind: Kind) -> float | None:
    """Return a number or boolean (1 or 0) as a double; None if the value is not finite or not valid."""
    text = value.value
    if kind == "boolean":
        return 1.0 if text in ("true", "1") else 0.0 if text in ("false", "0") else None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
