"""Stars: triple patterns that one row answers, being about one observation, its quantity and its instant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from edge.outbox.observation import DCTERMS, MONITOR, OWL_TIME, QUDT, RDF, SOSA
from edge.sparql import terms as rdf
from spark_offload.sparql.relational import PatternTerm, TriplePattern

OBSERVATION: Final = "observation"
RESULT: Final = "result"
INSTANT: Final = "instant"

TYPE: Final = RDF + "type"
EDGES: Final = {SOSA + "hasResult": (OBSERVATION, RESULT), OWL_TIME + "hasTime": (RESULT, INSTANT)}
"""From one of the three resources to the next."""
COLUMNS: Final = {
    SOSA + "hasFeatureOfInterest": (OBSERVATION, "feature"),
    SOSA + "observedProperty": (OBSERVATION, "property"),
    SOSA + "madeBySensor": (OBSERVATION, "sensor"),
    DCTERMS + "isVersionOf": (OBSERVATION, "series"),
    MONITOR + "hasMqttTopic": (OBSERVATION, "topic"),
    QUDT + "unit": (RESULT, "unit"),
    QUDT + "numericValue": (RESULT, "value"),
    OWL_TIME + "inXSDDateTimeStamp": (INSTANT, "ts"),
}
"""Which resource has a predicate, and which column its object is in."""
CLASSES: Final = {
    SOSA + "Observation": OBSERVATION,
    QUDT + "QuantityValue": RESULT,
    OWL_TIME + "Instant": INSTANT,
}
PREDICATES: Final = frozenset({TYPE, *EDGES, *COLUMNS})
"""All that the triples of a row have."""


@dataclass(frozen=True)
class Star:
    """Triple patterns about the same row of the table."""

    triples: tuple[TriplePattern, ...]
    resources: tuple[tuple[str, PatternTerm], ...]
    """Roles of nodes: observation, result or instant."""
    cells: tuple[tuple[str, PatternTerm], ...]
    """Columns and the nodes that their values must match."""
    optional: tuple[Star, ...] = ()
    """OPTIONAL patterns about the same row, each bound only as a whole."""


def split(triples: Iterable[TriplePattern]) -> tuple[list[Star], list[TriplePattern]]:
    """Split patterns into stars and the patterns that belong to no star."""
    mine: list[TriplePattern] = []
    rest: list[TriplePattern] = []
    for triple in triples:
        (mine if _roles(triple) is not None else rest).append(triple)
    while odd := _of_two_roles(mine):
        rest += [triple for triple in mine if odd & {triple.subject, *_linked(triple)}]
        mine = [triple for triple in mine if not odd & {triple.subject, *_linked(triple)}]
    return [_star(group) for group in _connected(mine)], rest


def _iri(node: PatternTerm) -> str:
    """Return the text of an IRI, and an empty text for other nodes."""
    return node.value if isinstance(node, rdf.Iri) else ""


def _roles(triple: TriplePattern) -> tuple[tuple[str, PatternTerm], ...] | None:
    """Return the roles that a pattern implies for its nodes, or None if it cannot be part of a star."""
    predicate = triple.predicate
    if not isinstance(predicate, rdf.Iri):
        return None
    if predicate.value == TYPE:
        role = CLASSES.get(_iri(triple.object))
        return None if role is None else ((role, triple.subject),)
    if edge := EDGES.get(predicate.value):
        if isinstance(triple.object, rdf.Literal):
            return None
        return ((edge[0], triple.subject), (edge[1], triple.object))
    if column := COLUMNS.get(predicate.value):
        return ((column[0], triple.subject),)
    return None


def _linked(triple: TriplePattern) -> tuple[PatternTerm, ...]:
    return (triple.object,) if _iri(triple.predicate) in EDGES else ()


def _of_two_roles(triples: Iterable[TriplePattern]) -> set[PatternTerm]:
    """Nodes that no resource of a row can be."""
    roles: dict[PatternTerm, set[str]] = {}
    for triple in triples:
        for role, node in _roles(triple) or ():
            roles.setdefault(node, set()).add(role)
    return {node for node, those in roles.items() if len(those) > 1}


def _connected(triples: Iterable[TriplePattern]) -> Iterator[list[TriplePattern]]:
    """Patterns in groups, by the resources that they have in common."""
    groups: list[tuple[set[PatternTerm], list[TriplePattern]]] = []
    for triple in triples:
        nodes, members = {triple.subject, *_linked(triple)}, [triple]
        separate = []
        for group in groups:
            if group[0] & nodes:
                nodes |= group[0]
                members = group[1] + members
            else:
                separate.append(group)
        groups = [*separate, (nodes, members)]
    return (members for _, members in groups)


def _star(triples: list[TriplePattern]) -> Star:
    resources = dict.fromkeys(one for triple in triples for one in _roles(triple) or ())
    cells = dict.fromkeys(
        (COLUMNS[_iri(triple.predicate)][1], triple.object) for triple in triples if _iri(triple.predicate) in COLUMNS
    )
    return Star(tuple(triples), tuple(resources), tuple(cells))
