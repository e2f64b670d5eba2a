"""Property paths as patterns (SPARQL 1.1 Query, sections 18.2.2.3 and 18.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import cast

from edge.sparql import algebra as source
from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.sparql import relational
from spark_offload.sparql.relational import Basic, ConstantTerm, Graph, Pattern, PatternTerm, TriplePattern


def expanded(
    subject: PatternTerm, path: source.PathExpression, object_: PatternTerm, graph: Graph, new: Callable[[str], str]
) -> Pattern:
    """Return the pattern of a path between two nodes. `new` creates names of hidden variables."""
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
        case source.Negated(forward, backward):
            ways = []
            if forward or not backward:
                ways.append(_other_step(subject, forward, object_, graph, new))
            if backward:
                ways.append(_other_step(object_, backward, subject, graph, new))
            return reduce(relational.UnionAll, ways)
        case source.Repeat(inner, least, once):
            if once:
                some = _shown(expanded(subject, inner, object_, graph, new), subject, object_, graph)
            else:
                begin, end = Variable(new("path")), Variable(new("path"))
                step = _shown(expanded(begin, inner, end, graph, new), begin, end, graph)
                some = relational.TransitiveClosure(step, begin.name, end.name, subject, object_, graph)
            if least:
                return some
            return relational.DistinctRows(relational.UnionAll(some, _no_step(subject, object_, graph, new)))


def _other_step(
    subject: PatternTerm,
    excluded: tuple[source.Slot, ...],
    object_: PatternTerm,
    graph: Graph,
    new: Callable[[str], str],
) -> Pattern:
    """Return the pattern of a triple with any other predicate than the excluded ones."""
    predicate = Variable(new("path"))
    triples = Basic((TriplePattern(subject, predicate, object_),), graph)
    if not excluded:
        return triples
    others = cast("tuple[rdf.Iri, ...]", excluded)
    return relational.Selection(triples, relational.FunctionCall("NOT IN", (predicate, *others)))


def _no_step(subject: PatternTerm, object_: PatternTerm, graph: Graph, new: Callable[[str], str]) -> Pattern:
    """Return the pattern of a path of length zero, which connects each node of the graph with itself.

    It also connects a term of the query with itself, even if the graph does not contain it.
    """
    if isinstance(subject, Variable) and isinstance(object_, Variable):
        node, predicate = Variable(new("path")), Variable(new("path"))
        triples = TriplePattern(subject, predicate, node), TriplePattern(node, predicate, subject)
        ends = [_shown(Basic((triple,), graph), subject, subject, graph) for triple in triples]
        nodes = relational.UnionAll(*ends)
        return nodes if subject == object_ else relational.ComputedColumn(nodes, object_.name, subject)
    pattern: Pattern
    if isinstance(subject, Variable):
        pattern = relational.InlineRows((subject.name,), ((cast("ConstantTerm", object_),),))
    elif isinstance(object_, Variable):
        pattern = relational.InlineRows((object_.name,), ((subject,),))
    else:
        pattern = relational.UNIT if subject == object_ else relational.NOTHING
    return relational.InnerJoin(pattern, relational.NamedGraphs(graph.name)) if isinstance(graph, Variable) else pattern


def _shown(pattern: Pattern, subject: PatternTerm, object_: PatternTerm, graph: Graph) -> Pattern:
    """Return a pattern without the variables of nodes within the path."""
    names = (node.name for node in (subject, object_, graph) if isinstance(node, Variable))
    return relational.Projection(pattern, tuple(dict.fromkeys(names)))


def _both(left: Pattern, right: Pattern) -> Pattern:
    # One basic pattern instead of a join: only the triples of one basic pattern can form a star.
    if isinstance(left, Basic) and isinstance(right, Basic):
        return Basic(left.triples + right.triples, left.graph)
    return relational.InnerJoin(left, right)
