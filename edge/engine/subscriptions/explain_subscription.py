"""EXPLAIN: the cost of a subscription and its reasons, for authors of queries and for operators.

Nothing is evaluated: the explanation follows from the plan of the engine and from the current live graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from edge.engine.operators.stages import Row
from edge.engine.operators.variables import nodes
from edge.engine.queries.evaluator import Evaluator, World
from edge.engine.queries.oxigraph_queries import prepare_query
from edge.engine.queries.query_plans import Singular
from edge.engine.queries.subscription_index import Dependencies, Key, Watch
from edge.engine.requests import QueryRequest
from edge.engine.sparql.serializer import Serializer
from edge.engine.sparql.terms_text import Names, OxigraphDeclarations
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.subscriptions import explain_texts as words
from edge.engine.subscriptions.explanation import (
    Effect,
    Evaluations,
    Explanation,
    Many,
    PatternExplained,
    Sharing,
    Step,
)
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.plan_group import GroupTrigger, PlanGroup
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu, Usage
from edge.protocol.results import Term
from edge.protocol.syntax import tokenize
from edge.sparql.algebra import (
    Aggregate,
    Blank,
    Distinct,
    Extend,
    Filter,
    Group,
    Node,
    OrderBy,
    Parameter,
    Project,
    Query,
    Reference,
    Slot,
    Triple,
    Values,
    Variable,
)
from edge.sparql.tokens import read_prologue


def explain_member(
    request: QueryRequest, plan_group: PlanGroup[IncrementalSpu], open_: Row, world: World
) -> Explanation:
    """Explain a query with incremental evaluation: the member of a plan group with these open constants."""
    declared, readable = _declared(request, world), request.dataset.readable
    return _Member(plan_group, open_, world.graph, declared, readable).explain()


def explain_singular(
    found: Singular,
    evaluator: Evaluator,
    depends: Dependencies,
    world: World,
    spu: ReevaluatedSpu | None,
    seconds: float,
) -> Explanation:
    """Explain a re-evaluated query. `spu`: its SPU if it is subscribed. `seconds`: total time of all evaluations."""
    write = Serializer(_declared(found.request, world), lambda parameter: parameter.term)
    reason, advice = words.why_reevaluated(found.reason)
    more = [words.GRAPH_NAMES_REEVALUATED] if depends.graph_names else []
    if evaluator.moving:
        more.append(words.FOLLOWS_RESOURCES)
    # Counts include readable graphs only: a client must not learn the number of triples in others.
    subscribers, readable = 0 if spu is None else len(spu.subscribers), found.request.dataset.readable
    return Explanation(
        prepare_query(found.request.sparql, world.rules).form,
        "re-evaluated",
        words.RE_EVALUATED,
        reason,
        (tuple(_watched(watch, write, world.graph, readable) for watch in depends.watches),),
        (),
        words.KEEPS_RESULT,
        None if spu is None else spu.kept,
        Sharing(subscribers, min(subscribers, 1), (), (), words.sharing(shared=False, each=())),
        None if spu is None else _evaluations(spu.usage, seconds),
        (*advice, *more),
    )


def _evaluations(usage: Usage, seconds: float) -> Evaluations:
    share = min(1.0, usage.seconds / seconds) if seconds else 0.0
    return Evaluations(usage.evaluations, usage.seconds, share, usage.merged, usage.delay)


def _declared(request: QueryRequest, world: World) -> OxigraphDeclarations:
    """Return the prefixes of a query."""
    text = request.sparql
    return Names(read_prologue(text, tokenize(text), 0)[0], world.rules.settings.base_iri).declared()


def _watched(watch: Watch, write: Serializer, graph: LiveGraph, readable: frozenset[str] | None) -> PatternExplained:
    """Explain a watched pattern of a re-evaluated query."""
    slots = [
        Variable(name) if term is None else term
        for name, term in (("subject", watch.subject), ("predicate", watch.predicate), ("object", watch.object))
    ]
    pattern = write.quad([*slots, watch.graph])
    if watch.graph is None and not watch.default_graph:
        pattern += " in any graph"
    matches = _matches(graph, watch.key(graph), readable, named=False)
    return PatternExplained(pattern, "", pattern, matches, "everything", (), "", "one", "")


class _Member:
    def __init__(
        self,
        plan_group: PlanGroup[IncrementalSpu],
        open_: Row,
        graph: LiveGraph,
        declared: OxigraphDeclarations,
        readable: frozenset[str] | None,
    ) -> None:
        self._plan_group = plan_group
        self._plan = plan_group.plan
        self._graph = graph
        self._readable = readable
        self._written = {node for node in nodes(self._plan.query.pattern) if isinstance(node, Triple)}
        self._spu = plan_group.members.get(open_)
        self._keys = list(plan_group.keys(open_))
        frame = plan_group.frame(0, open_)
        layout, terms = self._plan.layout, graph.dictionary.terms

        def constant(parameter: Parameter) -> Term:
            return terms[frame[layout.place(parameter)]]  # type: ignore[index]

        self._write = Serializer(declared, constant)

    def explain(self) -> Explanation:
        plan = self._plan
        parts = tuple(
            tuple(self._pattern(key, trigger) for key, trigger in self._keys if trigger.number == number)
            for number in range(len(plan.alternatives))
        )
        steps = tuple(_steps(plan.query, self._write))
        kept = [step.keeps for step in steps if step.keeps]
        return Explanation(
            plan.query.form,
            "incremental",
            words.summary({pattern.effect for part in parts for pattern in part}),
            "",
            parts,
            steps,
            words.memory(kept),
            None if self._spu is None else self._spu.kept,
            self._sharing([pattern for part in parts for pattern in part]),
            None,
            tuple(self._advice()),
        )

    def _pattern(self, key: Key, entry: GroupTrigger[IncrementalSpu]) -> PatternExplained:
        trigger = entry.trigger
        node = trigger.pattern
        slots: list[Slot | None] = [node.subject, node.predicate, node.object, node.graph]
        terms = self._graph.dictionary.terms
        watched = [
            slot if term_id is None or (position == 3 and term_id == DEFAULT_GRAPH) else terms[term_id]
            for position, (slot, term_id) in enumerate(zip(slots, key, strict=True))
        ]
        names = (s for s, fix in zip(slots, trigger.fixes, strict=True) if fix is not None)
        known = tuple(dict.fromkeys(self._write.slot(name) for name in names if isinstance(name, Variable | Blank)))
        if not known and trigger.reach is not None:
            known = self._reached(entry, {place for _, place in trigger.reach.shared})
        effect: Effect = "restricted" if known else "everything"
        if trigger.exact:
            effect = "direct" if len(entry.plan.triggers) == 1 else "exact"
        of_path = node not in self._written and "UNION" in trigger.inside
        return PatternExplained(
            self._write.quad(slots),
            words.clause(trigger.inside, of_path=of_path),
            self._write.quad(watched),
            _matches(self._graph, key, self._readable, named=node.graph is not None),
            effect,
            known,
            words.effect(effect, known),
            _many(entry),
            words.warning(trigger.inside, of_path=of_path) if effect == "everything" else "",
        )

    def _reached(self, entry: GroupTrigger[IncrementalSpu], places: Set[int]) -> tuple[str, ...]:
        """Return the variables at these places of the plan."""
        found: dict[str, None] = {}
        for trigger in entry.plan.triggers:
            node = trigger.pattern
            for slot, place in zip(
                (node.subject, node.predicate, node.object, node.graph), trigger.places, strict=True
            ):
                if place in places and isinstance(slot, Variable | Blank):
                    found[self._write.slot(slot)] = None
        return tuple(found)

    def _sharing(self, patterns: Sequence[PatternExplained]) -> Sharing:
        write = self._write
        open_: list[str] = []
        closed: list[str] = []
        for parameter, place in self._plan.layout.parameters:
            (open_ if place in self._plan_group.open else closed).append(write.slot(parameter))
        subscribers = 0 if self._spu is None else len(self._spu.subscribers)
        each = list(dict.fromkeys(pattern.pattern for pattern in patterns if pattern.many == "each"))
        text = words.sharing(shared=bool(open_), each=each)
        return Sharing(subscribers, len(self._plan_group.members), tuple(open_), tuple(closed), text)

    def _advice(self) -> Iterator[str]:
        plan = self._plan
        if any(isinstance(node, OrderBy) for node in nodes(plan.query.pattern)):
            yield words.ORDER_BY
        if plan.graph_names:
            yield words.GRAPH_NAMES
        if not any(isinstance(node, Values | Extend) for node in nodes(plan.query.pattern)):
            for number in range(len(plan.alternatives)):
                groups = self._unconnected(number)
                if len(groups) > 1:
                    yield words.unconnected(groups)

    def _unconnected(self, number: int) -> list[str]:
        """Return the mandatory patterns, in groups that share no variable."""
        groups: list[tuple[set[int], list[str]]] = []
        for key, entry in self._keys:
            if entry.number != number:
                continue
            trigger = entry.trigger
            if "SELECT" in trigger.inside or "UNION" in trigger.inside:
                return []  # they can connect the other patterns
            free = {place for place, term_id in zip(trigger.places, key, strict=True) if term_id is None}
            if not trigger.exact or not free:
                continue
            near = [group for group in groups if group[0] & free]
            groups = [group for group in groups if group not in near]
            node = trigger.pattern
            written = self._write.quad([node.subject, node.predicate, node.object, node.graph])
            groups.append(
                (free.union(*(places for places, _ in near)), [*(text for _, texts in near for text in texts), written])
            )
        return [" . ".join(texts) for _, texts in groups]


def _many(entry: GroupTrigger[IncrementalSpu]) -> Many:
    if entry.complete:
        return "one"
    return "together" if entry.connected and (entry.simple or not entry.trigger.exact) else "each"


def _matches(graph: LiveGraph, key: Key, readable: frozenset[str] | None, *, named: bool) -> int:
    """Estimate the matching quads in `readable` graphs (None: all). `named`: an open graph is never the default one."""
    s, p, o, g = key
    names = [g] if g is not None else [name for name in graph.graphs if not (named and name == DEFAULT_GRAPH)]
    if readable is not None:
        terms = graph.dictionary.terms
        names = [
            name for name in names if ("" if name == DEFAULT_GRAPH else getattr(terms[name], "value", "")) in readable
        ]
    return sum(index.estimate(s, p, o) for name in names if (index := graph.graphs.get(name)) is not None)


def _steps(query: Query, write: Serializer) -> Iterator[Step]:
    distinct, group, having = _modifiers(query.pattern)
    if group is not None:
        keys = ", ".join(map(write.slot, group.keys))
        aggregates = [_aggregate(aggregate, write) for _, aggregate in group.aggregates]
        name = f"GROUP BY {keys}" if keys else "one group"
        concatenates = any(aggregate.name == "GROUP_CONCAT" for _, aggregate in group.aggregates)
        text = words.groups(aggregates, concatenates=concatenates, having=having)
        values = [_aggregate(a, write) for _, a in group.aggregates if a.distinct or a.name in _KEEP_VALUES]
        yield Step(name, text, words.kept_groups(bool(keys), values))
    if query.form == "ASK":
        yield Step("ASK", words.ASK, words.KEEPS_COUNT)
    elif query.form == "CONSTRUCT":
        size = len(query.template)
        yield Step("CONSTRUCT", words.construct(size), words.KEEPS_TRIPLES)
    else:
        columns = " ".join(write.slot(variable) for variable in query.variables)
        yield Step(f"SELECT {columns}", words.SELECT if distinct or group is not None else words.BAG, "")
        if distinct:
            yield Step("DISTINCT", words.DISTINCT, words.KEEPS_ROWS)


_KEEP_VALUES = frozenset({"MIN", "MAX", "SAMPLE", "GROUP_CONCAT"})
"""Aggregates with the values of a group in memory."""


def _modifiers(node: Node) -> tuple[bool, Group | None, bool]:
    """Return whether a query is DISTINCT, its GROUP BY, and whether it has a HAVING."""
    distinct = having = False
    while isinstance(node, Distinct | Project | OrderBy | Extend | Filter):
        distinct |= isinstance(node, Distinct) and not node.reduced
        having |= isinstance(node, Filter)
        node = node.pattern
    return (distinct, node, having) if isinstance(node, Group) else (distinct, None, False)


def _aggregate(aggregate: Aggregate, write: Serializer) -> str:
    expression = aggregate.expression
    of = "*" if expression is None else write.slot(expression.variable) if isinstance(expression, Reference) else "…"
    return f"{aggregate.name}({'DISTINCT ' if aggregate.distinct else ''}{of})"
