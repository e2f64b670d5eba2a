"""One rule: a situation in the graph, and the updates with which the gateway answers it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyoxigraph as ox

from edge.protocol.results import Row, Term

GRAPH: Final = "urn:sepa-edge:automation"
"""Graph of the situations that rules have found."""
SITUATION: Final = "urn:sepa-edge:situation:"
"""Begin of the IRI of a situation; the name of its rule and the digest of its key follow."""

_PREFIXES: Final = """\
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX edge: <urn:sepa-edge:>
"""
BEGIN: Final = (
    _PREFIXES
    + f"""\
INSERT {{ GRAPH <{GRAPH}> {{
  ?_situation a edge:Situation ; edge:rule ?_rule ; rdfs:label ?_label ; edge:since ?_now ; edge:about ?_about ;
    edge:solution ?_solution
}} }}
WHERE {{ BIND(NOW() AS ?_now) }}"""
)
"""Update that writes a situation into the graph."""
END: Final = f"""\
DELETE {{ GRAPH <{GRAPH}> {{ ?_situation ?_p ?_o }} }} WHERE {{ GRAPH <{GRAPH}> {{ ?_situation ?_p ?_o }} }}"""
"""Update that deletes a situation."""
SITUATIONS: Final = f"""\
PREFIX edge: <urn:sepa-edge:>
SELECT ?situation ?solution {{ GRAPH <{GRAPH}> {{ ?situation edge:solution ?solution }} }}"""
"""The situations of all rules."""

Solution = Mapping[str, Term]
"""Values of the variables that a query selects, without unbound ones."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule. Durations are in microseconds."""

    name: str
    """Unique; letters, digits, `-` and `_`."""
    label: str
    enabled: bool
    query: str
    """SELECT query; each solution is a situation, as long as it is in the result."""
    variables: Sequence[str]
    """Variables that it selects."""
    key: Sequence[str]
    """Variables that identify a situation; all others may change while it lasts."""
    lasts: int = 0
    """Time for which the situation must last before it begins."""
    silent: int = 0
    """Time without a change of the solution after which the situation begins; 0: it begins with the solution."""
    update: str = ""
    """Update for the begin of a situation; it may use the variables of the query."""
    end_lasts: int = 0
    """Time after which a situation ends whose solution is gone."""
    end_update: str = ""
    """Update for the end; the variables have the values of the begin."""
    observations: str = ""
    """Query for the observations (?observation) on which the rule depends; empty: any of them."""
    keys: Mapping[str, object] = field(default_factory=dict)
    """The keys of its file, as JSON values."""
    needed: frozenset[str] = frozenset()
    """Variables of the query that `update` uses."""
    end_needed: frozenset[str] = frozenset()
    """Variables of the query that `end_update` uses."""

    @property
    def version(self) -> str:
        """Digest of everything that a waiting step depends on."""
        parts = (self.query, *self.key, self.lasts, self.silent, self.update, self.end_lasts, self.end_update)
        return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:8]

    def solution(self, variables: Sequence[str], row: Row) -> Solution:
        """Return a row as a mapping."""
        return {name: term for name, term in zip(variables, row, strict=True) if term is not None}

    def digest(self, solution: Solution) -> str:
        """Return the digest of the values that identify a situation."""
        text = "\n".join(f"{name} {solution[name]}" for name in self.key if name in solution)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def iri(self, digest: str) -> ox.NamedNode:
        """Return the IRI of a situation."""
        return iri_of(self.name, digest)


def iri_of(name: str, digest: str) -> ox.NamedNode:
    """Return the IRI of a situation of the rule `name`."""
    return ox.NamedNode(f"{SITUATION}{name}:{digest}")


def read_iri(iri: str) -> tuple[str, str] | None:
    """Return the name of the rule and the digest of a situation; None for another IRI."""
    name, colon, digest = iri.removeprefix(SITUATION).rpartition(":")
    return (name, digest) if iri.startswith(SITUATION) and colon else None


def to_text(solution: Solution) -> str:
    """Return a solution as lines of a variable and its term in N-Triples."""
    return "\n".join(f"{name} {term}" for name, term in solution.items())


def from_text(text: str) -> Solution:
    """Return the solution of a text. Lines that are damaged, because a client has changed them, are left out."""
    found: dict[str, Term] = {}
    for line in text.split("\n"):
        name, _, term = line.partition(" ")
        try:
            (quad,) = ox.parse(f"<urn:x> <urn:x> {term} .", ox.RdfFormat.N_TRIPLES, lenient=True)
        except (SyntaxError, ValueError):
            continue
        found[name] = quad.object
    return found
