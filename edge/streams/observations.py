"""The built-in stream of observations: each new value of the live graph is an element.

    <observation> sosa:hasSimpleResult "21.5"^^xsd:decimal ; sosa:resultTime "2026-11-21T22:00:00Z"^^xsd:dateTime

Descriptions of observations are in the live graph, with which a query can join the window. Only values in the default
graph are elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

import pyoxigraph as ox

from edge.protocol.access import ANYBODY
from edge.protocol.results import Row
from edge.streams.live_data import LiveGraph
from edge.streams.names import PREFIX

OBSERVATIONS: Final = f"{PREFIX}observations"
"""IRI of the stream."""

VALUES: Final = """\
SELECT ?observation ?value ?time WHERE {
  ?observation <http://www.w3.org/ns/sosa/hasResult> ?result .
  ?result <http://qudt.org/1.1/schema/qudt#numericValue> ?value .
  OPTIONAL {
    ?result <http://www.w3.org/2006/time#hasTime> ?instant .
    ?instant <http://www.w3.org/2006/time#inXSDDateTimeStamp> ?time
  }
}"""
"""Query for all values, with the time of their measurement."""

_RESULT: Final = ox.NamedNode("http://www.w3.org/ns/sosa/hasSimpleResult")
_TIME: Final = ox.NamedNode("http://www.w3.org/ns/sosa/resultTime")
_DATE_TIME: Final = ox.NamedNode("http://www.w3.org/2001/XMLSchema#dateTime")


class PastValue(NamedTuple):
    """A value of the recent history."""

    time: int
    """Microseconds since 1970."""
    observation: str
    value: bool | int | float | str


Past = Callable[[int, int], Iterable[PastValue]]
"""Returns the values of a period that the gateway has recorded, in the order of time."""

Elements = Sequence[tuple[tuple[ox.Triple, ...], int | None]]
"""Graphs with their times; None: now."""


class Observations(Protocol):
    """Source of the elements."""

    def follow(self, added: Callable[[Elements], None]) -> Callable[[], None]:
        """Call `added` with the elements of new values, on the thread of the processor. Returns how to end that."""

    def past(self, begin: int, end: int) -> Elements:
        """Return the elements of a past period, with their times, in order."""


class LiveObservations:
    """Observations of the live graph and of the recent history."""

    def __init__(self, live: LiveGraph, past: Past) -> None:
        self._live = live
        self._past = past
        self._datatypes: dict[str, ox.NamedNode] = {}
        """Datatype of the values of each observation, which the recent history does not have."""

    def follow(self, added: Callable[[Elements], None]) -> Callable[[], None]:
        """See `Observations`."""

        def changed(rows: Sequence[Row], _removed: Sequence[Row]) -> None:
            self._note(rows)
            added([(element(*row), None) for row in rows])

        first, end = self._live.follow(VALUES, ANYBODY, changed)
        self._note(first)
        return end

    def past(self, begin: int, end: int) -> Elements:
        """See `Observations`."""
        return [
            (element(ox.NamedNode(each.observation), self._literal(each), _stamp(each.time)), each.time)
            for each in self._past(begin, end)
        ]

    def _note(self, rows: Iterable[Row]) -> None:
        for observation, value, _ in rows:
            if isinstance(value, ox.Literal) and isinstance(observation, ox.NamedNode):
                self._datatypes[observation.value] = value.datatype

    def _literal(self, past: PastValue) -> ox.Literal:
        datatype = self._datatypes.get(past.observation)
        if datatype is None or isinstance(past.value, bool):
            return ox.Literal(past.value)
        return ox.Literal(str(past.value), datatype=datatype)


def element(observation: object, value: object, time: object) -> tuple[ox.Triple, ...]:
    """Return the graph of a value. Terms that are not bound, or cannot be in such a triple, are left out."""
    if not isinstance(observation, ox.NamedNode | ox.BlankNode):
        return ()
    pairs = ((_RESULT, value), (_TIME, time))
    return tuple(
        ox.Triple(observation, predicate, term)
        for predicate, term in pairs
        if isinstance(term, ox.Literal | ox.NamedNode | ox.BlankNode)
    )


def _stamp(time: int) -> ox.Literal:
    text = datetime.fromtimestamp(time / 1_000_000, UTC).isoformat().replace("+00:00", "Z")
    return ox.Literal(text, datatype=_DATE_TIME)
