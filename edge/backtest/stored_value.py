"""One stored value of an observation, and the reading from which the gateway made it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from edge.adapters.planner import Arrival
from edge.mapping.reading import Reading

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StoredValue(NamedTuple):
    """A value that a mapping has stored. Texts are IRIs, except `value` and `topic`."""

    time: int
    """Time of the measurement, or else of its arrival at the gateway, in microseconds since 1970 (years 1 to 9999)."""
    series: str
    """The observation in the live graph."""
    value: str
    """Lexical form."""
    datatype: str
    unit: str | None = None
    feature: str | None = None
    property: str | None = None
    sensor: str | None = None
    topic: str | None = None


def arrival(stored: StoredValue, *, value_only: bool) -> Arrival:
    """Return the reading of a stored value, as it arrived. `value_only`: the observation keeps its description."""
    time = _BEGINNING + timedelta(microseconds=stored.time)
    reading = Reading(
        observation=stored.series,
        value=stored.value,
        datatype=stored.datatype,
        unit=stored.unit,
        location=stored.feature,
        property=stored.property,
        sensor=stored.sensor,
        topic=stored.topic,
        time=time,
    )
    return Arrival(reading, time, value_only)
