"""Property paths of fixed length as patterns (SPARQL 1.1 Query, section 18.2.2.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import rdflib
from rdflib import paths as rdf

from spark_offload.errors import QueryRefused
from spark_offload.sparql import algebra
from spark_offload.sparql.algebra import Basic, Graph, Node, Pattern, TriplePattern, Variable


def expanded(
    subject: Node, path: rdflib.term.Identifier | rdf.Path, object_: Node, graph: Graph, new: Callable[[str], str]
) -> Pattern:
    """Return the pattern of a path or predicate between two nodes. `new` creates names of hidden variables.

    Raises `QueryRefused` for paths of arbitrary length and other unsupported paths.
    """
    match path:
        case rdflib.Variable():
            return Basic((TriplePattern(subject, Variable(str(path)), object_),), graph)
        case rdflib.URIRef():
            return Basic((TriplePattern(subject, path, object_),), graph)
        case rdf.InvPath():
            return expanded(object_, path.arg, subject, graph, new)
        case rdf.SequencePath():
            # A hidden variable for each node between two steps.
            *before, last = path.args
            middle: Node = subject
            patterns = []
            for one in before:
                begin, middle = middle, Variable(new("path"))
                patterns.append(expanded(begin, one, middle, graph, new))
            return reduce(_both, [*patterns, expanded(middle, last, object_, graph, new)])
        case rdf.AlternativePath():
            ways = [expanded(subject, one, object_, graph, new) for one in path.args]
            return reduce(algebra.Union, ways)
        case rdf.NegatedPath():
            # !(p1|p2) matches a triple with any other predicate. Inverse predicates are `InvPath` objects in the tree.
            others = [one for one in path.args if isinstance(one, rdflib.URIRef)]
            if len(others) < len(path.args):
                raise QueryRefused("a path of the form !(^iri) is not supported")
            predicate = Variable(new("path"))
            triple = TriplePattern(subject, predicate, object_)
            return algebra.Filter(Basic((triple,), graph), algebra.Call("NOT IN", (predicate, *others)))
        case rdf.MulPath():
            raise QueryRefused(f"a path with {path.mod} is not supported: only those of a fixed length are")
        case _:
            raise QueryRefused(f"the path {path} is not supported")


def _both(left: Pattern, right: Pattern) -> Pattern:
    # One basic pattern instead of a join: only the triples of one basic pattern can form a star.
    if isinstance(left, Basic) and isinstance(right, Basic):
        return Basic(left.triples + right.triples, left.graph)
    return algebra.Join(left, right)
