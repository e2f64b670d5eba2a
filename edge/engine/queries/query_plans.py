"""Compilation of subscribed queries: one plan for all texts with the same text template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyoxigraph as ox

from edge.engine.operators.expression import UnsupportedConstruct
from edge.engine.queries.evaluator import Evaluator, compile_evaluator
from edge.engine.queries.incremental_plan import QueryPlan, compile_query
from edge.engine.queries.operator_dataset import default_graphs, without_graph_names
from edge.engine.queries.oxigraph_queries import QueryRules, check_query, graphs, visible
from edge.engine.requests import STORE_DATASET, Dataset, QueryRequest
from edge.engine.sparql.oxigraph_text import edited
from edge.engine.sparql.parser import parse_query
from edge.engine.sparql.plan_cache import Compiled, PlanCache
from edge.engine.sparql.repeated_patterns import LARGE, repeated
from edge.engine.sparql.terms_text import Names
from edge.engine.store.graph import LiveGraph
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term
from edge.protocol.syntax import tokenize
from edge.sparql.algebra import Query
from edge.sparql.cursor import Parameters
from edge.sparql.tokens import has_word, read_prologue

_TEMPLATES = 512
"""Number of text templates in the plan cache."""
_PARTITIONS = 64
"""Plans for one text template. Queries with equal constants need another plan than those with different ones."""


@dataclass(frozen=True, slots=True)
class PlanMember:
    """A query with incremental evaluation: a plan and its constants, in the order of the layout's parameters."""

    plan: QueryPlan
    constants: Sequence[Term]
    request: QueryRequest = field(compare=False)


@dataclass(frozen=True, slots=True)
class Singular:
    """A query that the engine re-evaluates after each change of its dependencies."""

    request: QueryRequest
    reason: str = field(compare=False)
    """The part of the query that has no delta rule."""


class QueryPlans:
    """Plan cache of all subscribed queries."""

    def __init__(self, graph: LiveGraph, rules: QueryRules) -> None:
        self._graph = graph
        self._rules = rules
        self._templates: PlanCache[Dataset, _TextTemplate] = PlanCache(self._compile, _TEMPLATES)

    def find(self, request: QueryRequest) -> PlanMember | Singular:
        """Decide how the engine evaluates a query. Raises `ParsingFailed`, `Forbidden`."""
        template, constants = self._templates.get(request.sparql, request.dataset)
        if isinstance(template.plan, str):
            return Singular(request, template.plan)
        plan = template.for_constants(constants)
        return PlanMember(plan, [constants[parameter.index] for parameter, _ in plan.layout.parameters], request)

    def evaluator(self, query: Singular) -> Evaluator:
        """Return the evaluator of a query without an incremental plan."""
        return compile_evaluator(query.request, self._rules)

    def _compile(self, text: str, dataset: Dataset | None, parameters: Parameters) -> Compiled[_TextTemplate]:
        rules = self._rules
        tokens = check_query(text, rules)
        if len(tokens) >= LARGE and (edits := list(repeated(tokens))):
            text = edited(text, edits)
            tokens = tokenize(text)
            parameters = {}  # with other constants, other patterns may repeat
        if dataset is not None:
            graphs(dataset)  # only for its errors
        names = Names(read_prologue(text, tokens, 0)[0], rules.settings.base_iri)
        try:
            if not rules.incremental:
                raise UnsupportedConstruct('engine.booster = "re-evaluate"')
            if dataset not in (None, STORE_DATASET) or has_word(tokens, "FROM"):
                parameters = without_graph_names(parameters, tokens)
            query = parse_query(text, tokens, rules.settings.base_iri, parameters)
            template = _TextTemplate(self._graph, rules.settings.base_iri, query, self._default_graphs(query, dataset))
        except UnsupportedConstruct as reason:
            return Compiled(_TextTemplate(self._graph, rules.settings.base_iri, None, (), str(reason)), (), names)
        except ParsingFailed as reason:  # Oxigraph accepts it, but our grammar does not
            return Compiled(
                _TextTemplate(self._graph, rules.settings.base_iri, None, (), reason.description), (), names
            )
        assert isinstance(template.plan, QueryPlan)  # noqa: S101
        return Compiled(template, [parameter for parameter, _ in template.plan.layout.parameters], names)

    def _default_graphs(self, query: Query, dataset: Dataset | None) -> Sequence[ox.NamedNode | None]:
        """Return the graphs of the query's default graph (see `Compiler`). Raises `UnsupportedConstruct`."""
        if self._rules.settings.default_graph_as_union:
            raise UnsupportedConstruct("the union of all graphs as the default graph")
        declared, dataset = _declared(query), dataset or STORE_DATASET
        if dataset.readable is not None:
            dataset = visible(dataset, declared)
        return default_graphs(dataset if dataset.given else declared, query.pattern)


def _declared(query: Query) -> Dataset:
    """Return the dataset of FROM and FROM NAMED."""
    if query.default_graphs is None and query.named_graphs is None:
        return STORE_DATASET
    default, named = query.default_graphs or (), query.named_graphs or ()
    return Dataset(tuple(graph.value for graph in default), tuple(graph.value for graph in named))


class _TextTemplate:
    """The plans of one text template."""

    def __init__(
        self,
        graph: LiveGraph,
        base_iri: str,
        query: Query | None,
        default_graphs: Sequence[ox.NamedNode | None],
        reason: str = "",
    ) -> None:
        self._graph = graph
        self._base_iri = base_iri
        self._query = query
        self._default_graphs = default_graphs
        self._partitions: dict[tuple[int, ...], QueryPlan] = {}
        self.plan: QueryPlan | str = reason if query is None else self._compiled(())
        """The plan if all constants differ; a string is the reason for a missing plan."""

    def for_constants(self, constants: Sequence[Term]) -> QueryPlan:
        """Return the plan for these constants. Equal constants are one parameter of the plan."""
        first: dict[Term, int] = {}
        partition = tuple([first.setdefault(term, index) for index, term in enumerate(constants)])
        if len(first) == len(constants):  # the usual case needs no second compilation
            assert isinstance(self.plan, QueryPlan)  # noqa: S101
            return self.plan
        plan = self._partitions.get(partition)
        if plan is None:
            if len(self._partitions) >= _PARTITIONS:
                self._partitions.clear()
            plan = self._partitions[partition] = self._compiled(partition)
        return plan

    def _compiled(self, same: Sequence[int]) -> QueryPlan:
        assert self._query is not None  # noqa: S101
        base_iri = self._query.base or self._base_iri
        return compile_query(self._query, self._graph, base_iri, self._default_graphs, same)
