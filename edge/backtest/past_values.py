"""Values of the time before the begin, with which time windows begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import pyoxigraph as ox

from edge.backtest.stored_value import StoredValue
from edge.engine.store.terms import canonical
from edge.protocol.errors import ResultTooLarge
from edge.streams.observations import PastValue
from edge.streams.settings import StreamSettings

_LEAST_SIZE: Final = 256
"""Lower bound of the bytes of an element of the stream of observations, as N-Triples."""
MOST: Final = StreamSettings().max_bytes // _LEAST_SIZE
"""Values beyond which the windows would not have room for their elements (`streams.max_bytes`)."""


class PastValues:
    """The values, in the order of time."""

    def __init__(self) -> None:
        self._values: deque[PastValue] = deque()
        self._last: dict[str, PastValue] = {}
        """Last value of each observation."""

    def add(self, stored: StoredValue) -> None:
        """Add a value that is valid RDF, in the form in which it is in the live graph. Raises `ResultTooLarge`."""
        if len(self._values) >= MOST:
            raise ResultTooLarge(
                f"More than {MOST:,} values are in the windows at the begin; use a shorter window, or an earlier begin"
            )
        literal = canonical(ox.Literal(stored.value, datatype=ox.NamedNode(stored.datatype)))
        assert isinstance(literal, ox.Literal)  # noqa: S101
        value = PastValue(stored.time, stored.series, literal.value, literal.datatype.value)
        # An equal value with the same time changes nothing in the live graph, so it is not an element of the stream.
        if self._last.get(stored.series) != value:
            self._last[stored.series] = value
            self._values.append(value)

    def of(self, begin: int, end: int) -> Sequence[PastValue]:
        """Return the values of a period, both in microseconds since 1970."""
        return [each for each in self._values if begin <= each.time < end]

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()
        self._last.clear()
