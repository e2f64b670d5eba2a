"""Numbers in texts of clients and devices, bounded before any arithmetic."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

MOST_EXPONENT: Final = 400
"""Size of the numbers that are computed with: that of a double. Larger ones take too much time and memory as integers
or without an exponent.
"""
_MOST_CHARACTERS: Final = 400
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def bounded_number(text: str) -> Decimal | None:
    """Return the number that a text stands for; None if it stands for none, or for one that no double can represent."""
    text = text.strip() if len(text) <= _MOST_CHARACTERS else ""
    try:
        number = Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:  # the exponent has too many digits
        return None
    if number is not None and not number:
        # Without its exponent, which can be of any size.
        return Decimal(0)
    return number if number is not None and abs(number.adjusted()) <= MOST_EXPONENT else None
