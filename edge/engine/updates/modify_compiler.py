"""Compiler for DELETE / INSERT operations: the evaluation of their WHERE, their frames and their templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.compiler import Compiler
from edge.engine.operators.expression import Now, UnsupportedConstruct, volatile
from edge.engine.operators.layout import Frame, SlotLayout
from edge.engine.operators.lookups import Lookups
from edge.engine.operators.normal_form import normal
from edge.engine.operators.variables import expressions
from edge.engine.queries.operator_dataset import default_graphs, without_graph_names
from edge.engine.queries.oxigraph_queries import QueryRules, visible
from edge.engine.requests import STORE_DATASET, Dataset
from edge.engine.sparql.parser import parse_group, parse_quads
from edge.engine.sparql.terms_text import Names
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.terms import canonical
from edge.engine.updates import forced_bindings
from edge.engine.updates.straight_line import MOST, Parts, StraightLine, TemplatePlaces
from edge.engine.updates.update_plan import Modify, OperatorWhere, OxigraphWhere, QuadTemplate
from edge.protocol.errors import ParsingFailed
from edge.sparql.algebra import Extend, Filter, Fresh, Node, Parameter, Slot, Triple, Variable
from edge.sparql.cursor import Parameters
from edge.sparql.tokens import Token


@dataclass(frozen=True, slots=True)
class Given:
    """Properties of a request, other than its text, on which a plan depends."""

    dataset: Dataset
    kinds: forced_bindings.Kinds = ()
    """Kinds of the forced bindings."""


@dataclass(frozen=True, slots=True)
class Clauses:
    """The tokens between the braces of each clause of a DELETE / INSERT operation."""

    delete: Sequence[Token] = ()
    insert: Sequence[Token] = ()
    where: Sequence[Token] | None = None
    graph: Token | None = None
    """The IRI of WITH."""
    using: Dataset = STORE_DATASET


_TERMS: Final = (ox.NamedNode, ox.BlankNode, ox.Literal, ox.Triple)


class ModifyCompiler:
    """Compiles the DELETE / INSERT operations of a request with a common prologue."""

    def __init__(
        self, graph: LiveGraph, rules: QueryRules, text: str, names: Names, given: Given, parameters: Parameters
    ) -> None:
        """`parameters`: the constants of the text that may become parameters of the plan."""
        self.open: list[Parameter] = []
        """The constants that did become parameters."""
        self._graph = graph
        self._rules = rules
        self._text = text
        self._names = names
        self._dataset = given.dataset
        self._forced = forced_bindings.parameters(given.kinds)
        self._parameters = parameters

    def compile(self, clauses: Clauses) -> Modify:
        """Compile an operation from its clauses."""
        if clauses.where is None:
            return self._built(clauses, SlotLayout(), self._parameters, None)
        layout, parameters = SlotLayout(), self._parameters
        if self._dataset_of(clauses) != STORE_DATASET:
            parameters = without_graph_names(parameters, clauses.where, [clauses.graph] if clauses.graph else ())
        try:
            where = self._native(clauses, clauses.where, layout, parameters)
        # Oxigraph refuses invalid texts, so an error here can only mean syntax that our parser does not support.
        except (UnsupportedConstruct, ParsingFailed):
            return self._general(clauses, clauses.where)
        return self._built(clauses, layout, parameters, where)

    def _native(
        self, clauses: Clauses, group: Sequence[Token], layout: SlotLayout, parameters: Parameters
    ) -> OperatorWhere:
        """Compile the WHERE clause to operators. Raises `UnsupportedConstruct` or `ParsingFailed` if it cannot."""
        node = forced_bindings.bound(parse_group(group, self._names, parameters), self._forced)
        default = self._default_graphs(clauses, node)
        if _unsteady(node):
            # The operators may evaluate an expression several times for one solution.
            raise UnsupportedConstruct("a function that gives another value each time")
        evaluation_time = Now()
        base = self._names.declared().base or self._rules.settings.base_iri
        plan = Compiler(self._graph, layout, evaluation_time, base, default).compile(normal(node))
        patterns = tuple(trigger.places for trigger in plan.triggers)
        return OperatorWhere(plan.operator, evaluation_time, patterns, plan.graph_names)

    def _dataset_of(self, clauses: Clauses) -> Dataset:
        return replace(clauses.using, readable=self._dataset.readable) if clauses.using.given else self._dataset

    def _default_graphs(self, clauses: Clauses, pattern: Node) -> Sequence[Slot | None]:
        """Return the graphs of the WHERE clause's default graph (see `Compiler`). Raises `UnsupportedConstruct`."""
        dataset = self._dataset_of(clauses)
        seen = visible(dataset)
        if clauses.graph is not None and not dataset.given:
            if dataset.readable is None:
                return (self._slot(clauses.graph, self._parameters),)
            graph = self._names.declared().iri(clauses.graph.text).value
            seen = replace(seen, default_graphs=(graph,) if graph in dataset.readable else ())
        elif self._rules.settings.default_graph_as_union and not dataset.given:
            raise UnsupportedConstruct("the union of all graphs as the default graph")
        return default_graphs(seen, pattern)

    def _general(self, clauses: Clauses, group: Sequence[Token]) -> Modify:
        """Compile an operation whose WHERE clause Oxigraph evaluates as text: its constants are not parameters."""
        dataset = self._dataset_of(clauses)
        graph = None if clauses.graph is None else self._names.declared().iri(clauses.graph.text)
        start, end = (group[0].start, group[-1].end) if group else (0, 0)
        where = OxigraphWhere(self._names.prologue, f"{{ {self._text[start:end]} }}", dataset, graph)
        # These constants stay in the text for Oxigraph, so they belong to the key of the plan.
        fixed = {clauses.graph.start} if clauses.graph is not None else set()
        fixed.update(token.start for token in group)
        parameters = {start: end for start, end in self._parameters.items() if start not in fixed}
        return self._built(clauses, SlotLayout(), parameters, where)

    def _slot(self, token: Token, parameters: Parameters) -> Slot:
        """Return an IRI, as a parameter if it may be one."""
        iri = self._names.declared().iri(token.text)
        place = parameters.get(token.start)
        return iri if place is None or place[0] != token.end else Parameter(place[1], False, iri)

    def _built(
        self,
        clauses: Clauses,
        layout: SlotLayout,
        parameters: Parameters,
        where: OperatorWhere | OxigraphWhere | None,
    ) -> Modify:
        """Assemble the operation: its templates and the initial content of its frames."""
        graph = None if clauses.graph is None else self._slot(clauses.graph, parameters)
        deleted = self._quads(clauses.delete, parameters, graph)
        inserted = self._quads(clauses.insert, parameters, graph)
        deletes, inserts = (
            tuple(QuadTemplate(itemgetter(*(at := layout.quad(triple))), at, _legal(triple)) for triple in triples)
            for triples in (deleted, inserted)
        )
        named: list[Slot | None] = [
            triple.graph for triple in (*deleted, *inserted) if not isinstance(triple.graph, Variable)
        ]
        empty = (*_empty_graphs(clauses.delete), *_empty_graphs(clauses.insert))
        named += [self._slot(token, parameters) for token in empty]
        # Each once, because the targets are checked at each execution.
        targets = tuple(dict.fromkeys(map(layout.place, named)))
        blank: Frame = [None] * len(layout.places)
        if None in layout.places:
            blank[layout.places[None]] = DEFAULT_GRAPH
        self.open += [parameter for parameter, _ in layout.parameters if parameter.index >= 0]
        terms = tuple((place, canonical(key)) for key, place in layout.places.items() if isinstance(key, _TERMS))
        places = tuple((place, parameter.index) for parameter, place in layout.parameters)
        if isinstance(where, OperatorWhere):
            constants = {place for place, _ in (*terms, *places)} | {layout.places.get(None, -1)}
            where = replace(where, lookups=Lookups.of(self._graph, where.operator, constants))
        modify = Modify(
            blank,
            terms,
            places,
            {key.name: place for key, place in layout.places.items() if isinstance(key, Variable)},
            tuple(layout.fresh),
            targets,
            deletes,
            inserts,
            where,
        )
        return replace(modify, code=_straight_line(modify))

    def _quads(self, group: Sequence[Token], parameters: Parameters, graph: Slot | None) -> Sequence[Triple]:
        return forced_bindings.bound(parse_quads(group, self._names, parameters, graph=graph), self._forced)


def _straight_line(modify: Modify) -> StraightLine | None:
    """Return generated code for an operation, or None."""
    where = modify.where
    if modify.fresh or modify.size > MOST or isinstance(where, OxigraphWhere):
        return None
    if where is not None and where.lookups is None:
        return None
    default_graph = next((place for place, term_id in enumerate(modify.blank) if term_id is not None), None)
    deletes, inserts = (
        [TemplatePlaces(places, legal) for _, places, legal in templates]
        for templates in (modify.deletes, modify.inserts)
    )
    constants = {default_graph, *(place for place, _ in (*modify.terms, *modify.parameters))}
    if not constants.issuperset(each.places[3] for each in (*deletes, *inserts)):
        return None
    lookups = where.lookups.groups if where is not None and where.lookups is not None else ()
    return StraightLine(Parts(modify.terms, modify.parameters, default_graph, deletes, inserts, lookups))


def _unsteady(node: Node) -> bool:
    """Return whether the number of evaluations of an expression matters. A BIND at the top runs once per solution."""
    while isinstance(node, Extend) or (isinstance(node, Filter) and not any(map(volatile, node.conditions))):
        node = node.pattern
    return any(map(volatile, expressions(node)))


def _empty_graphs(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the IRIs of graphs that a template names without triples."""
    for index in range(3, len(tokens)):
        if tokens[index].text == "}" and tokens[index - 1].text == "{" and tokens[index - 2].kind in ("iri", "name"):
            yield tokens[index - 2]


def _legal(triple: Triple) -> bool:
    """Return whether the quad of a template is legal for all values of its variables (RDF 1.1 Concepts, 3.1)."""
    subject, predicate, graph = (
        slot.term if isinstance(slot, Parameter) else slot for slot in (triple.subject, triple.predicate, triple.graph)
    )
    return (
        isinstance(subject, ox.NamedNode | ox.BlankNode | Fresh)
        and isinstance(predicate, ox.NamedNode)
        and isinstance(graph, ox.NamedNode | None)
    )
