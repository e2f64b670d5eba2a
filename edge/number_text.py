"""Text of a number that somebody sets, in a form that the graph, mappings and devices accept."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

NOT_A_DOUBLE: Final = "no double has this size (4.9e-324 to 1.8e308)"
_LONGEST: Final = 64
"""Characters of a number without an exponent. Mappings accept so many."""


def number_text(number: Decimal) -> str | None:
    """Return a finite number as SPARQL and JSON write it: as a double with an exponent if it is long without one.

    Returns None if a double cannot represent its size (IEEE 754, binary64): devices and JSON programs use doubles.
    """
    if abs(number.adjusted()) < _LONGEST and len(text := f"{number:f}") <= _LONGEST:
        return text
    double = float(number)
    return f"{number:e}" if math.isfinite(double) and (double or not number) else None
