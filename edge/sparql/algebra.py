"""The SPARQL algebra (SPARQL 1.1 Query Language, section 18).

A tree of immutable nodes. Joins are n-ary and flat, each triple pattern contains its graph, and aggregates are
variables that a `Group` binds. The open constants of a text template are `Parameter`s (see `fingerprint`), so one tree
serves all texts with the same template.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.sparql.terms import AnyTerm


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable by name (without `?`). The parser names its own so that no text can contain them: `.0`, `.1`, ..."""

    name: str


@dataclass(frozen=True, slots=True)
class Blank:
    """A blank node of a pattern: a variable that cannot be selected."""

    label: str


@dataclass(frozen=True, slots=True)
class Fresh:
    """A blank node of a template: a new one for each solution."""

    label: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant that differs between the texts of one template."""

    index: int
    """Index among the constants of the template."""
    negative: bool
    """Whether it is a number after a minus sign that belongs to the template."""
    term: AnyTerm
    """Value in the parsed text, with its sign. Other texts have other values, so it is only an example."""


Slot = AnyTerm | Variable | Blank | Fresh | Parameter
"""A position of a pattern or template."""


# Paths (section 18.1.7). A path of one link never appears: it is the predicate of a Triple.


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
    """`!(:p | ^:q)`: one step along a predicate that is not in the list."""

    forward: tuple[Slot, ...]
    backward: tuple[Slot, ...]


PathExpression = PathLink | Inverse | Sequence | Alternative | Repeat | Negated


# Expressions (section 17)


@dataclass(frozen=True, slots=True)
class Constant:
    """An RDF term in an expression."""

    term: Slot
    """A term or a Parameter."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The value of a variable."""

    variable: Variable


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or built-in function.

    Operators: `||`, `&&`, `!`, `=`, `!=`, `<`, `>`, `<=`, `>=`, `+`, `-`, `*`, `/`, `unary-`, `unary+`, and `IN`, `NOT
    IN` (the first argument is the value to look up). Functions: their keyword in upper case (`STR`, `BOUND`, `IF`,
    `COALESCE`, `REGEX`, ...); `IRI` and `ISIRI` also for `URI` and `ISURI`. A function with an IRI, such as a cast: the
    IRI is `function`, the name is empty.
    """

    name: str
    arguments: tuple[Expression, ...]
    function: AnyTerm | None = None


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
    """A triple pattern and its graph. `graph` None: the default graph."""

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
    """Join of all parts. No part is a Join itself. Without parts: the one empty solution."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """`left OPTIONAL { right FILTER (condition) }`."""

    left: Node
    right: Node
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Union:
    """Solutions of all branches, as a bag. No branch is a Union itself."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Minus:
    """`left MINUS { right }`."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Filter:
    """Solutions for which all conditions are true. `FILTER(a && b)` has two conditions."""

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
    """`GRAPH name { pattern }`. Its triple patterns name the graph themselves; this node requires that the graph
    exists.
    """

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
    """`GROUP BY`: one solution for each group, with its keys and aggregates bound. Without keys: exactly one group.

    An Extend below binds a key that is an expression.
    """

    pattern: Node
    keys: tuple[Variable, ...]
    aggregates: tuple[tuple[Variable, Aggregate], ...]


@dataclass(frozen=True, slots=True)
class Project:
    """Solutions restricted to these variables."""

    pattern: Node
    variables: tuple[Variable | Blank, ...]
    """May include blank nodes, if a rewriting has hidden other variables."""


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each solution once. `reduced`: at least once."""

    pattern: Node
    reduced: bool


@dataclass(frozen=True, slots=True)
class OrderBy:
    """Ordered solutions. Each condition has a flag that is true for descending order."""

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
    """Pattern of a SELECT with all its modifiers: the outermost nodes are Slice, Distinct, Project, OrderBy, in this
    order.
    """
    variables: tuple[Variable, ...]
    """Variables of a SELECT; `*` in order of first appearance."""
    default_graphs: tuple[AnyTerm, ...] | None
    """Graphs of FROM. None: the query has neither FROM nor FROM NAMED."""
    named_graphs: tuple[AnyTerm, ...] | None
    """Graphs of FROM NAMED."""
    template: tuple[Triple, ...] = ()
    """Template of a CONSTRUCT; its blank nodes are Fresh."""
    resources: tuple[AnyTerm | Variable, ...] = ()
    """Resources of a DESCRIBE, with `*` expanded."""
    base: str | None = None
    """Base IRI at the end of the prologue, against which `IRI()` resolves."""
