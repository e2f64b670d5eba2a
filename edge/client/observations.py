"""Observations as typed values: the SPARQL that reads, follows and publishes them (docs/concepts/observation.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import TracebackType
from typing import Final, Self

import pyoxigraph as ox

from edge.client.rows import Plain, Row, plain
from edge.client.subscription import Subscription

Published = str | int | float | bool | Decimal
"""Value that a client can publish."""

_PREFIXES: Final = (
    "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
    "PREFIX time: <http://www.w3.org/2006/time#>\n"
)
_VALUES: Final = """SELECT ?observation ?value ?unit ?time ?sensor ?property ?place {
  ?observation a sosa:Observation ; sosa:hasResult ?result . ?result qudt:numericValue ?value
  OPTIONAL { ?result qudt:unit ?unit } OPTIONAL { ?result time:hasTime/time:inXSDDateTimeStamp ?time }
  OPTIONAL { ?observation sosa:madeBySensor ?sensor } OPTIONAL { ?observation sosa:observedProperty ?property }
  OPTIONAL { ?observation sosa:hasFeatureOfInterest ?place }
"""
_IRI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Observation:
    """The value of a property at a time. `sensor`, `property`, `place` and `unit` are IRIs; None: not known."""

    observation: str
    """IRI of the observation, or label of its blank node."""
    value: Plain
    """Number, boolean or text; numbers as `int`, `Decimal` or `float` by their datatype."""
    sensor: str | None = None
    property: str | None = None
    place: str | None = None
    unit: str | None = None
    time: datetime | None = None
    """With time zone, unless a client has written a time without one."""

    @classmethod
    def of(cls, row: Row) -> Observation:
        """Return the observation of a row of `selection`."""
        iris = {name: str(plain(row[name])) for name in ("sensor", "property", "place", "unit") if name in row}
        time = plain(row["time"]) if "time" in row else None
        return cls(
            str(plain(row["observation"])),
            plain(row["value"]),
            time=time if isinstance(time, datetime) else None,
            **iris,
        )


def selection(property: str | None, sensor: str | None, place: str | None) -> str:  # noqa: A002 - SOSA's term
    """Return the query for observations of this property, sensor and place; None: any.

    A name without a colon matches the IRIs that end with it, after `/`, `#` or `:`. Raises `ValueError`.
    """
    given = {"property": property, "sensor": sensor, "place": place}
    filters = [_filter(variable, name) for variable, name in given.items() if name is not None]
    return f"{_PREFIXES}{_VALUES}{''.join(filters)}}}"


def publication(
    value: Published,
    *,
    sensor: str,
    property: str,  # noqa: A002 - SOSA's term
    place: str | None = None,
    unit: str | None = None,
    time: datetime | None = None,
    observation: str | None = None,
) -> str:
    """Return the update that gives an observation a value. It creates the observation or replaces its value.

    Raises `ValueError` and `TypeError`.
    """
    names = {"sensor": sensor, "property": property, "place": place, "unit": unit, "observation": observation}
    iris = {name: _iri(name, iri) for name, iri in names.items() if iri is not None}
    about = iris.get("observation") or _iri("observation", f"{sensor}/{_last_part(property)}")
    stamp = ox.Literal(_utc(time).isoformat(), datatype=ox.NamedNode("http://www.w3.org/2001/XMLSchema#dateTimeStamp"))
    new, instant = (_iri("observation", about.value + end) for end in ("/result", "/result/time"))
    place_triple = f" ; sosa:hasFeatureOfInterest {iris['place']}" if place is not None else ""
    unit_triple = f" ; qudt:unit {iris['unit']}" if unit is not None else ""
    old_unit = " ?known qudt:unit ?oldUnit ." if unit is not None else ""
    place_row = f" (sosa:hasFeatureOfInterest {iris['place']})" if place is not None else ""
    # The first operation removes other sensors, properties and places. Within the second one, these rows would
    # multiply those of the result. A result that exists keeps its IRI: mappings and other clients refer to it.
    return f"""{_PREFIXES}
DELETE {{ {about} ?link ?gone }} WHERE {{
  VALUES (?link ?kept) {{ (sosa:madeBySensor {iris["sensor"]}) (sosa:observedProperty {iris["property"]}){place_row} }}
  {about} ?link ?gone FILTER(!sameTerm(?gone, ?kept)) }} ;
DELETE {{ ?known qudt:numericValue ?old .{old_unit} ?instant time:inXSDDateTimeStamp ?before }}
INSERT {{ {about} a sosa:Observation ; sosa:madeBySensor {iris["sensor"]} ; sosa:observedProperty {iris["property"]} ;
    sosa:hasResult ?result{place_triple} .
  ?result a qudt:QuantityValue ; qudt:numericValue {_literal(value)} ; time:hasTime ?instant{unit_triple} .
  ?instant a time:Instant ; time:inXSDDateTimeStamp {stamp} }}
WHERE {{
  OPTIONAL {{ {about} sosa:hasResult ?known
    OPTIONAL {{ ?known qudt:numericValue ?old }} OPTIONAL {{ ?known qudt:unit ?oldUnit }}
    OPTIONAL {{ ?known time:hasTime ?then OPTIONAL {{ ?then time:inXSDDateTimeStamp ?before }} }} }}
  BIND(COALESCE(?known, {new}) AS ?result) BIND(COALESCE(?then, {instant}) AS ?instant) }}"""


class ObservationFeed:
    """Asynchronous iterator of observations: the values that hold now, and then each change.

    It subscribes with the first iteration, or at the begin of `async with`, which also unsubscribes at the end. A
    deleted observation yields nothing.
    """

    def __init__(self, subscribe: Callable[[], Awaitable[Subscription]]) -> None:
        self._subscribe = subscribe
        self._subscription: Subscription | None = None
        self._waiting: list[Observation] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Observation:
        subscription = await self.start()
        while not self._waiting:
            self._waiting = ordered((await anext(subscription)).added)[::-1]
        return self._waiting.pop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> Subscription:
        """Subscribe, once. Waits for the first result; raises as `Client.subscribe`."""
        if self._subscription is None:
            self._subscription = await self._subscribe()
        return self._subscription

    async def close(self) -> None:
        """Unsubscribe."""
        self._waiting = []
        if self._subscription is not None:
            await self._subscription.close()


def ordered(rows: Iterable[Row]) -> list[Observation]:
    """Return the observations of rows in the order of their times; those without a time first."""
    return sorted(map(Observation.of, rows), key=lambda each: (_instant(each.time), each.observation))


def _instant(time: datetime | None) -> datetime:
    """Return a time that can be compared with others. Times without zone count as UTC."""
    if time is None:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _filter(variable: str, name: str) -> str:
    if _IRI.match(name):
        return f"  FILTER(?{variable} = {_iri(variable, name)})\n"
    if not name:
        raise ValueError(f"{variable} is an empty text; leave it out for any {variable}")
    ends = " || ".join(f"STRENDS(STR(?{variable}), {ox.Literal(mark + name)})" for mark in "/#:")
    return f"  FILTER({ends})\n"


def _iri(name: str, text: str) -> ox.NamedNode:
    try:
        return ox.NamedNode(text)
    except ValueError:
        raise ValueError(f'{name}: "{text}" is not an absolute IRI such as http://example.org/cellar') from None


def _last_part(iri: str) -> str:
    return re.split(r"[/#:]", iri.rstrip("/#:"))[-1]


def _utc(time: datetime | None) -> datetime:
    if time is None:
        return datetime.now(UTC)
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no time zone, so the instant is not known; add one, such as UTC")
    return time.astimezone(UTC)


def _literal(value: Published) -> ox.Literal:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is not a finite number")
        return ox.Literal(f"{value:f}", datatype=ox.NamedNode("http://www.w3.org/2001/XMLSchema#decimal"))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if isinstance(value, str | int | float):
        return ox.Literal(value)
    raise TypeError(f"{value!r:.100} is neither a number, a truth value nor a text")
