"""What the graph says about observations, kept up to date by a subscription."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyoxigraph as ox

from edge.engine.requests import Delta
from edge.protocol.results import Row, Term

_PREFIXES: Final = """\
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt-1-1: <http://qudt.org/1.1/schema/qudt#>
PREFIX arces-monitor: <http://mml.arces.unibo.it/monitor#>
"""
_PATHS: Final = {
    "label": "?iri rdfs:label ?fact",
    "property": "?iri sosa:observedProperty ?fact",
    "sensor": "?iri sosa:madeBySensor ?fact",
    "place": "?iri sosa:hasFeatureOfInterest ?fact",
    "topic": "?iri arces-monitor:hasMqttTopic ?fact",
    "unit": "?iri sosa:hasResult ?result . ?result qudt-1-1:unit ?fact",
    "value": "?iri sosa:hasResult ?result . ?result qudt-1-1:numericValue ?fact",
}
_THINGS: Final = {
    "name": "?o sosa:madeBySensor ?iri . ?iri rdfs:label ?fact",
    "about": "?o sosa:madeBySensor ?iri . ?iri rdfs:comment ?fact",
    "area": "?o sosa:hasFeatureOfInterest ?iri . ?iri rdfs:label ?fact",
}
_OBSERVED: Final = "observed"
"""Key of the fact that an IRI is an observation."""
VALUE: Final = "value"


def query() -> str:
    """Return the query for all facts. Its parts are incremental: a new value costs as much as a few look-ups."""
    branches = [f'{{ ?iri a sosa:Observation BIND("{_OBSERVED}" AS ?key) BIND(?iri AS ?fact) }}']
    branches += [f'{{ ?iri a sosa:Observation . {path} BIND("{key}" AS ?key) }}' for key, path in _PATHS.items()]
    branches += [f'{{ ?o a sosa:Observation . {path} BIND("{key}" AS ?key) }}' for key, path in _THINGS.items()]
    return f"{_PREFIXES}SELECT ?iri ?key ?fact {{ {' UNION '.join(branches)} }}"


class Facts:
    """Facts by IRI and key. Not thread-safe."""

    def __init__(self) -> None:
        self._all: dict[str, dict[str, dict[Term, int]]] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the IRIs of the observations."""
        return (iri for iri, facts in self._all.items() if _OBSERVED in facts)

    def __contains__(self, iri: str) -> bool:
        return _OBSERVED in self._all.get(iri, {})

    def apply(self, delta: Delta) -> dict[str, set[str]]:
        """Apply a change. Returns the keys of the changed facts by IRI.

        A fact that is only more or less frequent, such as the area of one more observation, does not count.
        """
        net: dict[tuple[str, str, Term], int] = {}
        for rows, sign in ((delta.removed, -1), (delta.added, 1)):
            for each in _read(rows):
                net[each] = net.get(each, 0) + sign
        changed: dict[str, set[str]] = {}
        for (iri, key, fact), number in net.items():
            if number and self._count(iri, key, fact, number):
                changed.setdefault(iri, set()).add(key)
        return changed

    def text(self, iri: str, key: str) -> str:
        """Return a text: one without a language, else the English one, else the first; empty without one."""
        texts = [each for each in self._of(iri, key) if isinstance(each, ox.Literal)]
        best = min(texts, default=None, key=lambda each: (bool(each.language), each.language != "en", each.value))
        return "" if best is None else best.value

    def iri(self, iri: str, key: str) -> str:
        """Return the first IRI; empty without one."""
        return min((each.value for each in self._of(iri, key) if isinstance(each, ox.NamedNode)), default="")

    def texts(self, iri: str, key: str) -> list[str]:
        """Return all texts, in order."""
        return sorted(each.value for each in self._of(iri, key) if isinstance(each, ox.Literal))

    def value(self, iri: str) -> ox.Literal | None:
        """Return the present value; None: it has none."""
        return min((each for each in self._of(iri, VALUE) if isinstance(each, ox.Literal)), default=None, key=str)

    def _of(self, iri: str, key: str) -> Iterable[Term]:
        return self._all.get(iri, {}).get(key, ())

    def _count(self, iri: str, key: str, fact: Term, change: int) -> bool:
        """Change how often a fact is known. Returns whether it is new or gone."""
        facts = self._all.setdefault(iri, {})
        terms = facts.setdefault(key, {})
        before = terms.get(fact, 0)
        number = before + change
        if number:
            terms[fact] = number
            return not before
        terms.pop(fact, None)
        if not terms:
            del facts[key]
        if not facts:
            del self._all[iri]
        return True


def _read(rows: Iterable[Row]) -> Iterator[tuple[str, str, Term]]:
    for iri, key, fact in rows:
        # No topic can name a blank node again after a restart.
        if isinstance(iri, ox.NamedNode) and isinstance(key, ox.Literal) and fact is not None:
            yield iri.value, key.value, fact
