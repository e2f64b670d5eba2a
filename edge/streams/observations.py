"""The built-in stream of observations: each new value of the live graph is an element.

    <observation> sosa:hasResult [ qudt:numericValue 21.5 ;
      time:hasTime [ time:inXSDDateTimeStamp "2026-11-21T22:00:00Z"^^xsd:dateTimeStamp ] ]

Values in a window have the form that they have in the live graph and in the history. The blank nodes keep equal values
of an observation apart, and each value at its time. Descriptions of observations are in the live graph, with which a
query can join the window. Only values in the default graph are elements.
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

_HAS_RESULT: Final = ox.NamedNode("http://www.w3.org/ns/sosa/hasResult")
_VALUE: Final = ox.NamedNode("http://qudt.org/1.1/schema/qudt#numericValue")
_HAS_TIME: Final = ox.NamedNode("http://www.w3.org/2006/time#hasTime")
_STAMP: Final = ox.NamedNode("http://www.w3.org/2006/time#inXSDDateTimeStamp")

VALUES: Final = f"""\
SELECT ?observation ?value ?time WHERE {{
  ?observation {_HAS_RESULT} ?result .
  ?result {_VALUE} ?value .
  OPTIONAL {{
    ?result {_HAS_TIME} ?instant .
    ?instant {_STAMP} ?time
  }}
}}"""
"""Query for all values, with the time of their measurement."""

_DATE_TIME_STAMP: Final = ox.NamedNode("http://www.w3.org/2001/XMLSchema#dateTimeStamp")

_Resource = ox.NamedNode | ox.BlankNode
_Value = ox.Literal | ox.NamedNode | ox.BlankNode


class PastValue(NamedTuple):
    """A value of the recent history."""

    time: int
    """Microseconds since 1970."""
    observation: str
    value: bool | int | float | str
    datatype: str | None = None
    """IRI of the datatype of a lexical form. None: that of the present value of the observation."""


Past = Callable[[int, int], Iterable[PastValue]]
"""Returns the values of a period that the gateway has recorded, in the order of time."""

Elements = Sequence[tuple[tuple[ox.Triple, ...], int | None]]
"""Graphs with their times; None: now."""


class Observations(Protocol):
    """Source of the elements."""

    def follow(self, added: Callable[[Elements], None], failed: Callable[[str], None]) -> Callable[[], None]:
        """Call `added` with the elements of new values, and `failed` with the reason if no more of them can come.

        Both are called on the thread of the processor. Returns how to end that.
        """

    def past(self, begin: int, end: int) -> Elements:
        """Return the elements of a past period, with their times, in order."""


class LiveObservations:
    """Observations of the live graph and of the recent history."""

    def __init__(self, live: LiveGraph, past: Past) -> None:
        self._live = live
        self._past = past
        self._datatypes: dict[str, ox.NamedNode] = {}
        """Datatype of the values of each observation, which the recent history does not have."""

    def follow(self, added: Callable[[Elements], None], failed: Callable[[str], None]) -> Callable[[], None]:
        """See `Observations`."""

        def changed(rows: Sequence[Row], _removed: Sequence[Row]) -> None:
            self._note(rows)
            added([(element(*row), None) for row in rows])

        first, end = self._live.follow(VALUES, ANYBODY, changed, failed)
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
        if past.datatype is not None:
            return ox.Literal(str(past.value), datatype=ox.NamedNode(past.datatype))
        datatype = self._datatypes.get(past.observation)
        if datatype is None or isinstance(past.value, bool):
            return ox.Literal(past.value)
        return ox.Literal(str(past.value), datatype=datatype)


def element(observation: object, value: object, time: object) -> tuple[ox.Triple, ...]:
    """Return the graph of a value, with new blank nodes; empty for terms that cannot be in such triples.

    `time`: None if it is not known.
    """
    if not isinstance(observation, _Resource) or not isinstance(value, _Value):
        return ()
    result = ox.BlankNode()
    triples = (ox.Triple(observation, _HAS_RESULT, result), ox.Triple(result, _VALUE, value))
    if not isinstance(time, _Value):
        return triples
    instant = ox.BlankNode()
    return (*triples, ox.Triple(result, _HAS_TIME, instant), ox.Triple(instant, _STAMP, time))


class ElementValue(NamedTuple):
    """What the graph of a value says."""

    observation: str
    value: ox.Literal
    stamp: ox.Literal | None
    """Time of the measurement; None: it is not known."""


def value_of(triples: Iterable[ox.Triple]) -> ElementValue | None:
    """Return the value of a graph that `element` has made; None if its terms cannot be in the recent history."""
    observation = value = stamp = None
    for triple in triples:
        if triple.predicate == _HAS_RESULT:
            observation = triple.subject
        elif triple.predicate == _VALUE:
            value = triple.object
        elif triple.predicate == _STAMP:
            stamp = triple.object
    if not isinstance(observation, ox.NamedNode) or not isinstance(value, ox.Literal):
        return None
    return ElementValue(observation.value, value, stamp if isinstance(stamp, ox.Literal) else None)


def _stamp(time: int) -> ox.Literal:
    text = datetime.fromtimestamp(time / 1_000_000, UTC).isoformat().replace("+00:00", "Z")
    return ox.Literal(text, datatype=_DATE_TIME_STAMP)
