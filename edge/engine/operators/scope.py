"""Scopes: the operators of the algebra's nodes, each with the variables that it can see.

SPARQL evaluates bottom up, nested loops evaluate with the variables bound so far. Both agree on variables that a
pattern certainly binds. This module handles all other cases. A part of a join that may leave a shared variable unbound
gets a copy of it (`Merge`), variables that a scope hides get their own places, and an expression sees only the
variables that its scope can bind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.aggregates import accumulator
from edge.engine.operators.expression import Now, UnsupportedConstruct, compile_condition, compile_expression
from edge.engine.operators.join_operators import (
    FilterGuard,
    JoinOperator,
    MinusOperator,
    Optional,
    UnionOperator,
    Where,
    holds,
)
from edge.engine.operators.layout import Frame, Hidden, SlotLayout
from edge.engine.operators.normal_form import normal
from edge.engine.operators.operators import Condition, Operator, Scan, Value
from edge.engine.operators.plan import OptionalRightSide, Trigger
from edge.engine.operators.row_operators import Bind, DistinctOperator, Fixed, Grouped, InGraph, InlineData, Merge
from edge.engine.operators.values_index import ValuesIndex
from edge.engine.operators.variables import Name, Names, certain, has_exists, mentioned, possible, references
from edge.engine.store.graph import LiveGraph
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import Dictionary, canonical
from edge.protocol.results import Term
from edge.sparql.algebra import (
    Aggregate,
    Blank,
    Call,
    Constant,
    Distinct,
    Expression,
    Extend,
    Filter,
    GraphPattern,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    Parameter,
    Project,
    Reference,
    Slot,
    Triple,
    Union,
    Values,
    Variable,
)

_FEW_ROWS: Final = 8
"""Rows of VALUES up to which they are tried one after the other."""

STORE_DEFAULT: Final = (None,)
"""The default graph of the store. None stands for it in a list of graphs."""
_MAX_MERGED: Final = 16
"""Graphs that a default graph may merge. Each pattern is looked up in each of them."""

_MAX_MERGED_SCANS: Final = 256
"""Look-ups of all patterns together."""

Lift = Callable[[int], "int | None"]
"""Maps a place of an inner pattern to its place in the solutions of the whole; None if it has none for certain."""


def same_place(place: int) -> int | None:
    """Map a place to itself: the pattern is the whole."""
    return place


class Compilation:
    """What the scopes of one request share: the graph, the layout, and what was compiled so far."""

    def __init__(
        self,
        graph: LiveGraph,
        layout: SlotLayout,
        evaluation_time: Now,
        base_iri: str,
        default_graphs: Sequence[Slot | None] = STORE_DEFAULT,
    ) -> None:
        """`default_graphs`: graphs whose merge is the default graph. Raises `UnsupportedConstruct` if they are many."""
        if len(default_graphs) > _MAX_MERGED:
            raise UnsupportedConstruct(f"a dataset of more than {_MAX_MERGED} default graphs")
        self.graph = graph
        self.layout = layout
        self.evaluation_time = evaluation_time
        self.base_iri = base_iri
        self.default_graphs = default_graphs
        self.triggers: list[Trigger] = []
        self.graph_names = False
        self.matched: set[int] = set()
        """Places of parameters in a triple pattern that every solution matches."""
        self.bound: Names = frozenset()
        """Every variable of the compiled pattern, except those inside EXISTS."""
        self.tables: list[ValuesIndex] = []
        self.closed: list[int] = []
        """Places of parameters that must be bound, once for each use that requires it."""
        self.guards: list[tuple[FilterGuard, Expression, frozenset[int]]] = []
        """Conditions of filters that each solution satisfies, and the places of their variables."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The context of a node: the place of each variable, and the variables that it can see."""

    compilation: Compilation
    names: dict[Name, int]
    hidden: bool
    """Whether variables without a place yet are invisible outside."""
    given: Names
    """Variables that expressions see in addition to those of their pattern: inside EXISTS those around it."""
    sure: Names
    """Those of `given` that are certainly bound."""
    lift: Lift
    inside: tuple[str, ...]
    """Clauses around it because of which a solution of the whole does not contain one of this pattern, outermost first.
    """

    @property
    def linear(self) -> bool:
        """Whether each solution of the whole contains one of this pattern, and disappears with it."""
        return not self.inside

    def into(self, clause: str) -> tuple[str, ...]:
        """Return `inside` for the content of a clause."""
        return (*self.inside, clause)

    def place(self, slot: Slot | None) -> int:
        """Return the place of a slot."""
        if not isinstance(slot, Variable | Blank):
            return self.compilation.layout.place(slot)
        known = self.names.get(slot)
        if known is None:
            known = self.names[slot] = self.compilation.layout.place(Hidden() if self.hidden else slot)
        return known

    def needed(self, slot: Slot) -> int:
        """Return the place of a slot, which must be bound if it is a parameter."""
        place = self.place(slot)
        if isinstance(slot, Parameter):
            self.compilation.closed.append(place)
        return place

    def places(self, names: Iterable[Name]) -> dict[Name, int]:
        """Return the places of variables."""
        return {name: self.place(name) for name in names}

    def operator(self, node: Node) -> Operator:
        """Return the operator of a pattern in this scope. Raises `UnsupportedConstruct`."""
        if isinstance(node, Triple):
            return self._triple(node)
        if isinstance(node, Join):
            return self._join(node, ())
        if isinstance(node, Filter):
            return self._filter(node)
        if isinstance(node, LeftJoin):
            return self._optional(node)
        if isinstance(node, Union):
            scope = replace(self, inside=self.into("UNION"))
            return UnionOperator(self.compilation.graph, [scope.operator(branch) for branch in node.branches])
        if isinstance(node, Minus):
            return self._minus(node)
        if isinstance(node, Extend):
            return self._extend(node)
        if isinstance(node, Values):
            self._refuse_given(node.variables)
            return self._values(node)
        if isinstance(node, GraphPattern):
            return self._graph(node)
        if isinstance(node, Project):
            return self._project(node)
        if isinstance(node, Distinct):
            inner = replace(self, inside=self.into("DISTINCT")).operator(node.pattern)
            return DistinctOperator(inner, [self.place(name) for name in possible(node)])
        if isinstance(node, Group):
            return self._group(node)
        raise UnsupportedConstruct(type(node).__name__)

    def _values(self, node: Values) -> Operator:
        graph = self.compilation.graph
        places = [self.place(variable) for variable in node.variables]
        if len(node.rows) <= _FEW_ROWS:
            return InlineData(
                graph, places, [[None if cell is None else self.needed(cell) for cell in row] for row in node.rows]
            )
        rows = [[self.needed(c) if isinstance(c, Parameter) else _cell(c) for c in row] for row in node.rows]
        table = ValuesIndex(graph, places, rows)
        self.compilation.tables.append(table)
        return table

    def _triple(self, node: Triple) -> Operator:
        graphs = self.compilation.default_graphs if node.graph is None else (node.graph,)
        if len(graphs) == 1:
            return self._scan(node, graphs[0])
        if len(self.compilation.triggers) + len(graphs) > _MAX_MERGED_SCANS:
            raise UnsupportedConstruct("several default graphs with many patterns")
        # As in Oxigraph, a triple that is in several graphs counts once for each. The standard counts it once (13.2.1).
        scope = replace(self, inside=self.into("FROM"))
        return UnionOperator(self.compilation.graph, [scope._scan(node, graph) for graph in graphs])

    def _scan(self, node: Triple, graph: Slot | None) -> Scan:
        compilation = self.compilation
        slots = (node.subject, node.predicate, node.object, graph)
        if any(isinstance(slot, ox.Triple) for slot in slots):
            raise UnsupportedConstruct("a triple term")
        s, p, o, g = (self.place(slot) for slot in slots)
        self.needed(node.predicate)  # an open predicate would match all triples of a subject
        fixes = tuple(self._fixes(slot) for slot in slots)
        every = not any(isinstance(x, Variable | Blank) and f is None for x, f in zip(slots, fixes, strict=True))
        scan = Scan(compilation.graph, (s, p, o, g))
        exact = self.linear and every
        trigger = Trigger(scan.places, fixes, exact, frozenset(), False, (), scan, node, self.inside)  # type: ignore[arg-type]
        compilation.triggers.append(trigger)
        return scan

    def _fixes(self, slot: Slot | None) -> int | None:
        """Return the place that a quad determines at this slot."""
        if isinstance(slot, Variable | Blank):
            return self.lift(self.place(slot))
        if not isinstance(slot, Parameter):
            return None
        place = self.place(slot)
        if not self.linear:
            self.compilation.closed.append(place)
            return None
        self.compilation.matched.add(place)
        return place

    # Joins

    def _join(self, node: Join, conditions: Sequence[Expression]) -> Operator:
        parts: list[tuple[Operator, frozenset[int]]] = []
        for number, part in enumerate(node.parts):
            others = frozenset[Name]().union(*(possible(p) for i, p in enumerate(node.parts) if i != number))
            operator = self.operator(part) if isinstance(part, Triple) else self._merged(part, others)
            parts.append((operator, frozenset(self.place(name) for name in certain(part))))
        within = possible(node)
        tests = [
            (self._test(c, node), frozenset(self.place(name) for name in references(c) & within)) for c in conditions
        ]
        if len(parts) == 1 and not tests:
            return parts[0][0]
        return JoinOperator(self.compilation.graph, parts, tests)

    def _merged(self, node: Node, others: Names, lift: Lift = same_place, clause: str = "") -> Operator:
        """Compile a part of a join, with copies of variables that it may leave unbound and other parts may bind.

        VALUES needs no copies: a row with UNDEF is compatible with any binding, made before or after.
        """
        if isinstance(node, Values):
            return self.operator(node)
        uncertain = (possible(node) - certain(node)) & (others | self.given) - self.sure
        doubtful = self.given - self.sure
        if not doubtful.isdisjoint(uncertain | (mentioned(node) - possible(node)) & others):
            raise UnsupportedConstruct("EXISTS over a variable that may be unbound")
        names = self.places(possible(node) | self.given)
        copies = [(names[name], self.compilation.layout.place(Hidden())) for name in uncertain]
        names.update({name: copy for name, (_, copy) in zip(uncertain, copies, strict=True)})
        back = {copy: place for place, copy in copies}
        scope = replace(
            self,
            names=names,
            lift=lambda place: _then(lift(back.get(place, place)), self.lift),
            inside=self.into(clause) if clause else self.inside,
        )
        operator = scope.operator(node)
        return Merge(operator, copies) if copies else operator

    def _optional(self, node: LeftJoin) -> Operator:
        left = self.operator(node.left)
        preserved = set(self.places(certain(node.left)).values())
        before = len(self.compilation.triggers)
        right = self._merged(
            node.right, possible(node.left), lambda place: place if place in preserved else None, "OPTIONAL"
        )
        if self.linear and _is_triples(node.right):
            self._add_reach(right, self.places(certain(node.left) & certain(node.right)).values(), before)
        if node.condition is None:
            return Optional(left, right, None)
        # The condition of OPTIONAL sees the variables of both sides (18.2.2.6).
        both = Join((node.left, node.right))
        return Optional(left, right, self.condition(node.condition, both, certain(node.left)))

    def _add_reach(self, right: Operator, places: Iterable[int], first: int) -> None:
        """Add the way to the left side to the triggers of an OPTIONAL that do not fix a variable of it.

        `places`: those of the variables that both sides bind. `first`: index of its first trigger.
        """
        shared = tuple((place, whole) for place in places if (whole := self.lift(place)) is not None)
        triggers = self.compilation.triggers
        for index in range(first, len(triggers)):
            if shared and not any(place is not None for place in triggers[index].fixes):
                triggers[index] = replace(triggers[index], reach=OptionalRightSide(right, shared))

    def _minus(self, node: Minus) -> Operator:
        if self.given:
            raise UnsupportedConstruct("MINUS inside EXISTS")
        left = self.operator(node.left)
        shared = possible(node.left) & possible(node.right)
        # Without shared variables MINUS removes nothing (18.5).
        if not shared:
            return left
        names = self.places(shared)
        same = []
        overlap = []
        for name, place in list(names.items()):
            if name in certain(node.right):
                overlap.append((place, place))
            else:
                # The right side may leave the variable unbound, and is then compatible with any value (18.3). So it
                # gets a copy, which is compared only if it is bound.
                names[name] = self.compilation.layout.place(Hidden())
                same.append((place, names[name]))
                overlap.append((place, names[name]))
        back = {names[name]: self.place(name) for name in shared & certain(node.left)}
        scope = replace(
            self,
            names=names,
            hidden=True,
            lift=lambda place: _then(back.get(place), self.lift),
            inside=self.into("MINUS"),
        )
        right = scope.operator(node.right)
        always = bool(shared & certain(node.left) & certain(node.right))
        return MinusOperator(left, right, None if always else overlap, same)

    # Filters and expressions

    def _filter(self, node: Filter) -> Operator:
        pairs: list[tuple[int, int]] = []
        conditions: list[Expression] = []
        for condition in node.conditions:
            equal = equality(condition, certain(node.pattern))
            if equal is not None:
                pairs.append((self.place(equal[0]), self.needed(equal[1])))
            if equal is None or not is_iri(equal[1]):
                conditions.append(condition)
        if isinstance(node.pattern, Join):
            operator = self._join(node.pattern, conditions)
        else:
            operator = self.operator(node.pattern)
            if conditions:
                operator = Where(operator, [self._test(c, node.pattern) for c in conditions])
        return Fixed(self.compilation.graph, operator, pairs) if pairs else operator

    def _test(self, expression: Expression, pattern: Node) -> Condition:
        """Compile a condition of a filter."""
        condition, names = self.condition(expression, pattern), references(expression)
        if not self.linear or not names or has_exists(expression) or not names <= possible(pattern):
            return condition
        guard = FilterGuard(condition)
        self.compilation.guards.append((guard, expression, frozenset(map(self.place, names))))
        return guard

    def condition(self, condition: Expression, pattern: Node, lifted: Names | None = None) -> Condition:
        """Compile a condition on the solutions of a pattern."""
        return compile_condition(condition, _Sight(self, pattern, certain(pattern) if lifted is None else lifted))

    def value(self, expression: Expression, pattern: Node) -> Value:
        """Compile an expression to a function that returns the id of its value for a solution of a pattern."""
        if isinstance(expression, Reference | Constant):
            slot = expression.variable if isinstance(expression, Reference) else expression.term
            place = _Sight(self, pattern, certain(pattern)).place(slot)
            return _nothing if place is None else lambda frame: frame[place]
        value = compile_expression(expression, _Sight(self, pattern, certain(pattern)))
        intern = self.compilation.graph.dictionary.intern

        def evaluate(frame: Frame) -> int | None:
            term = value(frame)
            return None if term is None else intern(term)

        return evaluate

    def _extend(self, node: Extend) -> Operator:
        self._refuse_given((node.variable,))
        operator = self.operator(node.pattern)
        return Bind(operator, self.place(node.variable), self.value(node.expression, node.pattern))

    def exists(self, pattern: Node, around: Names, sure: Names, lifted: Names) -> Condition:
        """Compile the condition that a pattern has solutions. Variables `around` it keep their outer values in it."""
        given = self.given | around
        if not (mentioned(pattern) - given).isdisjoint(self.compilation.bound):
            # The group of EXISTS does not bind the variable, so it is free here. Oxigraph lets some of these variables
            # in.
            raise UnsupportedConstruct("EXISTS over a variable of another group")
        names = self.places(given)
        preserved = {names[name] for name in lifted | self.sure}
        scope = replace(
            self,
            names=names,
            hidden=True,
            given=given,
            sure=self.sure | sure,
            lift=lambda place: _then(place if place in preserved else None, self.lift),
            inside=self.into("EXISTS"),
        )
        return holds(scope.operator(normal(pattern)))

    # Graphs, sub-queries

    def _graph(self, node: GraphPattern) -> Operator:
        if node.pattern != Join(()):
            raise UnsupportedConstruct("GRAPH around a pattern that may match no triple of the graph")
        self.compilation.graph_names = True
        return InGraph(self.compilation.graph, self.needed(node.name), self.operator(node.pattern))

    def _project(self, node: Project) -> Operator:
        names = self.places(node.variables)
        return self._inner(names, certain(node)).operator(node.pattern)

    def _group(self, node: Group) -> Operator:
        keys = self.places(node.keys)
        inner = self._inner(dict(keys), certain(node))
        operator = inner.operator(node.pattern)
        aggregates = [
            (
                self.place(variable),
                partial(accumulator, aggregate, self.compilation.graph.budget),
                inner.accumulated(aggregate, node.pattern),
            )
            for variable, aggregate in node.aggregates
        ]
        return Grouped(self.compilation.graph, operator, list(keys.values()), aggregates)

    def accumulated(self, aggregate: Aggregate, pattern: Node) -> Callable[[Frame], Hashable | None]:
        """Compile the value that an aggregate accumulates for each solution of the pattern."""
        if aggregate.expression is not None and has_exists(aggregate.expression):
            raise UnsupportedConstruct("EXISTS over groups")
        if aggregate.expression is None:  # COUNT(*)
            if not aggregate.distinct:
                return lambda frame: True
            sight = _Sight(self, pattern, certain(pattern))
            values = [compile_expression(Reference(name), sight) for name in possible(pattern)]  # type: ignore[arg-type]
            return lambda frame: tuple([value(frame) for value in values])
        return compile_expression(aggregate.expression, _Sight(self, pattern, certain(pattern)))

    def _inner(self, names: dict[Name, int], lifted: Names) -> Scope:
        """Return the scope of a sub-query, which exposes some variables and hides the others."""
        if self.given:
            raise UnsupportedConstruct("a sub-query inside EXISTS")
        preserved = {names[name] for name in lifted}
        return replace(
            self,
            names=names,
            hidden=True,
            lift=lambda place: _then(place if place in preserved else None, self.lift),
            inside=self.into("SELECT"),
        )

    def _refuse_given(self, variables: Iterable[Name]) -> None:
        if not self.given.isdisjoint(variables):
            raise UnsupportedConstruct("a variable that is bound outside and inside EXISTS")


@dataclass(frozen=True, slots=True)
class _Sight:
    """The variables visible to an expression: those of its pattern, and inside EXISTS those around it."""

    scope: Scope
    pattern: Node
    lifted: Names
    """Variables by which a change inside an EXISTS of the expression can be traced to solutions."""

    @property
    def dictionary(self) -> Dictionary:
        return self.scope.compilation.graph.dictionary

    @property
    def base_iri(self) -> str:
        return self.scope.compilation.base_iri

    @property
    def evaluation_time(self) -> Now:
        return self.scope.compilation.evaluation_time

    @property
    def budget(self) -> StepBudget:
        return self.scope.compilation.graph.budget

    def place(self, slot: Slot) -> int | None:
        visible = not isinstance(slot, Variable | Blank) or slot in possible(self.pattern) or slot in self.scope.given
        return self.scope.needed(slot) if visible else None

    def exists(self, pattern: Node) -> Condition:
        return self.scope.exists(pattern, possible(self.pattern), certain(self.pattern), self.lifted)


def equality(condition: Expression, bound: Names) -> tuple[Variable, Term | Parameter] | None:
    """Return variable and constant of `?variable = constant` or `sameTerm`, if the variable is bound."""
    if not isinstance(condition, Call) or condition.name not in ("=", "SAMETERM"):
        return None
    for one, other in (condition.arguments, condition.arguments[::-1]):
        if isinstance(one, Reference) and isinstance(other, Constant) and one.variable in bound:
            return one.variable, other.term  # type: ignore[return-value]
    return None


def is_iri(constant: Slot) -> bool:
    """Return whether a constant is an IRI, in all texts of the template."""
    return isinstance(constant.term if isinstance(constant, Parameter) else constant, ox.NamedNode)


def _is_triples(node: Node) -> bool:
    """Return whether a pattern consists of triple patterns only, so that each solution contains a quad of each."""
    return isinstance(node, Triple) or (isinstance(node, Join) and all(isinstance(part, Triple) for part in node.parts))


def _cell(term: Slot | None) -> Term | None:
    """Return a cell of VALUES in value form; None: UNDEF."""
    return None if term is None else canonical(term)  # type: ignore[arg-type]


def _then(place: int | None, lift: Lift) -> int | None:
    return None if place is None else lift(place)


def _nothing(frame: Frame) -> int | None:
    return None
