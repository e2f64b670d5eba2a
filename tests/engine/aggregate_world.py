"""Aggregates in isolation: the accumulators of the engine and Oxigraph must agree on the same bag."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyoxigraph as ox
from expression_world import DURATIONS, NUMBERS, OTHERS, STRINGS, iri, typed

from edge.engine.operators.aggregates import Accumulator
from edge.engine.operators.aggregates import accumulator as new_accumulator
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import canonical
from edge.protocol.results import Term
from edge.sparql.algebra import Aggregate, Call, Reference, Variable

X = Reference(Variable("x"))
COMPUTED = Call("", (X,), iri("urn:itself"))
SEPARATOR = "|"
NAMES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT")

# The sums of these numbers are exact in every type, so that Oxigraph's result does not depend on the order.
WHOLE = tuple(typed(text, "integer") for text in ("0", "1", "2", "-3", "1000"))
PARTS = tuple(typed(text, "decimal") for text in ("0.5", "-0.25", "1.75", "2"))
DOUBLES = tuple(typed(text, "double") for text in ("0.5", "-0", "1", "-2.25", "1024"))
FLOATS = tuple(typed(text, "float") for text in ("0.5", "-0", "1", "-2.25", "1024"))
SPECIAL = tuple(typed(text, kind) for text in ("INF", "-INF", "NaN") for kind in ("double", "float"))
MOMENTS = tuple(term for term in OTHERS if isinstance(term, ox.Literal) and "dateTime" in str(term.datatype))
NODES = (iri("urn:a"), iri("urn:b"), iri("urn:é"), ox.BlankNode("x"), ox.BlankNode("y"))
WORDS = (*STRINGS, ox.Literal("a", language="en"), ox.Literal("b", language="en"), ox.Literal("a", language="fr"))
ENGLISH = tuple(ox.Literal(text, language="en") for text in "abc")
POOLS: Sequence[Sequence[Term]] = (
    WHOLE,
    (*WHOLE, *PARTS),
    (*WHOLE, *PARTS, *DOUBLES),
    (*WHOLE, *PARTS, *FLOATS),
    (*WHOLE, *PARTS, *DOUBLES, *FLOATS),
    (*WHOLE, *DOUBLES, *FLOATS, *SPECIAL),
    STRINGS,
    WORDS,
    ENGLISH,
    MOMENTS,
    NODES,
)
MIXED = (*NUMBERS, *WORDS, *OTHERS, *DURATIONS, *NODES)


def accumulator(aggregate: Aggregate) -> Accumulator:
    """Return a new accumulator with an unlimited step budget."""
    return new_accumulator(aggregate, StepBudget())


class Bag:
    """A random history of a group, and the bag that remains."""

    def __init__(self, seed: int, pool: Sequence[Term], *, errors: bool) -> None:
        choose = random.Random(seed)
        self.steps: list[tuple[Term | None, int]] = []
        self.left: list[Term | None] = []
        for _ in range(choose.randint(0, 14)):
            if self.left and choose.random() < 0.45:
                gone = choose.choice(self.left)
                self.left.remove(gone)
                self.steps.append((gone, -1))
            else:
                come = None if errors and choose.random() < 0.15 else canonical(choose.choice(pool))
                weight = choose.choice((1, 1, 1, 2))
                self.left += [come] * weight
                self.steps.append((come, weight))

    def received(self, aggregate: Aggregate) -> Accumulator:
        result = accumulator(aggregate)
        for term, weight in self.steps:
            result.add(term, weight)
        return result


def oxigraph_result(aggregate: Aggregate, terms: Sequence[Term | None]) -> Term | None:
    """Return Oxigraph's result for a bag of terms, in which None is unbound."""
    store = ox.Store()
    for number, term in enumerate(terms):
        subject = iri(f"urn:row:{number:04}")
        store.add(ox.Quad(subject, iri("urn:in"), iri("urn:all")))
        if term is not None:
            store.add(ox.Quad(subject, iri("urn:x"), term))
    expression = "?x" if isinstance(aggregate.expression, Reference) else "<urn:itself>(?x)"
    distinct = "DISTINCT " if aggregate.distinct else ""
    separator = f'; SEPARATOR="{aggregate.separator}"' if aggregate.name == "GROUP_CONCAT" else ""
    text = f"{aggregate.name}({distinct}{expression}{separator})"
    query = f"SELECT ({text} AS ?r) {{ ?s <urn:in> <urn:all> OPTIONAL {{ ?s <urn:x> ?x }} }}"
    (solution,) = store.query(query, custom_functions={iri("urn:itself"): lambda term: term})
    return solution["r"]


def strict_best(name: str, terms: Sequence[Term]) -> Term | None:
    """Return the term that is MIN or MAX of itself and each other term in either order, or None if there is none."""
    aggregate = Aggregate(name, X, False)
    distinct = list(dict.fromkeys(terms))

    def beats(one: Term, other: Term) -> bool:
        return all(_in_order(aggregate, pair) == one for pair in ((one, other), (other, one)))

    return next((one for one in distinct if all(beats(one, other) for other in distinct if other != one)), None)


def _in_order(aggregate: Aggregate, pair: tuple[Term, Term]) -> Term | None:
    functions = {iri(f"urn:f{i}"): (lambda term=term: term) for i, term in enumerate(pair)}
    query = f"SELECT ({aggregate.name}(?x) AS ?r) {{ {{ BIND(<urn:f0>() AS ?x) }} UNION {{ BIND(<urn:f1>() AS ?x) }} }}"
    (solution,) = ox.Store().query(query, custom_functions=functions)
    return solution["r"]


def parts(text: Term | None) -> tuple[list[str], str | None] | None:
    """Return the parts of a concatenation, without their order."""
    return None if text is None else (sorted(text.value.split(SEPARATOR)), text.language)
