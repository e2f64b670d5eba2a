"""What a stored observation is, and the RDF that it stands for (SEPA paper, Listing 18, `STORE_OBSERVATION`).

An observation is few cells and a context, which it shares with all others of its sensor; the triples follow from these.
What does not fit is its quads themselves.
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
"""Hexadecimal digits that name an outbox from its creation on, like no other anywhere."""


class Context(NamedTuple):
    """What observations of one sensor have in common. All but the two datatypes may be missing; texts are IRIs."""

    series: str | None = None
    """The observation in the live graph of which each is a version; it begins their IRIs."""
    topic: str | None = None
    """A text: the literal of `arces-monitor:hasMqttTopic`."""
    feature: str | None = None
    """Of interest."""
    property: str | None = None
    """Observed."""
    sensor: str | None = None
    unit: str | None = None
    datatype: str = STRING
    """Of the value."""
    time_datatype: str = DATE_TIME_STAMP
    graph: str | None = None
    """The named graph of the history in which it is; None: the default graph."""


class Cells(NamedTuple):
    """What is an observation's own."""

    time: int
    """When it was made, or else stored: microseconds since 1970."""
    value: str | None = None
    """The lexical form."""
    time_text: str | None = None
    """The lexical form of the time, where it is not that of `time_text`."""
    observation: str | None = None
    """Its IRI, where it does not follow from the series."""
    result: str | None = None
    """The IRI of its quantity, likewise."""
    instant: str | None = None
    """The IRI of its instant, likewise."""
    quads: str | None = None
    """What does not fit, in place of everything but the time: lines of canonical N-Quads, a newline between."""


class Iris(NamedTuple):
    """The three resources of an observation."""

    observation: str
    result: str
    instant: str


def iris(context: Context, cells: Cells, epoch: str, seq: int) -> Iris:
    """The resources of the observation with this number: `SERIES/EPOCH-SEQ`, `…/result`, `…/instant`, or its own."""
    derived = f"{context.series}/{epoch}-{seq}"
    return Iris(
        cells.observation or derived, cells.result or f"{derived}/result", cells.instant or f"{derived}/instant"
    )


def time_text(time: int) -> str:
    """Microseconds since 1970 as an `xsd:dateTimeStamp` in UTC, with no digits, three or six after the second."""
    moment = _BEGINNING + timedelta(microseconds=time)
    digits = "seconds" if time % 1_000_000 == 0 else "milliseconds" if time % 1000 == 0 else "microseconds"
    return f"{moment.isoformat(timespec=digits)}Z"


def quads(context: Context, cells: Cells, epoch: str, seq: int) -> Iterator[str]:
    """The quads of an observation: lines of canonical N-Quads, without their ends."""
    if cells.quads is not None:
        yield from cells.quads.split("\n")
        return
    graph = "" if context.graph is None else f" <{context.graph}>"
    for subject, predicate, object_ in _triples(context, cells, iris(context, cells, epoch, seq)):
        yield f"<{subject}> <{predicate}> {object_}{graph} ."


def _triples(context: Context, cells: Cells, own: Iris) -> Iterator[tuple[str, str, str]]:
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
    """A literal in canonical N-Triples (RDF 1.2 N-Triples, section 4)."""
    quoted = f'"{text.translate(_ESCAPES)}"'
    return quoted if datatype == STRING else f"{quoted}^^<{datatype}>"


_BEGINNING: Final = datetime(1970, 1, 1)  # noqa: DTZ001  its text ends in Z, not in an offset
_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in (*range(0x20), 0x7F, 0xFFFE, 0xFFFF)}
    | {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
)
"""RDF 1.2 N-Triples, section 4: canonical form."""
