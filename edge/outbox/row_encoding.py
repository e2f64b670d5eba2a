"""Encode the quads that a client stores as observations: as cells if these express all of them, else verbatim.

The pattern of an observation is that of Listing 18 of the SEPA paper, `STORE_OBSERVATION`. The encoding is lossless:
`edge.outbox.observation.quads` returns exactly the original quads. Only blank nodes are replaced by IRIs, because the
history merges data of many gateways.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyoxigraph as ox

from edge.engine.store.changes import Statement
from edge.outbox.observation import (
    MONITOR,
    OWL_TIME,
    QUDT,
    RDF,
    SOSA,
    Cells,
    ObservationContext,
    literal,
    quads,
    time_text,
)
from edge.protocol.results import Term

_MOST_CONTEXT: Final = 64 * 1024
"""Characters of a context. Escapes of JSON take up to six bytes for each."""

Node = tuple[str, str | None]
"""A subject in its graph: N-Triples text, and IRI of the graph."""
Triple = tuple[str, str, Term]
"""Subject (N-Triples text), predicate (IRI) and object."""


def observations(
    statements: Iterable[Statement], history: str, name: str, now: int
) -> list[tuple[ObservationContext, Cells]]:
    """Convert the quads of an update to rows: one for each observation, then one for each other subject.

    `history` is the graph of the live dataset that represents the default graph of the history. Blank nodes become
    `urn:edge:NAME:1` and so on, in the order in which they occur. `now` (microseconds since 1970) is the time of rows
    without a time of their own.
    """
    names: dict[str, ox.NamedNode] = {}

    def named(term: Term) -> Term:
        if isinstance(term, ox.BlankNode):
            return names.setdefault(term.value, ox.NamedNode(f"urn:edge:{name}:{len(names) + 1}"))
        if isinstance(term, ox.Triple):
            return ox.Triple(named(term.subject), term.predicate, named(term.object))  # type: ignore[arg-type]
        return term

    left: dict[Node, dict[Triple, None]] = defaultdict(dict)
    for s, p, o, g in statements:
        graph = None if g is None else named(g).value  # type: ignore[union-attr]
        subject = _text(named(s))
        left[subject, None if graph == history else graph][subject, p.value, named(o)] = None  # type: ignore[union-attr]
    found = [fit(part, graph, now) for graph, part in _parts(left)]
    return found + [_verbatim(part, graph, now) for (_, graph), part in left.items() if part]


def _parts(left: dict[Node, dict[Triple, None]]) -> Iterable[tuple[str | None, list[Triple]]]:
    """Take out the triples of each observation: its own, those of its quantity, and those of its instant."""
    for subject, graph in [node for node, triples in left.items() if (node[0], *_OBSERVATION) in triples]:
        part: list[Triple] = []
        steps = [subject]
        for follow in (SOSA + "hasResult", OWL_TIME + "hasTime", ""):
            own = [triple for step in steps for triple in left.pop((step, graph), ())]
            part += own
            steps = [_text(o) for _, p, o in own if p == follow and isinstance(o, ox.NamedNode)]
        if part:
            yield graph, part


def fit(triples: Sequence[Triple], graph: str | None, now: int) -> tuple[ObservationContext, Cells]:
    """Encode the triples of one observation as cells if the cells expand to the same triples; else verbatim."""
    found = _cells(triples, graph, now)
    # The context goes into the manifest of the segment, whose size is limited.
    if found is not None and sum(len(text or "") for text in found[0]) > _MOST_CONTEXT:
        found = None
    if found is not None and sorted(quads(*found, "", 0)) == sorted(_lines(triples, graph)):
        return found
    return _verbatim(triples, graph, now)


def _cells(triples: Sequence[Triple], graph: str | None, now: int) -> tuple[ObservationContext, Cells] | None:
    """Match the triples with the observation pattern. None: a required triple is missing or has another type."""
    objects: Mapping[str, Term] = {p: o for _, p, o in triples if p != _TYPE}
    result, instant = objects.get(SOSA + "hasResult"), objects.get(OWL_TIME + "hasTime")
    value, time = objects.get(QUDT + "numericValue"), objects.get(OWL_TIME + "inXSDDateTimeStamp")
    topic = objects.get(MONITOR + "hasMqttTopic")
    if not (isinstance(result, ox.NamedNode) and isinstance(instant, ox.NamedNode)):
        return None
    if not (isinstance(value, ox.Literal) and isinstance(time, ox.Literal) and time.value):
        return None
    context = ObservationContext(
        topic=topic.value if isinstance(topic, ox.Literal) and topic.value else None,
        feature=_iri(objects, SOSA + "hasFeatureOfInterest"),
        property=_iri(objects, SOSA + "observedProperty"),
        sensor=_iri(objects, SOSA + "madeBySensor"),
        unit=_iri(objects, QUDT + "unit"),
        datatype=value.datatype.value,
        time_datatype=time.datatype.value,
        graph=graph,
    )
    micros = _micros(time.value)
    own = time.value if micros is None or time_text(micros) != time.value else None
    subject = triples[0][0][1:-1]
    return context, Cells(now if micros is None else micros, value.value, own, subject, result.value, instant.value)


def _iri(objects: Mapping[str, Term], predicate: str) -> str | None:
    found = objects.get(predicate)
    return found.value if isinstance(found, ox.NamedNode) else None


def _verbatim(triples: Iterable[Triple], graph: str | None, now: int) -> tuple[ObservationContext, Cells]:
    """Store the triples verbatim, with the first time that they contain."""
    triples = list(triples)
    times = (o.value for _, p, o in triples if p == OWL_TIME + "inXSDDateTimeStamp" and isinstance(o, ox.Literal))
    time = next((micros for text in times if (micros := _micros(text)) is not None), now)
    return ObservationContext(), Cells(time, quads="\n".join(sorted(_lines(triples, graph))))


def _lines(triples: Iterable[Triple], graph: str | None) -> list[str]:
    where = "" if graph is None else f" <{graph}>"
    return [f"{s} <{p}> {_text(o)}{where} ." for s, p, o in triples]


def _text(term: Term) -> str:
    """A term in canonical N-Triples (RDF 1.2 N-Triples, section 4)."""
    if isinstance(term, ox.Literal):
        if term.language is None:
            return literal(term.value, term.datatype.value)
        direction = f"--{term.direction.value}" if term.direction is not None else ""
        return f"{literal(term.value)}@{term.language}{direction}"
    if isinstance(term, ox.Triple):
        return f"<<( {_text(term.subject)} {_text(term.predicate)} {_text(term.object)} )>>"
    return str(term)


def _micros(text: str) -> int | None:
    """Parse an `xsd:dateTime` to microseconds since 1970; without a zone it is UTC. None: not a valid time."""
    if not _DATE_TIME.fullmatch(text):
        return None
    try:
        timestamp = datetime.fromisoformat(text)
        return (timestamp.replace(tzinfo=timestamp.tzinfo or UTC) - _BEGINNING) // timedelta(microseconds=1)
    except (ValueError, OverflowError):  # a day that does not exist, or a year outside Python's range
        return None


_TYPE: Final = RDF + "type"
_OBSERVATION: Final = (_TYPE, ox.NamedNode(SOSA + "Observation"))
_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
