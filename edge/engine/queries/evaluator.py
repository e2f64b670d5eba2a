"""Evaluators: compute the whole result of one subscribed query on the mirror, in the form that Oxigraph serializes.

The result of every query form is a table. SELECT has its own columns, ASK one row with `boolean`, CONSTRUCT the
solutions of its WHERE, and DESCRIBE one row `subject`, `predicate`, `object` for each triple.

Oxigraph does nearly all the work and releases the GIL meanwhile, so several threads can evaluate in parallel. The
engine compares the lines of two tables, and converts only the changed lines to terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyoxigraph as ox

from edge.engine.operators.layout import SlotLayout
from edge.engine.operators.stages import ConstructTemplate, DistinctStage, Row, Stage, Weights
from edge.engine.queries.cost_estimate import Outline, is_small, outline
from edge.engine.queries.dependencies import dependencies
from edge.engine.queries.forked_evaluation import ForkedEvaluator
from edge.engine.queries.incremental_plan import BOOLEAN_VARIABLES, TRIPLE_VARIABLES
from edge.engine.queries.oxigraph_queries import WHOLE_LIMIT, ListedQuery, QueryRules, evaluate, prepare_query
from edge.engine.queries.result_table import LimitedBuffer, ResultTable, as_row, decoded, header_of, written
from edge.engine.queries.subscription_index import EVERYTHING, Dependencies, Watch
from edge.engine.requests import Dataset, QueryRequest
from edge.engine.sparql.parser import parse_quads, parse_query
from edge.engine.sparql.rdf12 import IN_SUBSCRIPTION, refuse_rdf12
from edge.engine.sparql.terms_text import Names
from edge.engine.store.graph import LiveGraph
from edge.engine.store.mirror import Mirror
from edge.protocol.bag import Bag
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term
from edge.protocol.syntax import closing, tokenize
from edge.sparql.algebra import Triple, Variable
from edge.sparql.tokens import Token, read_prologue


@dataclass(frozen=True, slots=True)
class World:
    """Everything that an evaluator reads: graph, mirror, forked processes and rules."""

    graph: LiveGraph
    mirror: Mirror
    forked: ForkedEvaluator
    rules: QueryRules

    def read(self, evaluator: Evaluator, now: int) -> ResultTable:
        """Return the whole result of a query for the state of the mirror. May run on any thread.

        A query that might take long runs in a forked process. Raises the errors of `Evaluator.read`, and
        `RequestTimeout`, `NotReady`.
        """
        rules = self.rules
        if is_small(evaluator.outlined, self.graph, evaluator.dataset, whole=rules.settings.default_graph_as_union):
            return evaluator.read(self.mirror.open(), rules, now)
        # The fork happens while no update can change the store, so the child sees one consistent state.
        with self.mirror.held() as store:
            child = self.forked.begin(lambda: evaluator.read(store, rules, now), rules.whole_timeout, WHOLE_LIMIT)
        return child.result()


class Evaluator(ABC):
    """Computes the whole result of one query. An evaluator holds no result."""

    moving = False
    """Whether the dependencies of the query can change with its result."""
    outlined: Outline
    """The cost of the query depends on this outline, and on the dataset."""
    dataset: Dataset

    def __init__(self, depends: Dependencies) -> None:
        self._depends = depends

    @abstractmethod
    def read(self, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
        """Return the result for the state of the store. May run on any thread.

        `now`: microseconds since 1970. Raises `EvaluationFailed`, `ResultTooLarge`.
        """

    def stages(self, graph: LiveGraph, table: ResultTable) -> Sequence[Stage]:
        """Return the stages that turn rows of the table into rows of the result."""
        return ()

    def variables(self, table: ResultTable) -> tuple[str, ...]:
        """The columns of the result."""
        return table.variables

    def dependencies(self, table: ResultTable | None = None) -> Dependencies:
        """Return the dependencies of the result. `table`: the newest result."""
        return self._depends


class SelectEvaluator(Evaluator):
    """Evaluator of a SELECT."""

    def __init__(self, query: ListedQuery, dataset: Dataset, depends: Dependencies) -> None:
        super().__init__(depends)
        self._query = query
        self._dataset = dataset

    def read(self, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
        """See `Evaluator`."""
        return _select(store, self._query.text, self._query.tokens, self._dataset, rules, now)


class AskEvaluator(Evaluator):
    """Evaluator of an ASK: one row with true or false."""

    def __init__(self, query: ListedQuery, dataset: Dataset, depends: Dependencies) -> None:
        super().__init__(depends)
        self._query = query
        self._dataset = dataset

    def read(self, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
        """See `Evaluator`."""
        query = self._query
        answer = evaluate(store, query.text, query.tokens, dataset=self._dataset, rules=rules, now=now)
        return ResultTable(header_of(BOOLEAN_VARIABLES), Bag({b"true" if answer else b"false": 1}))


class ConstructEvaluator(Evaluator):
    """Evaluator of a CONSTRUCT: runs its WHERE as a SELECT and fills the template itself.

    The blank nodes of a solution must keep their names. Oxigraph would rename them in each evaluation, so that every
    triple with a blank node would be removed and added again.
    """

    def __init__(self, where: str, dataset: Dataset, template: Sequence[Triple], depends: Dependencies) -> None:
        """`where`: the SELECT whose solutions fill the template."""
        super().__init__(depends)
        self._where = where
        self._tokens = tokenize(where)
        self._dataset = dataset
        self._layout = SlotLayout()
        self._template = self._layout.template(template)

    def read(self, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
        """See `Evaluator`."""
        return _select(store, self._where, self._tokens, self._dataset, rules, now)

    def stages(self, graph: LiveGraph, table: ResultTable) -> Sequence[Stage]:
        """See `Evaluator`."""
        layout = self._layout
        columns = [layout.place(Variable(name)) for name in table.variables]
        return (
            _Frames(graph, layout, columns),
            ConstructTemplate(graph, self._template, layout.fresh),
            DistinctStage(graph.dictionary),
        )

    def variables(self, table: ResultTable) -> tuple[str, ...]:
        """See `Evaluator`."""
        return TRIPLE_VARIABLES


class _Frames(Stage):
    """Stage that turns the rows of a table into frames of a layout."""

    def __init__(self, graph: LiveGraph, layout: SlotLayout, columns: Sequence[int]) -> None:
        """`columns`: the position of each column in the frame."""
        self._graph = graph
        self._layout = layout
        self._columns = columns

    def change(self, weights: Mapping[Row, int]) -> Weights:
        """See `Stage`."""
        frame = self._layout.frame(self._graph)
        out: Weights = Bag()
        for row, weight in weights.items():
            for place, cell in zip(self._columns, row, strict=True):
                frame[place] = cell
            out[tuple(frame)] = weight
        return out


class DescribeEvaluator(Evaluator):
    """Evaluator of a DESCRIBE: the triples of the resources, and of the blank nodes reachable from them."""

    moving = True

    def __init__(
        self,
        query: ListedQuery,
        dataset: Dataset,
        resources: Sequence[Term],
        where: str | None,
        depends: Dependencies,
    ) -> None:
        """`resources`: the IRIs that the query names. `where`: the query that finds the other resources."""
        super().__init__(depends)
        self._query = query
        self._dataset = dataset
        self._resources = resources
        self._where = where

    def read(self, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
        """See `Evaluator`."""
        query, dataset, found = self._query, self._dataset, None
        if self._where is not None:
            found = _select(store, self._where, tokenize(self._where), dataset, rules, now)
        answer = evaluate(store, query.text, query.tokens, dataset=dataset, rules=rules, now=now)
        assert isinstance(answer, ox.QueryTriples)  # noqa: S101
        lines = written(answer, ox.RdfFormat.N_TRIPLES, LimitedBuffer(rules, rules.max_solutions))
        return ResultTable(header_of(TRIPLE_VARIABLES), Bag.of(dict.fromkeys(map(as_row, lines))), found)

    def dependencies(self, table: ResultTable | None = None) -> Dependencies:
        """See `Evaluator`. They change with the described resources."""
        subjects: dict[Term | None, None] = dict.fromkeys(self._resources)
        if table is not None:
            if table.described is not None:
                for found in decoded(table.described.header, table.described.lines):
                    subjects.update(dict.fromkeys(found))
            for subject, _, object_ in decoded(table.header, table.lines):
                subjects[subject] = None
                if isinstance(object_, ox.BlankNode):  # it may get its first triple later
                    subjects[object_] = None
        described = tuple(Watch(subject=term) for term in subjects if isinstance(term, ox.NamedNode | ox.BlankNode))
        return Dependencies(self._depends.watches + described, self._depends.graph_names)


def compile_evaluator(request: QueryRequest, rules: QueryRules) -> Evaluator:
    """Compile the evaluator of a query. Raises `ParsingFailed`, `Forbidden`."""
    query = prepare_query(request.sparql, rules)
    evaluator = _compile(query, request.dataset, rules)
    evaluator.outlined = outline(query.text, query.tokens, rules.settings.base_iri)
    evaluator.dataset = request.dataset
    return evaluator


def _compile(query: ListedQuery, dataset: Dataset, rules: QueryRules) -> Evaluator:
    at = next(i for i, token in enumerate(query.tokens) if token.word() == query.form)
    prologue = query.text[: query.tokens[at].start]
    names = Names(read_prologue(query.text, query.tokens, 0)[0], rules.settings.base_iri)
    depends = _dependencies(query, dataset, rules)
    if query.form == "SELECT":
        return SelectEvaluator(query, dataset, depends)
    if query.form == "ASK":
        return AskEvaluator(query, dataset, depends)
    if query.form == "CONSTRUCT":
        template, rest = _template(query, at)
        refuse_rdf12(query.text, template, IN_SUBSCRIPTION)
        return ConstructEvaluator(f"{prologue} SELECT * {rest}", dataset, parse_quads(template, names), depends)
    return _describe_evaluator(query, at, names, dataset, depends)


def _template(query: ListedQuery, at: int) -> tuple[Sequence[Token], str]:
    """Return the tokens of the template of a CONSTRUCT, and the text of its dataset and WHERE clauses."""
    text, tokens = query.text, query.tokens
    if tokens[at + 1].text == "{":
        end = closing(tokens, at + 1)
        return tokens[at + 2 : end], text[tokens[end].end :]
    start = next(i for i in range(at, len(tokens)) if tokens[i].text == "{")  # CONSTRUCT WHERE { template }
    return tokens[start + 1 : closing(tokens, start)], text[tokens[at].end :]


def _describe_evaluator(
    query: ListedQuery, at: int, names: Names, dataset: Dataset, depends: Dependencies
) -> DescribeEvaluator:
    text, tokens = query.text, query.tokens
    index = at + 1
    resources: list[Term] = []
    found = ""
    while index < len(tokens) and (tokens[index].kind in ("var", "iri", "name") or tokens[index].text == "*"):
        if tokens[index].kind in ("iri", "name"):
            resources.append(names.declared().iri(tokens[index].text))
        else:
            found += tokens[index].text + " "
        index += 1
    rest = text[tokens[index].start :] if index < len(tokens) else ""
    where = f"{text[: tokens[at].start]} SELECT {found} {rest}" if found and rest else None
    return DescribeEvaluator(query, dataset, resources, where, depends)


def _dependencies(query: ListedQuery, dataset: Dataset, rules: QueryRules) -> Dependencies:
    """Return the dependencies of a query. A legal query beyond our grammar depends on everything."""
    try:
        parsed = parse_query(query.text, query.tokens, rules.settings.base_iri)
    except ParsingFailed:
        return EVERYTHING
    default = parsed.default_graphs
    graphs = None if default is None else [graph.value for graph in default]
    if dataset.given:
        graphs = list(dataset.default_graphs or ())
    return dependencies(parsed, graphs, union=rules.settings.default_graph_as_union)


def _select(
    store: ox.Store, text: str, tokens: Sequence[Token], dataset: Dataset, rules: QueryRules, now: int
) -> ResultTable:
    """Return the result of a SELECT."""
    answer = evaluate(store, text, tokens, dataset=dataset, rules=rules, now=now)
    assert isinstance(answer, ox.QuerySolutions)  # noqa: S101
    # The first line is the header, so one more line than solutions is allowed.
    header, *lines = written(answer, ox.QueryResultsFormat.TSV, LimitedBuffer(rules, rules.max_solutions + 1))
    return ResultTable(header, Bag.of(lines))
