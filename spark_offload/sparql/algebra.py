"""Algebra of queries: a tree of immutable nodes (SPARQL 1.1 Query, section 18.2).

A variable with a space in its name is *hidden*: a blank node, an inner node of a path, or the graph of GRAPH.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from edge.sparql import terms as rdf

Constant: TypeAlias = rdf.Iri | rdf.Literal


@dataclass(frozen=True)
class Variable:
    """A variable of a query."""

    name: str


Node: TypeAlias = Variable | Constant
Graph: TypeAlias = Variable | rdf.Iri | None
"""Graph in which a pattern is matched; None: the default graph."""


@dataclass(frozen=True)
class TriplePattern:
    """A triple with variables."""

    subject: Node
    predicate: Node
    object: Node

    def variables(self) -> Iterator[str]:
        """Yield the names of the variables, with duplicates."""
        return (node.name for node in (self.subject, self.predicate, self.object) if isinstance(node, Variable))


@dataclass(frozen=True)
class Call:
    """Call of an operator or function, by its SPARQL name in capitals, or of a cast, by the IRI of its datatype."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Exists:
    """EXISTS, or NOT EXISTS."""

    pattern: Pattern
    negated: bool


Expression: TypeAlias = Variable | rdf.Iri | rdf.Literal | Call | Exists


@dataclass(frozen=True)
class Aggregate:
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
class Graphs:
    """All named graphs, one solution each."""

    variable: str


@dataclass(frozen=True)
class Values:
    """Inline data. None means UNDEF. Blank nodes come from the answer of a gateway."""

    variables: tuple[str, ...]
    rows: tuple[tuple[Constant | rdf.BlankNode | None, ...], ...]


@dataclass(frozen=True)
class Join:
    """Join of two patterns."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class LeftJoin:
    """OPTIONAL with its condition."""

    left: Pattern
    right: Pattern
    condition: Expression | None


@dataclass(frozen=True)
class Union:
    """UNION of two patterns."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class Minus:
    """MINUS: the solutions of the left without those compatible with the right."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class Filter:
    """FILTER: the solutions that satisfy a condition."""

    pattern: Pattern
    condition: Expression


@dataclass(frozen=True)
class Extend:
    """BIND, and expressions in SELECT."""

    pattern: Pattern
    variable: str
    expression: Expression


@dataclass(frozen=True)
class Group:
    """GROUP BY and aggregates: one solution for each group. Without keys there is one group, even without solutions."""

    pattern: Pattern
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True)
class OrderBy:
    """ORDER BY. Each condition is an expression, and whether it is descending."""

    pattern: Pattern
    conditions: tuple[tuple[Expression, bool], ...]


@dataclass(frozen=True)
class Project:
    """Projection to these variables."""

    pattern: Pattern
    variables: tuple[str, ...]


@dataclass(frozen=True)
class Distinct:
    """DISTINCT, and REDUCED, which permits the same."""

    pattern: Pattern


@dataclass(frozen=True)
class Slice:
    """OFFSET and LIMIT."""

    pattern: Pattern
    offset: int
    limit: int | None


Pattern: TypeAlias = (
    Basic
    | Graphs
    | Values
    | Join
    | LeftJoin
    | Union
    | Minus
    | Filter
    | Extend
    | Group
    | OrderBy
    | Project
    | Distinct
    | Slice
)


@dataclass(frozen=True)
class Query:
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
        case Graphs(variable):
            return frozenset({variable})
        case Values(variables):
            return frozenset(variables)
        case Join(left, right) | LeftJoin(left, right) | Union(left, right):
            return visible(left) | visible(right)
        case Minus(left, _):
            return visible(left)
        case Extend(inner, variable):
            return visible(inner) | {variable}
        case Group(_, keys, aggregates):
            return frozenset(name for name, _ in (*keys, *aggregates))
        case Project(_, variables):
            return frozenset(variables)
        case Filter(inner) | OrderBy(inner) | Distinct(inner) | Slice(inner):
            return visible(inner)


def certain(pattern: Pattern) -> frozenset[str]:
    """Return variables that every solution binds. The result is conservative."""
    match pattern:
        case Basic() | Graphs():
            return visible(pattern)
        case Values(variables, rows):
            return frozenset(
                name for place, name in enumerate(variables) if all(row[place] is not None for row in rows)
            )
        case Join(left, right):
            return certain(left) | certain(right)
        case Union(left, right):
            return certain(left) & certain(right)
        case LeftJoin(left, _) | Minus(left, _):
            return certain(left)
        case Group():
            return frozenset()
        case Project(inner):
            return certain(inner) & visible(pattern)
        case Filter(inner) | Extend(inner) | OrderBy(inner) | Distinct(inner) | Slice(inner):
            return certain(inner)


def mentioned(expression: Expression) -> frozenset[str]:
    """Return the variables of an expression, including those in EXISTS."""
    match expression:
        case Variable(name):
            return frozenset({name})
        case Call(_, arguments):
            return frozenset().union(*map(mentioned, arguments))
        case Exists(pattern):
            return visible(pattern) | outer(pattern)
        case _:
            return frozenset()


def free(expression: Expression) -> frozenset[str]:
    """Return the variables of an expression outside of EXISTS."""
    match expression:
        case Variable(name):
            return frozenset({name})
        case Call(_, arguments):
            return frozenset().union(*map(free, arguments))
        case _:
            return frozenset()


def outer(pattern: Pattern) -> frozenset[str]:
    """Return the variables that conditions use but their pattern cannot bind; in EXISTS, the outer query binds them."""
    match pattern:
        case Basic() | Graphs() | Values():
            return frozenset()
        case Join(left, right) | Union(left, right) | Minus(left, right):
            return outer(left) | outer(right)
        case LeftJoin(left, right, condition):
            here = frozenset() if condition is None else mentioned(condition)
            return outer(left) | outer(right) | (here - visible(left) - visible(right))
        case Filter(inner, expression) | Extend(inner, _, expression):
            return outer(inner) | (mentioned(expression) - visible(inner))
        case Group(inner) | OrderBy(inner) | Project(inner) | Distinct(inner) | Slice(inner):
            return outer(inner)


GRAPH: Final = "graph "
"""Prefix of the hidden variables of GRAPH."""
UNIT: Final = Values((), ((),))
"""One solution without bindings."""
NOTHING: Final = Values((), ())
"""No solution."""


def _variables(triples: tuple[TriplePattern, ...]) -> frozenset[str]:
    return frozenset(name for triple in triples for name in triple.variables())
