"""The SPARQL algebra (SPARQL 1.1 Query Language, section 18) as the engine's parser gives it.

A tree of immutable nodes. Joins are n-ary and flat, the graph that a triple pattern belongs to stands in the pattern
itself, and aggregates are variables that a `Group` binds. Constants that the shape of a text leaves open are
`Parameter`s (see `shape`), so that one tree serves all texts that differ in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyoxigraph import NamedNode

from edge.protocol.results import Term


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable by name (without `?`). One that the parser makes has a name that no text can write: `.0`, `.1`, ..."""

    name: str


@dataclass(frozen=True, slots=True)
class Blank:
    """A blank node of a pattern: a variable that nobody can select."""

    label: str


@dataclass(frozen=True, slots=True)
class Fresh:
    """A blank node of a template: a new one for each solution."""

    label: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant that differs between texts of one shape."""

    index: int
    """Which of the constants of the shape."""
    negative: bool
    """A number with a minus sign that the shape has."""
    term: Term
    """What it is in the text that was parsed, with its sign. Not to be relied on: another text has another."""


Slot = Term | Variable | Blank | Fresh | Parameter
"""A position of a pattern or template."""


# Paths (section 18.1.7). A path that is a plain link never appears: it is the predicate of a Triple.


@dataclass(frozen=True, slots=True)
class PathLink:
    """One step along a predicate."""

    predicate: Slot


@dataclass(frozen=True, slots=True)
class Inverse:
    """`^path`."""

    path: PathExpression


@dataclass(frozen=True, slots=True)
class Sequence:
    """`path / path / ...`."""

    steps: tuple[PathExpression, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """`path | path | ...`."""

    choices: tuple[PathExpression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`path*` (least 0), `path+` (least 1), `path?` (least 0, once)."""

    path: PathExpression
    least: int
    once: bool


@dataclass(frozen=True, slots=True)
class Negated:
    """`!(:p | ^:q)`: one step along a predicate that is none of these."""

    forward: tuple[Slot, ...]
    backward: tuple[Slot, ...]


PathExpression = PathLink | Inverse | Sequence | Alternative | Repeat | Negated


# Expressions (section 17)


@dataclass(frozen=True, slots=True)
class Constant:
    """An RDF term in an expression."""

    term: Slot
    """A Term or a Parameter."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The value of a variable."""

    variable: Variable


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or built-in function.

    Operators: `||`, `&&`, `!`, `=`, `!=`, `<`, `>`, `<=`, `>=`, `+`, `-`, `*`, `/`, `unary-`, `unary+`, and `IN`,
    `NOT IN` (the first argument is what is looked for). Functions: their keyword in upper case (`STR`, `BOUND`, `IF`,
    `COALESCE`, `REGEX`, ...); `IRI` and `ISIRI` also for `URI` and `ISURI`. A function of an IRI, casts included: the
    IRI is `function`, the name is empty.
    """

    name: str
    arguments: tuple[Expression, ...]
    function: Term | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """`EXISTS { }` and `NOT EXISTS { }`."""

    pattern: Node
    negated: bool


Expression = Constant | Reference | Call | Exists


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`COUNT`, `SUM`, `AVG`, `MIN`, `MAX`, `SAMPLE` or `GROUP_CONCAT` over the solutions of a group."""

    name: str
    expression: Expression | None
    """None: `COUNT(*)`."""
    distinct: bool
    separator: str = " "


# Patterns


@dataclass(frozen=True, slots=True)
class Triple:
    """A triple pattern, in the graph that it belongs to. `graph` None: the default graph."""

    subject: Slot
    predicate: Slot
    object: Slot
    graph: Slot | None


@dataclass(frozen=True, slots=True)
class Path:
    """A property path pattern."""

    subject: Slot
    path: PathExpression
    object: Slot
    graph: Slot | None


@dataclass(frozen=True, slots=True)
class Join:
    """All parts together. No part is a Join itself. Without parts: the one empty solution."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """`left OPTIONAL { right FILTER (condition) }`."""

    left: Node
    right: Node
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Union:
    """Solutions of each branch, in bag semantics. No branch is a Union itself."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Minus:
    """`left MINUS { right }`."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Filter:
    """The solutions for which all conditions are true. `FILTER(a && b)` has two conditions."""

    pattern: Node
    conditions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """`BIND(expression AS variable)`; an error leaves the variable unbound."""

    pattern: Node
    variable: Variable
    expression: Expression


@dataclass(frozen=True, slots=True)
class Values:
    """`VALUES`: rows of terms; None is UNDEF."""

    variables: tuple[Variable, ...]
    rows: tuple[tuple[Slot | None, ...], ...]


@dataclass(frozen=True, slots=True)
class GraphPattern:
    """`GRAPH name { pattern }`. The triple patterns in it say so themselves; this asks that the graph exists."""

    name: Slot
    pattern: Node


@dataclass(frozen=True, slots=True)
class Service:
    """`SERVICE [SILENT] name { pattern }`."""

    name: Slot
    silent: bool
    pattern: Node


@dataclass(frozen=True, slots=True)
class Group:
    """`GROUP BY`: one solution for each group, with its keys and aggregates bound. Without keys: one group, always.

    A key that is an expression is bound by an Extend below.
    """

    pattern: Node
    keys: tuple[Variable, ...]
    aggregates: tuple[tuple[Variable, Aggregate], ...]


@dataclass(frozen=True, slots=True)
class Project:
    """The solutions with these variables alone."""

    pattern: Node
    variables: tuple[Variable | Blank, ...]
    """Blank nodes only where a rewriting has hidden others."""


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each solution once. `reduced`: at least once."""

    pattern: Node
    reduced: bool


@dataclass(frozen=True, slots=True)
class OrderBy:
    """The solutions in an order, by conditions and whether each is descending."""

    pattern: Node
    conditions: tuple[tuple[Expression, bool], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """`OFFSET` and `LIMIT` (None: no limit)."""

    pattern: Node
    offset: int
    limit: int | None


Node = (
    Triple
    | Path
    | Join
    | LeftJoin
    | Union
    | Minus
    | Filter
    | Extend
    | Values
    | GraphPattern
    | Service
    | Group
    | Project
    | Distinct
    | OrderBy
    | Slice
)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of any form."""

    form: str
    """SELECT, ASK, CONSTRUCT or DESCRIBE."""
    pattern: Node
    """Of a SELECT with all its modifiers: the outermost nodes are Slice, Distinct, Project, OrderBy, in this order."""
    variables: tuple[Variable, ...]
    """What a SELECT selects; `*` in order of first appearance."""
    default_graphs: tuple[NamedNode, ...] | None
    """Of FROM. None: there is neither FROM nor FROM NAMED."""
    named_graphs: tuple[NamedNode, ...] | None
    """Of FROM NAMED."""
    template: tuple[Triple, ...] = ()
    """Of a CONSTRUCT: blank nodes are Fresh."""
    resources: tuple[Term | Variable, ...] = ()
    """Of a DESCRIBE; `*` written out."""
    base: str | None = None
    """The base IRI at the end of the prologue, against which `IRI()` resolves."""
