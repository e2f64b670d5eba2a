"""The algebra of queries: a tree of immutable nodes (SPARQL 1.1 Query, section 18.2).

Variables are texts. One with a space in its name is *hidden*: a blank node, the middle of a path, the graph of GRAPH.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import rdflib

Constant: TypeAlias = rdflib.URIRef | rdflib.Literal


@dataclass(frozen=True)
class Variable:
    """One of a query."""

    name: str


Node: TypeAlias = Variable | Constant
Graph: TypeAlias = Variable | rdflib.URIRef | None
"""The one in which a pattern is looked for; None: the default graph."""


@dataclass(frozen=True)
class TriplePattern:
    """A triple with variables."""

    subject: Node
    predicate: Node
    object: Node

    def variables(self) -> Iterator[str]:
        """Those in it, as often as they are."""
        return (node.name for node in (self.subject, self.predicate, self.object) if isinstance(node, Variable))


@dataclass(frozen=True)
class Call:
    """An operator or function, by its name in SPARQL (capitals), or a cast by the IRI of its datatype."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Exists:
    """EXISTS, or NOT EXISTS."""

    pattern: Pattern
    negated: bool


Expression: TypeAlias = Variable | rdflib.URIRef | rdflib.Literal | Call | Exists


@dataclass(frozen=True)
class Aggregate:
    """COUNT and the others. `argument` None: `*`."""

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
    """Each named graph is a solution."""

    variable: str


@dataclass(frozen=True)
class Values:
    """Inline data. None: UNDEF. Blank nodes are those of a gateway's answer."""

    variables: tuple[str, ...]
    rows: tuple[tuple[Constant | rdflib.BNode | None, ...], ...]


@dataclass(frozen=True)
class Join:
    """Both."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class LeftJoin:
    """OPTIONAL."""

    left: Pattern
    right: Pattern
    condition: Expression | None


@dataclass(frozen=True)
class Union:
    """One or the other."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class Minus:
    """The left without what agrees with the right."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class Filter:
    """What meets a condition."""

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
    """GROUP BY and what is aggregated: one solution a group. No keys: one group, even of nothing."""

    pattern: Pattern
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True)
class OrderBy:
    """Sorted; each condition is an expression, and whether it descends."""

    pattern: Pattern
    conditions: tuple[tuple[Expression, bool], ...]


@dataclass(frozen=True)
class Project:
    """These variables, and no others."""

    pattern: Pattern
    variables: tuple[str, ...]


@dataclass(frozen=True)
class Distinct:
    """Each once. REDUCED is this too."""

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
    """A whole one."""

    form: str
    """SELECT, ASK or CONSTRUCT."""
    pattern: Pattern
    variables: tuple[str, ...]
    """Of SELECT, in their order."""
    template: tuple[TriplePattern, ...] = ()
    """Of CONSTRUCT. Hidden variables in it are blank nodes, new ones for each solution."""


def hidden(name: str) -> bool:
    """Whether the writer of a query does not know the variable."""
    return " " in name


def visible(pattern: Pattern) -> frozenset[str]:
    """The variables that a solution may bind (section 18.2.1), hidden ones too."""
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
    """The variables that every solution binds, as far as that is plain to see."""
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
    """The variables in an expression, those of EXISTS too."""
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
    """The variables in an expression outside of EXISTS."""
    match expression:
        case Variable(name):
            return frozenset({name})
        case Call(_, arguments):
            return frozenset().union(*map(free, arguments))
        case _:
            return frozenset()


def outer(pattern: Pattern) -> frozenset[str]:
    """The variables that conditions in a pattern mention where it cannot bind them: in EXISTS they are of outside."""
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
"""How the hidden variables of GRAPH begin."""
UNIT: Final = Values((), ((),))
"""One solution, which binds nothing."""
NOTHING: Final = Values((), ())
"""No solution."""


def _variables(triples: tuple[TriplePattern, ...]) -> frozenset[str]:
    return frozenset(name for triple in triples for name in triple.variables())
