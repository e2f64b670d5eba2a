"""Relational form of a query: a tree of immutable nodes that `evaluation` turns into operations on Spark tables.

The SPARQL algebra of `edge.sparql` has n-ary joins, paths, and a graph in each triple pattern. This form has the
operations of a database: binary joins, and basic patterns of one graph, which `stars` turns into scans of rows. Paths
are expanded. The classes have names of relational algebra, to distinguish them from those of the SPARQL algebra.

A variable with a space in its name is *hidden*: a blank node, an inner node of a path, or the graph of GRAPH.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable

ConstantTerm: TypeAlias = rdf.Iri | rdf.Literal
PatternTerm: TypeAlias = Variable | ConstantTerm
OneGraph: TypeAlias = Variable | rdf.Iri | None
Graph: TypeAlias = OneGraph | tuple[rdf.Iri, ...]
"""Graph in which a pattern is matched; None: the default graph of the table; a tuple: the merge of these graphs."""


@dataclass(frozen=True)
class TriplePattern:
    """A triple with variables."""

    subject: PatternTerm
    predicate: PatternTerm
    object: PatternTerm

    def variables(self) -> Iterator[str]:
        """Yield the names of the variables, with duplicates."""
        return (node.name for node in (self.subject, self.predicate, self.object) if isinstance(node, Variable))


@dataclass(frozen=True)
class FunctionCall:
    """Call of an operator or function, by its SPARQL name in capitals, or of a cast, by the IRI of its datatype."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class ExistsTest:
    """EXISTS, or NOT EXISTS."""

    pattern: Pattern
    negated: bool


Expression: TypeAlias = Variable | rdf.Iri | rdf.Literal | FunctionCall | ExistsTest


@dataclass(frozen=True)
class ColumnAggregate:
    """Aggregate such as COUNT. `argument` None means `*`."""

    name: str
    argument: Expression | None
    distinct: bool
    separator: str = " "


@dataclass(frozen=True)
class Basic:
    """A basic graph pattern: triples of one graph."""

    triples: tuple[TriplePattern, ...]
    graph: Graph = None


@dataclass(frozen=True)
class TransitiveClosure:
    """A path of one or more steps: the distinct pairs of nodes that a chain of steps connects, in one graph."""

    step: Pattern
    """Pattern of one step. Its visible variables are the two ends, and the graph if it is a variable."""
    begin: str
    """Variable of `step` for the begin of a step."""
    end: str
    """Variable of `step` for the end of a step."""
    subject: PatternTerm
    """Node at the begin of the whole path."""
    object: PatternTerm
    """Node at the end of the whole path."""
    graph: Graph = None

    def variables(self) -> frozenset[str]:
        """Return the names of the variables that the pairs bind."""
        nodes = (self.subject, self.object, self.graph)
        return frozenset(node.name for node in nodes if isinstance(node, Variable))


@dataclass(frozen=True)
class NamedGraphs:
    """All named graphs, one solution each."""

    variable: str


@dataclass(frozen=True)
class GraphExists:
    """One solution without bindings if a named graph has a triple, else none."""

    graph: rdf.Iri


@dataclass(frozen=True, eq=False)
class ComputedRows:
    """Solutions that are already computed."""

    rows: object
    """Frame of the evaluation."""
    variables: tuple[str, ...]
    certain: frozenset[str]


@dataclass(frozen=True)
class InlineRows:
    """Inline data. None means UNDEF. Blank nodes come from the answer of a gateway."""

    variables: tuple[str, ...]
    rows: tuple[tuple[ConstantTerm | rdf.BlankNode | None, ...], ...]


@dataclass(frozen=True)
class InnerJoin:
    """Join of two patterns."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class LeftOuterJoin:
    """OPTIONAL with its condition."""

    left: Pattern
    right: Pattern
    condition: Expression | None


@dataclass(frozen=True)
class UnionAll:
    """UNION of two patterns."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class AntiJoin:
    """MINUS: the solutions of the left without those compatible with the right."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class Selection:
    """FILTER: the solutions that satisfy a condition."""

    pattern: Pattern
    condition: Expression


@dataclass(frozen=True)
class ComputedColumn:
    """BIND, and expressions in SELECT."""

    pattern: Pattern
    variable: str
    expression: Expression


@dataclass(frozen=True)
class Aggregation:
    """GROUP BY and aggregates: one solution for each group. Without keys there is one group, even without solutions."""

    pattern: Pattern
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, ColumnAggregate], ...]


@dataclass(frozen=True)
class Sort:
    """ORDER BY. Each condition is an expression, and whether it is descending."""

    pattern: Pattern
    conditions: tuple[tuple[Expression, bool], ...]


@dataclass(frozen=True)
class Projection:
    """Projection to these variables."""

    pattern: Pattern
    variables: tuple[str, ...]


@dataclass(frozen=True)
class DistinctRows:
    """DISTINCT, and REDUCED, which permits the same."""

    pattern: Pattern


@dataclass(frozen=True)
class RowRange:
    """OFFSET and LIMIT."""

    pattern: Pattern
    offset: int
    limit: int | None


Pattern: TypeAlias = (
    Basic
    | TransitiveClosure
    | NamedGraphs
    | GraphExists
    | ComputedRows
    | InlineRows
    | InnerJoin
    | LeftOuterJoin
    | UnionAll
    | AntiJoin
    | Selection
    | ComputedColumn
    | Aggregation
    | Sort
    | Projection
    | DistinctRows
    | RowRange
)


@dataclass(frozen=True)
class TranslatedQuery:
    """A complete query."""

    form: str
    """SELECT, ASK or CONSTRUCT."""
    pattern: Pattern
    variables: tuple[str, ...]
    """Variables of SELECT, in order."""
    template: tuple[TriplePattern, ...] = ()
    """Template of CONSTRUCT. Its hidden variables are blank nodes, distinct for each solution."""


def hidden(name: str) -> bool:
    """Return whether a variable is internal, and not part of the query text."""
    return " " in name


def visible(pattern: Pattern) -> frozenset[str]:
    """Return the variables that a solution may bind (section 18.2.1), including hidden ones."""
    match pattern:
        case Basic(triples, graph):
            return _variables(triples) | ({graph.name} if isinstance(graph, Variable) else frozenset())
        case TransitiveClosure():
            return pattern.variables()
        case NamedGraphs(variable):
            return frozenset({variable})
        case GraphExists():
            return frozenset()
        case InlineRows(variables) | ComputedRows(_, variables):
            return frozenset(variables)
        case InnerJoin(left, right) | LeftOuterJoin(left, right) | UnionAll(left, right):
            return visible(left) | visible(right)
        case AntiJoin(left, _):
            return visible(left)
        case ComputedColumn(inner, variable):
            return visible(inner) | {variable}
        case Aggregation(_, keys, aggregates):
            return frozenset(name for name, _ in (*keys, *aggregates))
        case Projection(_, variables):
            return frozenset(variables)
        case Selection(inner) | Sort(inner) | DistinctRows(inner) | RowRange(inner):
            return visible(inner)


def certain(pattern: Pattern) -> frozenset[str]:
    """Return variables that every solution binds. The result is conservative."""
    match pattern:
        case Basic() | TransitiveClosure() | NamedGraphs() | GraphExists():
            return visible(pattern)
        case ComputedRows():
            return pattern.certain
        case InlineRows(variables, rows):
            return frozenset(
                name for place, name in enumerate(variables) if all(row[place] is not None for row in rows)
            )
        case InnerJoin(left, right):
            return certain(left) | certain(right)
        case UnionAll(left, right):
            return certain(left) & certain(right)
        case LeftOuterJoin(left, _) | AntiJoin(left, _):
            return certain(left)
        case Aggregation():
            return frozenset()
        case Projection(inner):
            return certain(inner) & visible(pattern)
        case Selection(inner) | ComputedColumn(inner) | Sort(inner) | DistinctRows(inner) | RowRange(inner):
            return certain(inner)


def mentioned(expression: Expression) -> frozenset[str]:
    """Return the variables of an expression, including those in EXISTS."""
    match expression:
        case Variable(name):
            return frozenset({name})
        case FunctionCall(_, arguments):
            return frozenset().union(*map(mentioned, arguments))
        case ExistsTest(pattern):
            return used(pattern)
        case _:
            return frozenset()


def free(expression: Expression) -> frozenset[str]:
    """Return the variables of an expression outside of EXISTS."""
    match expression:
        case Variable(name):
            return frozenset({name})
        case FunctionCall(_, arguments):
            return frozenset().union(*map(free, arguments))
        case _:
            return frozenset()


def outer(pattern: Pattern) -> frozenset[str]:
    """Return the variables that conditions use but their pattern cannot bind; in EXISTS, the outer query binds them."""
    match pattern:
        case Basic() | TransitiveClosure() | NamedGraphs() | GraphExists() | ComputedRows() | InlineRows():
            return frozenset()
        case InnerJoin(left, right) | UnionAll(left, right) | AntiJoin(left, right):
            return outer(left) | outer(right)
        case LeftOuterJoin(left, right, condition):
            here = frozenset() if condition is None else mentioned(condition)
            return outer(left) | outer(right) | (here - visible(left) - visible(right))
        case Selection(inner, expression) | ComputedColumn(inner, _, expression):
            return outer(inner) | (mentioned(expression) - visible(inner))
        case Aggregation(inner) | Sort(inner) | Projection(inner) | DistinctRows(inner) | RowRange(inner):
            return outer(inner)


def used(pattern: Pattern) -> frozenset[str]:
    """Return all variables of a pattern, except those that a subquery hides."""
    match pattern:
        case Projection(inner, variables):
            return used(inner) & {*variables}
        case InnerJoin(left, right) | UnionAll(left, right) | AntiJoin(left, right):
            return used(left) | used(right)
        case LeftOuterJoin(left, right, condition):
            here = frozenset() if condition is None else mentioned(condition)
            return used(left) | used(right) | here
        case Selection(inner, expression):
            return used(inner) | mentioned(expression)
        case ComputedColumn(inner, variable, expression):
            return used(inner) | mentioned(expression) | {variable}
        case Aggregation(inner) | Sort(inner) | DistinctRows(inner) | RowRange(inner):
            return used(inner) | visible(pattern)
        case _:
            return visible(pattern)


def needs_triples(pattern: Pattern, graph: Graph) -> bool:
    """Return whether a pattern has no solutions if the graph has no triples. The result is conservative."""
    match pattern:
        case Basic(triples):
            return bool(triples) and pattern.graph == graph
        case TransitiveClosure(step):
            return needs_triples(step, graph)
        case InlineRows(_, rows):
            return not rows
        case InnerJoin(left, right):
            return needs_triples(left, graph) or needs_triples(right, graph)
        case UnionAll(left, right):
            return needs_triples(left, graph) and needs_triples(right, graph)
        case LeftOuterJoin(left, _) | AntiJoin(left, _):
            return needs_triples(left, graph)
        case Aggregation(inner, keys):
            return bool(keys) and needs_triples(inner, graph)
        case Selection(inner) | ComputedColumn(inner) | Projection(inner) | DistinctRows(inner) | RowRange(inner):
            return needs_triples(inner, graph)
        case _:
            return False


GRAPH: Final = "graph "
"""Prefix of the hidden variables of GRAPH."""
UNIT: Final = InlineRows((), ((),))
"""One solution without bindings."""
NOTHING: Final = InlineRows((), ())
"""No solution."""


def _variables(triples: tuple[TriplePattern, ...]) -> frozenset[str]:
    return frozenset(name for triple in triples for name in triple.variables())
