"""Windows and continuous queries, as the front ends of both languages produce them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pyoxigraph as ox


class WindowKind(StrEnum):
    """Kind of a window."""

    TIME = "time"
    """All elements of a span of time: sliding if `step` is less than `size`, tumbling if they are equal."""
    COUNT = "count"
    """The last `size` elements in the order of arrival; slides with each `step` of them."""
    TRIPLES = "triples"
    """The last elements that have at least `size` triples together, or all if they have fewer."""
    LANDMARK = "landmark"
    """All elements since `start`."""
    SESSION = "session"
    """Elements without a pause of `size` or more between them."""


class ReportPolicy(StrEnum):
    """When a window reports its content."""

    CLOSE = "close"
    """When it closes: at each end of a time window, at each step of a count window, at the end of a session."""
    CHANGE = "change"
    """When its content changes: an element arrives, or leaves because its time has passed."""
    NON_EMPTY = "non-empty"
    """When it closes and has an element."""
    PERIODIC = "periodic"
    """At each multiple of `period`."""


class StreamOperator(StrEnum):
    """Operator that turns results into a stream (Arasu, Babu and Widom, VLDB Journal 15(2), 2006)."""

    RSTREAM = "RSTREAM"
    """All rows of each result."""
    ISTREAM = "ISTREAM"
    """The rows that were added since the last result."""
    DSTREAM = "DSTREAM"
    """The rows that were removed since the last result."""


@dataclass(frozen=True, slots=True)
class WindowDefinition:
    """A window over one stream. Times and spans in microseconds; times since 1970 in UTC. Hashable: equal windows share
    their content.
    """

    stream: str
    """IRI of the stream."""
    kind: WindowKind
    size: int
    """Span of a time window, elements or triples of a count window, pause that ends a session; 0 for a landmark."""
    step: int
    """Distance of the ends of time and landmark windows; elements (or triples) between the reports of a count window; 0
    for a session."""
    start: int = 0
    """A time at which a time window ends (t0, for the alignment), or the beginning of a landmark window."""
    report: ReportPolicy = ReportPolicy.CLOSE
    period: int = 0
    """Distance of periodic reports; 0 for all others."""


@dataclass(frozen=True, slots=True)
class NamedWindow:
    """A window of a query. `name`: IRI of the window in the query; empty: its content is in the default graph."""

    name: str
    definition: WindowDefinition


class QueryForm(StrEnum):
    """Form of a SPARQL query."""

    SELECT = "SELECT"
    ASK = "ASK"
    CONSTRUCT = "CONSTRUCT"
    DESCRIBE = "DESCRIBE"


class Language(StrEnum):
    """Language of a continuous query."""

    CSPARQL = "C-SPARQL"
    RSPQL = "RSP-QL"


@dataclass(frozen=True, slots=True)
class ContinuousQuery:
    """A registered query."""

    name: str
    """Name in its text: an identifier for C-SPARQL, the IRI of the output stream for RSP-QL."""
    language: Language
    text: str
    """As registered."""
    form: QueryForm
    operator: StreamOperator
    windows: tuple[NamedWindow, ...]
    sparql: str
    """SPARQL 1.1: without registration, dataset and windows; each `WINDOW <w>` is `GRAPH <w>`."""
    default_graphs: tuple[str, ...] | None = None
    """IRIs of `FROM` without windows; None: without `FROM` and `FROM NAMED`, when the live default graph takes part."""
    named_graphs: tuple[str, ...] | None = None
    """IRIs of `FROM NAMED` without windows; None: without `FROM` and `FROM NAMED`, when all named graphs take part."""
    is_stream: bool = False
    """Whether its results are registered as a stream (`REGISTER STREAM`, and all of RSP-QL)."""


class Element(NamedTuple):
    """An element of a stream: a graph with a time."""

    time: int
    """Microseconds since 1970: application time, or that of the arrival."""
    number: int
    """Order of arrival in its stream, from 1."""
    triples: tuple[ox.Triple, ...]
