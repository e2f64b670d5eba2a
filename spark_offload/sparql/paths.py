"""Property paths of fixed length as patterns (SPARQL 1.1 Query, section 18.2.2.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import cast

from edge.sparql import algebra as source
from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.errors import QueryRefused
from spark_offload.sparql import relational
from spark_offload.sparql.relational import Basic, Graph, Pattern, PatternTerm, TriplePattern


def expanded(
    subject: PatternTerm, path: source.PathExpression, object_: PatternTerm, graph: Graph, new: Callable[[str], str]
) -> Pattern:
    """Return the pattern of a path between two nodes. `new` creates names of hidden variables.

    Raises `QueryRefused` for paths of arbitrary length and other unsupported paths.
    """
    match path:
        case source.PathLink(predicate):
            return Basic((TriplePattern(subject, cast("rdf.Iri", predicate), object_),), graph)
        case source.Inverse(inner):
            return expanded(object_, inner, subject, graph, new)
        case source.Sequence(steps):
            # A hidden variable for each node between two steps.
            *before, last = steps
            middle: PatternTerm = subject
            patterns = []
            for one in before:
                begin, middle = middle, Variable(new("path"))
                patterns.append(expanded(begin, one, middle, graph, new))
            return reduce(_both, [*patterns, expanded(middle, last, object_, graph, new)])
        case source.Alternative(choices):
            ways = [expanded(subject, one, object_, graph, new) for one in choices]
            return reduce(relational.UnionAll, ways)
        case source.Negated(others, inverse):
            # !(p1|p2) matches a triple with any other predicate.
            if inverse:
                raise QueryRefused("a path of the form !(^iri) is not supported")
            predicate = Variable(new("path"))
            triple = TriplePattern(subject, predicate, object_)
            return relational.Selection(
                Basic((triple,), graph),
                relational.FunctionCall("NOT IN", (predicate, *cast("tuple[rdf.Iri, ...]", others))),
            )
        case source.Repeat(_, least, once):
            mark = "?" if once else "+" if least else "*"
            raise QueryRefused(f"a path with {mark} is not supported: only those of a fixed length are")


def _both(left: Pattern, right: Pattern) -> Pattern:
    # One basic pattern instead of a join: only the triples of one basic pattern can form a star.
    if isinstance(left, Basic) and isinstance(right, Basic):
        return Basic(left.triples + right.triples, left.graph)
    return relational.InnerJoin(left, right)
