"""Streams, queries, elements, reports and observers, as the store holds them."""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.protocol.access import Access
from edge.streams.model import Element
from edge.streams.observer import StoredReport
from edge.streams.report import content_type, is_correction


class StoredStream(NamedTuple):
    """A registered stream."""

    id: int
    iri: str
    owner: str
    """Client that registered it; empty without security."""
    lateness: int
    """Microseconds."""
    query: str
    """Query whose results it has; empty if clients post its elements."""
    number: int
    """Number of its last element."""
    taken: int = 0
    """Number of the last element that the windows had when the stored reports were made."""
    too_late: int = 0
    """Elements that came later than the lateness."""


class StoredQuery(NamedTuple):
    """A registered query."""

    name: str
    text: str
    access: Access
    """Permissions of the client that registered it."""
    begun: int
    """Time of the registration in microseconds since 1970."""
    paused: bool
    number: int
    """Number of its last report."""
    since: int
    """Time from which all elements are kept that its windows have contained, for corrections."""
    identifier: str = ""
    """Tells it from an earlier query with the same name, also after a restart. It is random: clocks can be set back."""


class StoredElement(NamedTuple):
    """An element of a stream, as it is stored."""

    element: Element
    graph: bytes
    """Its triples as N-Triples."""
    missing: int = 0
    """0: no report lacks it. Positive: it came too late, so the reports up to this time stay without it.
    `TO_CORRECT`: the corrections of reports that lack it have not been stored.
    """


class LateElement(NamedTuple):
    """An element that came too late for the reports that should have contained it. Times are in microseconds."""

    number: int
    time: int
    arrived: int
    graph: bytes | None
    """Its triples as N-Triples; None: they are not kept, because they are too large."""


TO_CORRECT: Final = -1
"""See `StoredElement.missing`."""


class ReportRow(NamedTuple):
    """A report that waits for an observer, or is kept for followers."""

    number: int
    time: int
    kind: str
    """See `edge.streams.report`."""
    merged: int
    """Number of reports that it stands for: the last of them is `number`."""
    body: bytes


def stored_report(row: ReportRow) -> StoredReport:
    """Return a report of the store in the form in which it is sent."""
    return StoredReport(row.number, row.time, content_type(row.kind), row.body, row.merged, is_correction(row.kind))


class StoredObserver(NamedTuple):
    """An observer of a query."""

    id: str
    query: str
    url: str
    owner: str
    acknowledged: int
    """Number of the last report that it has."""
    is_target: bool = False
    """Whether the URL is that of a resource whose inbox gets the reports, and not a callback URL."""
    query_identifier: str = ""
    """See `StoredQuery.identifier`."""
