"""Sums of changing bags of numbers: exact, so the result depends neither on the order nor on the history."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.values import (
    DECIMALS,
    DOUBLE,
    EXACT,
    FLOAT,
    INTEGERS,
    Single,
    Value,
    double_text,
    round_single,
)
from edge.engine.store.terms import canonical
from edge.protocol.results import Term

Number = int | Decimal | float

_PLACES: Final = 18
_SCALE: Final = 10**_PLACES
_FINEST: Final = 1074
"""The smallest positive double is 2 to the power of minus this."""


class Sum:
    """The sum of a bag of numbers, in the widest of their types."""

    __slots__ = ("_binary", "_decimals", "_doubles", "_exact", "_floats", "_infinite", "_infinities", "_nans", "count")

    def __init__(self) -> None:
        self.count = 0
        """Number of values."""
        self._exact = 0
        """Sum of the integers and decimals, times 10 to the power of 18."""
        self._binary = 0
        """Sum of the finite floats and doubles, times 2 to the power of 1074."""
        self._decimals = 0
        self._floats = 0
        self._doubles = 0
        self._infinities = 0
        self._infinite = 0
        """Positive infinities minus negative ones."""
        self._nans = 0

    def add(self, value: Value, weight: int) -> bool:
        """Add a number `weight` times. Returns False if it is not a number."""
        if type(value) is int:
            self._exact += weight * value * _SCALE
        elif isinstance(value, Decimal):
            self._decimals += weight
            self._exact += weight * int(value.scaleb(_PLACES, EXACT))
        elif isinstance(value, Single):
            self._floats += weight
            self._add_binary(value, weight)
        elif isinstance(value, float):
            self._doubles += weight
            self._add_binary(value, weight)
        elif isinstance(value, ox.Literal) and value.value == "NaN" and value.datatype in (DOUBLE, FLOAT):
            self._nans += weight
            if value.datatype == DOUBLE:
                self._doubles += weight
            else:
                self._floats += weight
        else:
            return False
        self.count += weight
        return True

    def _add_binary(self, value: float, weight: int) -> None:
        if math.isinf(value):
            self._infinities += weight
            self._infinite += weight if value > 0 else -weight
        else:
            numerator, denominator = value.as_integer_ratio()
            self._binary += weight * (numerator << (_FINEST + 1 - denominator.bit_length()))

    def total(self) -> Term | Number | None:
        """Return the sum: int, Decimal, float, or a literal of xsd:float or NaN. None: too large for Oxigraph."""
        # The widest type among the values is the type of the result (type promotion, 17.3).
        if self._doubles:
            value = self._floating()
            return ox.Literal("NaN", datatype=DOUBLE) if math.isnan(value) else value
        if self._floats:
            return _single(self._floating())
        if self._decimals:
            return Decimal(self._exact).scaleb(-_PLACES, EXACT) if self._exact in DECIMALS else None
        whole = self._exact // _SCALE
        return whole if whole in INTEGERS else None

    def mean(self) -> Term | Number | None:
        """Return the sum divided by the count, truncated to 18 decimal places; zero for an empty bag."""
        if not self.count:
            return 0
        if self._doubles:
            value = self._floating() / self.count
            return ox.Literal("NaN", datatype=DOUBLE) if math.isnan(value) else value
        if self._floats:
            return _single(round_single(self._floating()) / self.count)
        if self.total() is None:
            return None
        quotient = abs(self._exact) // self.count
        return Decimal(quotient if self._exact >= 0 else -quotient).scaleb(-_PLACES, EXACT)

    def _floating(self) -> float:
        if self._nans or self._infinities:
            if self._nans or abs(self._infinite) != self._infinities:
                return math.nan
            return math.copysign(math.inf, self._infinite)
        numerator = self._binary * _SCALE + (self._exact << _FINEST)
        try:
            return numerator / (_SCALE << _FINEST)
        except OverflowError:
            return math.inf if numerator > 0 else -math.inf  # copysign would convert the numerator to a float


def _single(value: float) -> Term:
    """Return a number as an xsd:float."""
    return canonical(ox.Literal(double_text(round_single(value)), datatype=FLOAT))
