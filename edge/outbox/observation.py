"""Compact form of a stored observation, and its RDF (SEPA paper, Listing 18, `STORE_OBSERVATION`).

An observation consists of a few cells and a context that all observations of its sensor share. The triples are
derived from these. Data that does not fit this pattern is stored as quads.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XSD: Final = "http://www.w3.org/2001/XMLSchema#"
SOSA: Final = "http://www.w3.org/ns/sosa/"
QUDT: Final = "http://qudt.org/1.1/schema/qudt#"
OWL_TIME: Final = "http://www.w3.org/2006/time#"
MONITOR: Final = "http://mml.arces.unibo.it/monitor#"
DCTERMS: Final = "http://purl.org/dc/terms/"

DATE_TIME_STAMP: Final = XSD + "dateTimeStamp"
STRING: Final = XSD + "string"

EPOCH_LENGTH: Final = 16
"""Number of hexadecimal digits of the random, globally unique name of an outbox."""


class ObservationContext(NamedTuple):
    """Values that the observations of one sensor share. All except the two datatypes may be missing; texts are IRIs."""

    series: str | None = None
    """The observation in the live graph of which each stored one is a version. The IRIs of versions begin with it."""
    topic: str | None = None
    """Literal of `arces-monitor:hasMqttTopic`; not an IRI."""
    feature: str | None = None
    """Feature of interest."""
    property: str | None = None
    """Observed property."""
    sensor: str | None = None
    unit: str | None = None
    datatype: str = STRING
    """Datatype of the value."""
    time_datatype: str = DATE_TIME_STAMP
    graph: str | None = None
    """Named graph of the history that holds the observations; None: the default graph."""


class Cells(NamedTuple):
    """Values of a single observation."""

    time: int
    """Time of the measurement, or else of its storage, in microseconds since 1970."""
    value: str | None = None
    """Lexical form of the value."""
    time_text: str | None = None
    """Lexical form of the time, if it differs from the result of the function `time_text`."""
    observation: str | None = None
    """IRI of the observation, if it is not derived from the series."""
    result: str | None = None
    """IRI of its quantity, if it is not derived."""
    instant: str | None = None
    """IRI of its instant, if it is not derived."""
    quads: str | None = None
    """Data that does not fit the pattern, instead of all cells except the time: canonical N-Quads, separated by
    newlines.
    """


class Iris(NamedTuple):
    """The three resources of an observation."""

    observation: str
    result: str
    instant: str


def iris(context: ObservationContext, cells: Cells, epoch: str, seq: int) -> Iris:
    """Return the IRIs of an observation: `SERIES/EPOCH-SEQ`, `…/result` and `…/instant`, or the stored ones."""
    derived = f"{context.series}/{epoch}-{seq}"
    return Iris(
        cells.observation or derived, cells.result or f"{derived}/result", cells.instant or f"{derived}/instant"
    )


def time_text(time: int) -> str:
    """Format microseconds since 1970 as an `xsd:dateTimeStamp` in UTC, with no, three or six fractional digits."""
    timestamp = _BEGINNING + timedelta(microseconds=time)
    digits = "seconds" if time % 1_000_000 == 0 else "milliseconds" if time % 1000 == 0 else "microseconds"
    return f"{timestamp.isoformat(timespec=digits)}Z"


def quads(context: ObservationContext, cells: Cells, epoch: str, seq: int) -> Iterator[str]:
    """Yield the quads of an observation as lines of canonical N-Quads, without line ends."""
    if cells.quads is not None:
        yield from cells.quads.split("\n")
        return
    graph = "" if context.graph is None else f" <{context.graph}>"
    for subject, predicate, object_ in _triples(context, cells, iris(context, cells, epoch, seq)):
        yield f"<{subject}> <{predicate}> {object_}{graph} ."


def _triples(context: ObservationContext, cells: Cells, own: Iris) -> Iterator[tuple[str, str, str]]:
    observation, result, instant = own
    yield observation, RDF + "type", f"<{SOSA}Observation>"
    for predicate, iri in (
        (SOSA + "hasFeatureOfInterest", context.feature),
        (SOSA + "observedProperty", context.property),
        (SOSA + "madeBySensor", context.sensor),
        (DCTERMS + "isVersionOf", context.series),
    ):
        if iri is not None:
            yield observation, predicate, f"<{iri}>"
    if context.topic is not None:
        yield observation, MONITOR + "hasMqttTopic", literal(context.topic)
    yield observation, SOSA + "hasResult", f"<{result}>"
    yield result, RDF + "type", f"<{QUDT}QuantityValue>"
    if context.unit is not None:
        yield result, QUDT + "unit", f"<{context.unit}>"
    yield result, QUDT + "numericValue", literal(cells.value or "", context.datatype)
    yield result, OWL_TIME + "hasTime", f"<{instant}>"
    yield instant, RDF + "type", f"<{OWL_TIME}Instant>"
    yield (
        instant,
        OWL_TIME + "inXSDDateTimeStamp",
        literal(time_text(cells.time) if cells.time_text is None else cells.time_text, context.time_datatype),
    )


def literal(text: str, datatype: str = STRING) -> str:
    """Format a literal in canonical N-Triples (RDF 1.2 N-Triples, section 4)."""
    quoted = f'"{text.translate(_ESCAPES)}"'
    return quoted if datatype == STRING else f"{quoted}^^<{datatype}>"


_BEGINNING: Final = datetime(1970, 1, 1)  # noqa: DTZ001  naive: isoformat() must not append an offset
_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in (*range(0x20), 0x7F, 0xFFFE, 0xFFFF)}
    | {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
)
"""RDF 1.2 N-Triples, section 4: canonical form."""
