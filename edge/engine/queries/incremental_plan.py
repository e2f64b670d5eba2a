"""The BOOSTER's plan of a query: patterns whose solutions a change touches, and stages that make results of them.

A plan belongs to a shape of queries, not to one query: what differs between them are parameters. (SPS Architecture,
section V.C; the delta rules are told in docs/architecture.md.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from edge.engine.operators.aggregates import accumulator
from edge.engine.operators.compiler import Compiler, Plan
from edge.engine.operators.expression import Now, Unsupported, uses_now, volatile
from edge.engine.operators.layout import Frame, Layout
from edge.engine.operators.normal_form import alternatives, normal
from edge.engine.operators.operators import Condition, Value
from edge.engine.operators.stages import Ask, Columns, ConstructTemplate, Distinct, Grouping, Groups, Stage
from edge.engine.operators.variables import expressions, has_exists
from edge.engine.sparql import algebra
from edge.engine.sparql.algebra import Expression, Extend, Filter, Group, Node, OrderBy, Project, Query, Slot
from edge.engine.store.graph import LiveGraph

TRIPLE_VARIABLES: tuple[str, ...] = ("subject", "predicate", "object")
BOOLEAN_VARIABLES: tuple[str, ...] = ("boolean",)

Stages = Callable[[Frame], Sequence[Stage]]
"""New stages for a query with these constants."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryPlan:
    """How the queries of one shape are evaluated."""

    query: Query
    variables: tuple[str, ...]
    """The columns of the result."""
    layout: Layout
    alternatives: tuple[Plan, ...]
    """The solutions are those of all of these together, in bag semantics."""
    stages: Stages
    stateless: bool
    """Whether the stages keep nothing, so that all queries of the shape can share them."""

    @property
    def graph_names(self) -> bool:
        """Whether a result changes when a named graph begins or ceases to exist."""
        return any(plan.graph_names for plan in self.alternatives)


def compile_query(
    query: Query, graph: LiveGraph, base_iri: str, default_graph: Slot | None, same: Sequence[int] = ()
) -> QueryPlan:
    """The plan of a query. Raises `Unsupported`, which says what it is that has no rule.

    `default_graph`: None is the store's own. `same`: see `Layout`.
    """
    if query.form == "DESCRIBE":
        raise Unsupported("DESCRIBE")
    for expression in expressions(query.pattern):
        if volatile(expression) or uses_now(expression):
            raise Unsupported("NOW, RAND, UUID, STRUUID or BNODE")
    return _Planner(query, graph, base_iri, default_graph, Layout(same)).plan()


class _Planner:
    def __init__(
        self, query: Query, graph: LiveGraph, base_iri: str, default_graph: Slot | None, layout: Layout
    ) -> None:
        self._query = query
        self._graph = graph
        self._layout = layout
        self._compiler = Compiler(graph, layout, Now(), base_iri, default_graph)

    def plan(self) -> QueryPlan:
        node, distinct = _bare(self._query)
        after, group = _peeled(node)
        pattern = normal(node if group is None else group.pattern)
        plans = tuple(self._compiler.compile(each) for each in alternatives(pattern))
        grouping = None if group is None else self._grouping(group, pattern, after)
        stages = self._stages(grouping, distinct=distinct)
        stateless = grouping is None and not distinct and self._query.form == "SELECT"
        return QueryPlan(self._query, self._variables(), self._layout, plans, stages, stateless)

    def _variables(self) -> tuple[str, ...]:
        if self._query.form == "ASK":
            return BOOLEAN_VARIABLES
        if self._query.form == "CONSTRUCT":
            return TRIPLE_VARIABLES
        return tuple(variable.name for variable in self._query.variables)

    def _stages(self, grouping: Grouping | None, *, distinct: bool) -> Stages:
        graph, query = self._graph, self._query
        template = self._layout.template(query.template)
        fresh = tuple(self._layout.fresh)
        columns = Columns([self._layout.places.get(variable) for variable in query.variables])

        def stages(constants: Frame) -> Iterator[Stage]:
            if grouping is not None:
                yield Groups(graph, constants, grouping)
            if query.form == "ASK":
                yield Ask(graph.dictionary)
            elif query.form == "CONSTRUCT":
                yield ConstructTemplate(graph, template, fresh)
                yield Distinct(graph.dictionary)
            else:
                yield columns
                if distinct:
                    yield Distinct(graph.dictionary)

        return lambda constants: tuple(stages(constants))

    def _grouping(self, group: Group, pattern: Node, after: Sequence[Extend | Filter]) -> Grouping:
        scope = self._compiler.scope()
        steps: list[tuple[int, Value] | Condition] = []
        below: Node = group
        for node in reversed(after):
            if isinstance(node, Extend):
                steps.append((scope.place(node.variable), scope.value(_plain(node.expression), below)))
            else:
                steps += [scope.condition(_plain(condition), below) for condition in node.conditions]
            below = node
        aggregates = [
            (
                scope.place(variable),
                partial(accumulator, aggregate, self._graph.effort),
                scope.accumulated(aggregate, pattern),
            )
            for variable, aggregate in group.aggregates
        ]
        return Grouping([scope.place(key) for key in group.keys], aggregates, steps)


def _bare(query: Query) -> tuple[Node, bool]:
    """The pattern below the modifiers of a query, and whether its result is DISTINCT."""
    node = query.pattern
    if isinstance(node, algebra.Slice):
        raise Unsupported("LIMIT or OFFSET")
    selects = query.form == "SELECT"  # else what stands there is a sub-query
    distinct = selects and isinstance(node, algebra.Distinct) and not node.reduced
    for modifier in (algebra.Distinct, Project, OrderBy) if selects else (OrderBy,):
        if isinstance(node, modifier):
            node = node.pattern
    return node, distinct


def _peeled(node: Node) -> tuple[list[Extend | Filter], Group | None]:
    """What stands above the GROUP BY of a query, the outermost first, and the Group; None: it has none."""
    after: list[Extend | Filter] = []
    while isinstance(node, Extend | Filter):
        after.append(node)
        node = node.pattern
    return after, node if isinstance(node, Group) else None


def _plain(expression: Expression) -> Expression:
    if has_exists(expression):
        raise Unsupported("EXISTS over groups")
    return expression
