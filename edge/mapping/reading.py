"""Reading: one value of one observation, and the terms that describe it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from edge.mapping.store import StoreRules

XSD = "http://www.w3.org/2001/XMLSchema#"
XSD_BOOLEAN = XSD + "boolean"
XSD_DATE_TIME = XSD + "dateTime"
XSD_DECIMAL = XSD + "decimal"
XSD_DOUBLE = XSD + "double"
XSD_INTEGER = XSD + "integer"
XSD_STRING = XSD + "string"


class Event(NamedTuple):
    """An event that a reading reports."""

    id: str = ""
    """Identifies the event; empty: nothing does."""
    within: float | None = None
    """Seconds within which reports of the same id and value are one event; None: the default of events with an id."""

    def __str__(self) -> str:
        """Describe how it is recognised."""
        text = self.id or "each message"
        return text if self.within is None else f"{text}, once within {self.within:g} s"


class Reading(NamedTuple):  # a tuple, because each message makes one: a frozen dataclass takes three times as long
    """One value of one observation (SOSA; "Dynamic Linked Data", section 5.4, Listings 17 and 18).

    `value` is a lexical form of `datatype`: `xsd:decimal` for plain numbers, `xsd:double` for numbers written with an
    exponent, `xsd:integer` where a mapping asks for it, `xsd:boolean`, or `xsd:string`.
    """

    observation: str
    """IRI of the observation."""
    value: str
    """Lexical form of the value."""
    datatype: str
    """IRI of the datatype."""
    unit: str | None = None
    """IRI of the unit of measure (QUDT 1.1)."""
    location: str | None = None
    """IRI of the feature of interest."""
    property: str | None = None
    """IRI of the observed property."""
    sensor: str | None = None
    """IRI of the sensor that made the observation."""
    label: str | None = None
    comment: str | None = None
    topic: str | None = None
    """Topic of the message (literal of `arces-monitor:hasMqttTopic`)."""
    time: datetime | None = None
    """Timestamp in the message, with zone, in UTC; None if it has none."""
    store: StoreRules | None = None
    """How the reading is stored in the history; None: it is not."""
    event: Event | None = None
    """The event that it reports; None: it is a state."""
    historical: bool = False
    """Whether it is a past value that came late: it is stored in the history, and the graph keeps its newer one."""
    sensor_label: str | None = None
    """Name of the sensor for people; None: the last part of its IRI."""
    existing: bool = False
    """Whether it only changes an observation that exists, and never adds one."""
