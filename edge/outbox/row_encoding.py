"""From quads that a client stores to observations, as few cells where these say all, else as they are.

The shape is that of Listing 18 of the SEPA paper, `STORE_OBSERVATION`. What is stored here expands to exactly the quads
that came (`edge.outbox.observation.quads`), but for blank nodes: they get IRIs, for the history grows from many sides.
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
    Context,
    literal,
    quads,
    time_text,
)
from edge.protocol.results import Term

Node = tuple[str, str | None]
"""A subject in its graph: N-Triples text, and the graph's IRI."""
Triple = tuple[str, str, Term]
"""Subject (N-Triples text), predicate (IRI) and object."""


def observations(statements: Iterable[Statement], history: str, name: str, now: int) -> list[tuple[Context, Cells]]:
    """What an update stores, as observations: one for each of those in it, then one for each other subject.

    `history` is the graph of the live dataset that stands for the history's default graph. Blank nodes become
    `urn:edge:NAME:1` and so on, in the order in which they occur. `now` (microseconds since 1970) is the time of what
    tells none.
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
    """Take out what belongs to each observation: its own triples, those of its quantity and of its instant."""
    for subject, graph in [node for node, triples in left.items() if (node[0], *_OBSERVATION) in triples]:
        part: list[Triple] = []
        steps = [subject]
        for follow in (SOSA + "hasResult", OWL_TIME + "hasTime", ""):
            own = [triple for step in steps for triple in left.pop((step, graph), ())]
            part += own
            steps = [_text(o) for _, p, o in own if p == follow and isinstance(o, ox.NamedNode)]
        if part:
            yield graph, part


def fit(triples: Sequence[Triple], graph: str | None, now: int) -> tuple[Context, Cells]:
    """The triples of one observation as its cells, if these say exactly the same; else verbatim."""
    found = _cells(triples, graph, now)
    if found is not None and sorted(quads(*found, "", 0)) == sorted(_lines(triples, graph)):
        return found
    return _verbatim(triples, graph, now)


def _cells(triples: Sequence[Triple], graph: str | None, now: int) -> tuple[Context, Cells] | None:
    """What the shape takes of them. None: something that it needs is not there, or is of another kind."""
    objects: Mapping[str, Term] = {p: o for _, p, o in triples if p != _TYPE}
    result, instant = objects.get(SOSA + "hasResult"), objects.get(OWL_TIME + "hasTime")
    value, time = objects.get(QUDT + "numericValue"), objects.get(OWL_TIME + "inXSDDateTimeStamp")
    topic = objects.get(MONITOR + "hasMqttTopic")
    if not (isinstance(result, ox.NamedNode) and isinstance(instant, ox.NamedNode)):
        return None
    if not (isinstance(value, ox.Literal) and isinstance(time, ox.Literal) and time.value):
        return None
    context = Context(
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


def _verbatim(triples: Iterable[Triple], graph: str | None, now: int) -> tuple[Context, Cells]:
    """As they are, at the time that they tell if they tell one."""
    triples = list(triples)
    times = (o.value for _, p, o in triples if p == OWL_TIME + "inXSDDateTimeStamp" and isinstance(o, ox.Literal))
    told = next((micros for text in times if (micros := _micros(text)) is not None), now)
    return Context(), Cells(told, quads="\n".join(sorted(_lines(triples, graph))))


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
    """A time as XSD writes it (`xsd:dateTime`), in microseconds since 1970; UTC where it names no zone. None: none."""
    if not _DATE_TIME.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - _BEGINNING) // timedelta(microseconds=1)
    except (ValueError, OverflowError):  # a day that there is not, a year that Python does not know
        return None


_TYPE: Final = RDF + "type"
_OBSERVATION: Final = (_TYPE, ox.NamedNode(SOSA + "Observation"))
_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
