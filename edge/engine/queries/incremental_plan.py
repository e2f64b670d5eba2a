"""Incremental plan of a query: patterns that find the affected solutions, and stages that turn them into result rows.

One plan serves all queries with the same text template: their constants are parameters of the plan. Source: SPS
Architecture, section V.C (the BOOSTER). The delta rules:

- A quad that matches a triple pattern fixes variables of the pattern. The compiler determines which of them the quad
  fixes in the solutions of the whole plan. In a join these are all variables of the pattern. Inside OPTIONAL, MINUS,
  EXISTS or a sub-query they are those that the outer pattern is certain to bind. If there are none, the other patterns
  of an OPTIONAL lead from the quad to such variables. Otherwise all solutions are compared.
- Each changed solution may contain the quad (joins, filters, the left side of OPTIONAL and MINUS). If the update hit no
  other pattern of the plan, the rest of the plan is evaluated once, in the present state. The result is cached until
  the rest changes, so the old and the new value of a sensor share it.
- Otherwise the solutions that agree with the fixed variables are evaluated in the states after and before the update,
  with their multiplicities, and subtracted.
- A UNION at the top makes several plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from edge.engine.operators.aggregates import accumulator
from edge.engine.operators.compiler import Compiler
from edge.engine.operators.expression import Now, UnsupportedConstruct, uses_now, volatile
from edge.engine.operators.layout import Frame, SlotLayout
from edge.engine.operators.normal_form import alternatives, normal
from edge.engine.operators.operators import Condition, Value
from edge.engine.operators.plan import Plan
from edge.engine.operators.stages import Ask, Columns, ConstructTemplate, DistinctStage, Grouping, Groups, Stage
from edge.engine.operators.variables import expressions, has_exists
from edge.engine.store.graph import LiveGraph
from edge.sparql import algebra
from edge.sparql.algebra import Expression, Extend, Filter, Group, Node, OrderBy, Project, Query, Slot

TRIPLE_VARIABLES: tuple[str, ...] = ("subject", "predicate", "object")
BOOLEAN_VARIABLES: tuple[str, ...] = ("boolean",)

Stages = Callable[[Frame], Sequence[Stage]]
"""Create the stages of one query from its constants."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryPlan:
    """Compiled plan of the queries that differ only in constants."""

    query: Query
    variables: tuple[str, ...]
    """The columns of the result."""
    layout: SlotLayout
    alternatives: tuple[Plan, ...]
    """Their solutions together, in bag semantics, are the solutions of the query."""
    stages: Stages
    stateless: bool
    """Whether the stages hold no state, so that all queries of the plan can share them."""

    @property
    def graph_names(self) -> bool:
        """Whether the result can change when a named graph is created or disappears."""
        return any(plan.graph_names for plan in self.alternatives)


def compile_query(
    query: Query, graph: LiveGraph, base_iri: str, default_graphs: Sequence[Slot | None], same: Sequence[int] = ()
) -> QueryPlan:
    """Compile the incremental plan of a query.

    Raises `UnsupportedConstruct`, which names the part without a delta rule. `default_graphs`: see `Compiler`.
    `same`: see `SlotLayout`.
    """
    if query.form == "DESCRIBE":
        raise UnsupportedConstruct("DESCRIBE")
    for expression in expressions(query.pattern):
        # These change without a change of the data, so no quad would trigger an update of the result.
        if volatile(expression) or uses_now(expression):
            raise UnsupportedConstruct("NOW, RAND, UUID, STRUUID or BNODE")
    return _Planner(query, graph, base_iri, default_graphs, SlotLayout(same)).plan()


class _Planner:
    def __init__(
        self,
        query: Query,
        graph: LiveGraph,
        base_iri: str,
        default_graphs: Sequence[Slot | None],
        layout: SlotLayout,
    ) -> None:
        self._query = query
        self._graph = graph
        self._layout = layout
        self._compiler = Compiler(graph, layout, Now(), base_iri, default_graphs)

    def plan(self) -> QueryPlan:
        # The solutions go through the operators of each alternative, and from there through shared stages: grouping,
        # then the query form (columns, ASK or the CONSTRUCT template), then DISTINCT.
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
                yield DistinctStage(graph.dictionary)
            else:
                yield columns
                if distinct:
                    yield DistinctStage(graph.dictionary)

        return lambda constants: tuple(stages(constants))

    def _grouping(self, group: Group, pattern: Node, after: Sequence[Extend | Filter]) -> Grouping:
        scope = self._compiler.scope()
        steps: list[tuple[int, Value] | Condition] = []
        below: Node = group
        # The algebra lists the outermost node first; the steps run in the opposite order, from the group outwards.
        for node in reversed(after):
            if isinstance(node, Extend):
                steps.append((scope.place(node.variable), scope.value(_plain(node.expression), below)))
            else:
                steps += [scope.condition(_plain(condition), below) for condition in node.conditions]
            below = node
        aggregates = [
            (
                scope.place(variable),
                partial(accumulator, aggregate, self._graph.budget),
                scope.accumulated(aggregate, pattern),
            )
            for variable, aggregate in group.aggregates
        ]
        return Grouping([scope.place(key) for key in group.keys], aggregates, steps)


def _bare(query: Query) -> tuple[Node, bool]:
    """Return the pattern below the solution modifiers, and whether the result is DISTINCT."""
    node = query.pattern
    if isinstance(node, algebra.Slice):
        raise UnsupportedConstruct("LIMIT or OFFSET")
    selects = query.form == "SELECT"  # in other forms, Distinct and Project belong to a sub-query
    distinct = selects and isinstance(node, algebra.Distinct) and not node.reduced
    for modifier in (algebra.Distinct, Project, OrderBy) if selects else (OrderBy,):
        if isinstance(node, modifier):
            node = node.pattern
    return node, distinct


def _peeled(node: Node) -> tuple[list[Extend | Filter], Group | None]:
    """Return the nodes above the GROUP BY, outermost first, and the `Group`; None if the query has no GROUP BY."""
    after: list[Extend | Filter] = []
    while isinstance(node, Extend | Filter):
        after.append(node)
        node = node.pattern
    return after, node if isinstance(node, Group) else None


def _plain(expression: Expression) -> Expression:
    """Return an expression without EXISTS. Raises `UnsupportedConstruct`."""
    if has_exists(expression):
        raise UnsupportedConstruct("EXISTS over groups")
    return expression
