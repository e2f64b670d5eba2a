"""Devices in the graph: sensors with their observations.

A thing is a sensor (`sosa:madeBySensor`), or an observation without one. Each of its observations is a property.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyoxigraph as ox

from edge.engine.requests import Answer
from edge.observed_values import local_name
from edge.protocol.errors import ResultTooLarge
from edge.protocol.results import Term

SOSA: Final = "http://www.w3.org/ns/sosa/"
OBSERVATION: Final = f"{SOSA}Observation"
MOST_ROWS: Final = 100_000
"""Facts about the things of one response. One property has about six."""

_PREFIXES: Final = f"""\
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX sosa: <{SOSA}>
PREFIX qudt-1-1: <http://qudt.org/1.1/schema/qudt#>
"""
_THINGS: Final = f"""{_PREFIXES}SELECT DISTINCT ?thing {{
  ?observation a sosa:Observation FILTER(isIRI(?observation))
  OPTIONAL {{ ?observation sosa:madeBySensor ?sensor FILTER(isIRI(?sensor)) }}
  BIND(COALESCE(?sensor, ?observation) AS ?thing)
}} ORDER BY STR(?thing)"""
_FACTS: Final = {
    "type": "rdf:type",
    "label": "rdfs:label",
    "comment": "rdfs:comment",
    "property": "sosa:observedProperty",
    "place": "sosa:hasFeatureOfInterest",
    "unit": "sosa:hasResult ?result . ?result qudt-1-1:unit",
    "value": "sosa:hasResult ?result . ?result qudt-1-1:numericValue",
}
"""Paths to the facts about an observation, by key."""

Facts = Mapping[str, Sequence[Term]]
"""What the graph says about an IRI: values by key."""


@dataclass(frozen=True, slots=True)
class Property:
    """An observation of a thing."""

    iri: str
    name: str
    """Unique in its thing."""
    title: str
    description: str | None
    value: ox.Literal | None
    """Its present value; None: it has none yet."""
    unit: str | None
    """IRI or symbol."""
    observed: str | None
    """IRI of `sosa:observedProperty`."""
    place: str | None
    """IRI of `sosa:hasFeatureOfInterest`."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A device."""

    iri: str
    title: str
    description: str | None
    types: tuple[str, ...]
    properties: tuple[Property, ...]


def things_query() -> str:
    """Return the query for the IRIs of all things, in the order of code points."""
    return _THINGS


def facts_query(iris: Iterable[str]) -> str:
    """Return the query for all facts about IRIs and about the observations of these sensors.

    Raises `ValueError` if a text is not an IRI.
    """
    # Each branch begins with the IRIs and a constant predicate, so that it is evaluated by look-ups, and not by
    # reading the whole graph. Facts are separate rows: as columns, many labels and comments would multiply.
    values = f"VALUES ?iri {{ {' '.join(str(ox.NamedNode(iri)) for iri in iris)} }} "
    own = {**_FACTS, "sensor": "sosa:madeBySensor"}
    branches = [f"{values}?iri {path} ?fact" for path in own.values()]
    branches += [f"{values}?observation sosa:madeBySensor ?iri . ?observation {path} ?fact" for path in _FACTS.values()]
    keyed = zip([*own, *_FACTS], branches, strict=True)
    union = " UNION ".join(f'{{ {branch} BIND("{key}" AS ?key) }}' for key, branch in keyed)
    return f"{_PREFIXES}SELECT ?iri ?observation ?key ?fact {{ {union} }}"


def value_query(iri: str) -> str:
    """Return the query for the values of an observation."""
    return f"{_PREFIXES}SELECT ?fact {{ {ox.NamedNode(iri)} a sosa:Observation ; {_FACTS['value']} ?fact }}"


def read_iris(answer: Answer) -> list[str]:
    """Return the IRIs of an answer to `things_query`."""
    return [row[0].value for row in answer]  # type: ignore[union-attr]  # the rows of a SELECT


def read_things(iris: Sequence[str]) -> Callable[[Answer], list[Thing]]:
    """Return a function that reads an answer to `facts_query` as those of `iris` that are things.

    It raises `ResultTooLarge`.
    """

    def read(answer: Answer) -> list[Thing]:
        about, observations = _collected(answer)
        return [
            thing for iri in iris if (thing := _thing(iri, about.get(iri, {}), observations.get(iri, {}))) is not None
        ]

    return read


def read_property(iri: str) -> Callable[[Answer], Property | None]:
    """Return a function that reads an answer to `facts_query` as an observation; None: it is not one."""

    def read(answer: Answer) -> Property | None:
        facts = _collected(answer)[0].get(iri, {})
        return _property(iri, local_name(iri), facts) if _is_observation(facts) else None

    return read


def _collected(answer: Answer) -> tuple[dict[str, dict[str, list[Term]]], dict[str, dict[str, dict[str, list[Term]]]]]:
    """Return the facts about IRIs, and those about the observations of sensors. Raises `ResultTooLarge`."""
    about: dict[str, dict[str, list[Term]]] = {}
    observations: dict[str, dict[str, dict[str, list[Term]]]] = {}
    for number, (iri, observation, key, fact) in enumerate(answer):  # type: ignore[arg-type]  # the rows of a SELECT
        if number >= MOST_ROWS:
            raise ResultTooLarge(f"The graph has more than {MOST_ROWS:,} facts about this device; query a part of them")
        if observation is None:
            facts = about.setdefault(iri.value, {})
        elif isinstance(observation, ox.NamedNode):
            facts = observations.setdefault(iri.value, {}).setdefault(observation.value, {})
        else:
            continue  # no URL can name a blank node
        facts.setdefault(key.value, []).append(fact)
    return about, observations


def _is_observation(facts: Facts) -> bool:
    return any(isinstance(each, ox.NamedNode) and each.value == OBSERVATION for each in facts.get("type", ()))


def _thing(iri: str, facts: Facts, observations: Mapping[str, Facts]) -> Thing | None:
    known = {each: found for each, found in sorted(observations.items()) if _is_observation(found)}
    if _is_observation(facts) and _iri(facts, "sensor") is None:
        known = {iri: facts, **known}
    if not known:
        return None
    names = Counter(_name(iri, each) for each in known)
    properties = [
        # Two observations of one name, for example of two places: their IRIs differ.
        _property(each, name if names[name := _name(iri, each)] == 1 else each, found)
        for each, found in known.items()
    ]
    types = sorted({each.value for each in facts.get("type", ()) if isinstance(each, ox.NamedNode)})
    return Thing(
        iri, _text(facts, "label") or local_name(iri), _text(facts, "comment"), tuple(types), tuple(properties)
    )


def _property(iri: str, name: str, facts: Facts) -> Property:
    values = sorted((each for each in facts.get("value", ()) if isinstance(each, ox.Literal)), key=str)
    return Property(
        iri,
        name,
        _text(facts, "label") or name,
        _text(facts, "comment"),
        values[0] if values else None,
        _iri(facts, "unit") or _text(facts, "unit"),
        _iri(facts, "property"),
        _iri(facts, "place"),
    )


def _text(facts: Facts, key: str) -> str | None:
    """Return a text: one without a language, else the English one, else the first."""
    texts = [each for each in facts.get(key, ()) if isinstance(each, ox.Literal)]
    best = min(texts, default=None, key=lambda each: (bool(each.language), each.language != "en", each.value))
    return None if best is None else best.value


def _iri(facts: Facts, key: str) -> str | None:
    return min((each.value for each in facts.get(key, ()) if isinstance(each, ox.NamedNode)), default=None)


def _name(thing: str, observation: str) -> str:
    start = f"{thing}/"
    return unquote(observation.removeprefix(start)) if observation.startswith(start) else local_name(observation)
