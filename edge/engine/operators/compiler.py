"""Compiler from the algebra in normal form to a plan with its triggers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from edge.engine.operators.join_operators import FilterGuard
from edge.engine.operators.operators import Scan
from edge.engine.operators.plan import Plan, Trigger
from edge.engine.operators.scope import Compilation, Scope, equality, is_iri, same_place
from edge.engine.operators.variables import Name, binds, certain, expressions, possible, references, usage
from edge.protocol.results import Term
from edge.sparql.algebra import Expression, Extend, Filter, LeftJoin, Minus, Node, Parameter, Variable


class Compiler(Compilation):
    """Compiles the patterns of one request, which share a layout."""

    def compile(self, node: Node) -> Plan:
        """Compile a pattern in normal form. Raises `UnsupportedConstruct`."""
        self.triggers, self.graph_names, self.matched = [], False, set()
        self.tables, self.closed, self.guards = [], [], []
        self.bound = binds(node)
        scope = self.scope()
        sure = frozenset(scope.place(name) for name in certain(node))
        operator = scope.operator(node)
        fixed = tuple((scope.place(variable), scope.place(constant)) for variable, constant in _fixed(node))
        triggers = [_at_top(trigger, sure | self.matched) for trigger in self.triggers]
        guards = self._assign_guards(triggers, node)
        # Most triggers have no guards. To walk the pattern for each of its triggers would take quadratic time.
        plain = _uses(node, scope, ())
        finished = tuple(
            _with_own(trigger, _uses(node, scope, [each for _, each in own]) if own else plain, own)
            for trigger in triggers
            for own in (guards.get(trigger.scan, ()),)
        )
        self._prepare_tables(finished)
        return Plan(operator, finished, fixed, self._shown(node), self.graph_names)

    def _assign_guards(
        self, triggers: Sequence[Trigger], node: Node
    ) -> dict[Scan, list[tuple[FilterGuard, Expression]]]:
        """Assign each condition that depends on one pattern only to this pattern."""
        found: dict[Scan, list[tuple[FilterGuard, Expression]]] = {}
        every = list(expressions(node))
        for guard, expression, places in self.guards:
            matching = [trigger for trigger in triggers if places <= _determined(trigger)]
            # An equal condition elsewhere may be about another variable of the same name.
            if len(matching) == 1 and every.count(expression) == 1:
                guard.scan = matching[0].scan
                found.setdefault(guard.scan, []).append((guard, expression))
        return found

    def _prepare_tables(self, triggers: Sequence[Trigger]) -> None:
        """Index long VALUES by the columns that other patterns bind: none, all, and those of a changed quad."""
        for table in self.tables:
            # A row of one table can restrict another, so their columns count as bound, too.
            others = [other.places for other in self.tables if other is not table]
            joined = frozenset[int]().union(*(trigger.places for trigger in triggers), *others)
            table.prepare([(), joined, *(trigger.fixes for trigger in triggers)])

    def scope(self) -> Scope:
        """Return the scope of a whole pattern, in which every variable has its own place."""
        return Scope(self, {}, hidden=False, given=frozenset(), sure=frozenset(), lift=same_place, inside=())

    def _shown(self, node: Node) -> dict[int, int]:
        closed = list(self.closed)
        shown = {place: place for place in self.matched}
        for variable, constant in _fixed(node):
            place = self.layout.place(constant)
            if isinstance(constant, Parameter) and is_iri(constant) and place not in shown:
                closed.remove(place)
                shown[place] = self.layout.place(variable)
        return {place: where for place, where in shown.items() if place not in closed}


def _at_top(trigger: Trigger, sure: Set[int]) -> Trigger:
    """Adapt a trigger to the whole pattern: only a place that every solution binds can be fixed in advance."""
    s, p, o, g = (place if place in sure else None for place in trigger.fixes)
    fixes = (s, p, o, g)
    reach = trigger.reach
    if reach is not None:
        shared = tuple(pair for pair in reach.shared if pair[1] in sure)
        reach = replace(reach, shared=shared) if shared else None
    return replace(trigger, fixes=fixes, exact=trigger.exact and fixes == trigger.fixes, reach=reach)


def _uses(node: Node, scope: Scope, without: Sequence[Expression]) -> tuple[set[int], set[int]]:
    """Return the places of variables that occur in a single triple pattern, and of those that expressions read.

    `without`: expressions that do not count.
    """
    used = usage(node, without)
    own = {scope.place(name) for name in possible(node) if used[name] == 1}
    others = (references(expression) for expression in expressions(node) if expression not in without)
    read = set(map(scope.place, frozenset[Name]().union(*others) & possible(node)))
    return own, read


def _with_own(
    trigger: Trigger, uses: tuple[set[int], set[int]], guards: Sequence[tuple[FilterGuard, Expression]]
) -> Trigger:
    """Return a trigger with its own places and its guards. `uses`: those of the pattern without the guards."""
    own, read = uses
    return replace(
        trigger,
        own=frozenset(own.intersection(trigger.fixes)),
        steady=read.isdisjoint(trigger.fixes),
        guards=tuple(guard.condition for guard, _ in guards),
    )


def _determined(trigger: Trigger) -> frozenset[int]:
    """Return the places of a pattern's variables that have the value of the quad in each solution that contains it."""
    if not trigger.exact:
        return frozenset()
    return frozenset(place for place, fix in zip(trigger.places, trigger.fixes, strict=True) if place == fix)


def _fixed(node: Node) -> Iterator[tuple[Variable, Term | Parameter]]:
    """Yield the variables that filters on the whole pattern require to equal constants."""
    if isinstance(node, Filter):
        equal = (equality(condition, certain(node.pattern)) for condition in node.conditions)
        yield from (pair for pair in equal if pair is not None)
    if isinstance(node, Filter | Extend):
        yield from _fixed(node.pattern)
    elif isinstance(node, LeftJoin | Minus):
        yield from _fixed(node.left)
