"""Evaluators: the whole result of one subscribed query as Oxigraph writes it, computed on the mirror.

Every query form has a table: SELECT its own, ASK one row with `boolean`, CONSTRUCT the solutions of its WHERE, DESCRIBE
one row `subject`, `predicate`, `object` a triple.

Reading it is nearly all Oxigraph's work, which lets go of Python's lock, so it may be done on any thread, beside
others. What changed is found by comparing lines, and only lines that changed are made terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyoxigraph as ox

from edge.engine.operators.layout import Layout
from edge.engine.operators.stages import ConstructTemplate, Distinct, Row, Stage, Weights
from edge.engine.queries.cost_estimate import Outline, is_small, outline
from edge.engine.queries.dependencies import dependencies
from edge.engine.queries.forked_evaluation import ForkedEvaluator
from edge.engine.queries.incremental_plan import BOOLEAN_VARIABLES, TRIPLE_VARIABLES
from edge.engine.queries.lutt import EVERYTHING, Dependencies, Watch
from edge.engine.queries.oxigraph_queries import ListedQuery, QueryRules, evaluate, prepare_query
from edge.engine.queries.result_table import ResultTable, Text, as_row, decoded, header_of, written
from edge.engine.requests import Dataset, QueryRequest
from edge.engine.sparql.algebra import Triple, Variable
from edge.engine.sparql.parser import parse_quads, parse_query
from edge.engine.sparql.rdf12 import IN_SUBSCRIPTION, refuse_rdf12
from edge.engine.sparql.terms_text import Names
from edge.engine.store.graph import LiveGraph
from edge.engine.store.mirror import Mirror
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term
from edge.protocol.syntax import Token, closing, read_prologue, tokenize


@dataclass(frozen=True, slots=True)
class World:
    """What evaluators look at."""

    graph: LiveGraph
    mirror: Mirror
    apart: ForkedEvaluator
    rules: QueryRules

    def read(self, evaluator: Evaluator, now: int) -> ResultTable:
        """Return the whole result of a query in the state of the mirror. Any thread.

        It is evaluated here, or in a forked process where that might take long. Raises as `Evaluator.read` does, and
        `RequestTimeout`, `NotReady`.
        """
        rules = self.rules
        if is_small(evaluator.outlined, self.graph, evaluator.dataset, whole=rules.union_default_graph):
            return evaluator.read(self.mirror.open(), rules, now)
        limit, setting = rules.evaluation_timeout, "engine.evaluation_timeout"
        with self.mirror.held() as store:
            child = self.apart.begin(lambda: evaluator.read(store, rules, now), limit, setting)
        return child.result()


class Evaluator(ABC):
    """Computes the whole result of one query. It keeps nothing of it."""

    moving = False
    """Whether what the result depends on can change with it."""
    outlined: Outline
    """What it can cost depends on this, and on the dataset."""
    dataset: Dataset

    def __init__(self, depends: Dependencies) -> None:
        self._depends = depends

    @abstractmethod
    def read(self, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
        """The result in the state that the store is in. Any thread.

        `now` in microseconds since 1970. Raises `EvaluationFailed`, `ResultTooLarge`.
        """

    def stages(self, graph: LiveGraph, table: ResultTable) -> Sequence[Stage]:
        """What makes rows of the result of rows of such a table."""
        return ()

    def variables(self, table: ResultTable) -> tuple[str, ...]:
        """The columns of the result."""
        return table.variables

    def dependencies(self, table: ResultTable | None = None) -> Dependencies:
        """What the result depends on. `table` is the last one that was read."""
        return self._depends


class SelectEvaluator(Evaluator):
    """Any SELECT."""

    def __init__(self, query: ListedQuery, dataset: Dataset, depends: Dependencies) -> None:
        super().__init__(depends)
        self._query = query
        self._dataset = dataset

    def read(self, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
        """See `Evaluator`."""
        return _select(store, self._query.text, self._query.tokens, self._dataset, rules, now)


class AskEvaluator(Evaluator):
    """An ASK: one row that says true or false."""

    def __init__(self, query: ListedQuery, dataset: Dataset, depends: Dependencies) -> None:
        super().__init__(depends)
        self._query = query
        self._dataset = dataset

    def read(self, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
        """See `Evaluator`."""
        query = self._query
        answer = evaluate(store, query.text, query.tokens, dataset=self._dataset, rules=rules, now=now)
        return ResultTable(header_of(BOOLEAN_VARIABLES), {b"true" if answer else b"false": 1})


class ConstructEvaluator(Evaluator):
    """A CONSTRUCT: its WHERE as a SELECT, its template filled here, so that a solution's blank nodes keep their names.

    Evaluated anew, Oxigraph would name them anew, and every triple that holds one would be removed and added.
    """

    def __init__(self, where: str, dataset: Dataset, template: Sequence[Triple], depends: Dependencies) -> None:
        """`where`: the query whose solutions fill the template."""
        super().__init__(depends)
        self._where = where
        self._tokens = tokenize(where)
        self._dataset = dataset
        self._layout = Layout()
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
            Distinct(graph.dictionary),
        )

    def variables(self, table: ResultTable) -> tuple[str, ...]:
        """See `Evaluator`."""
        return TRIPLE_VARIABLES


class _Frames(Stage):
    """The rows of a table as frames of a layout."""

    def __init__(self, graph: LiveGraph, layout: Layout, columns: Sequence[int]) -> None:
        """`columns`: the place of each column."""
        self._graph = graph
        self._layout = layout
        self._columns = columns

    def change(self, weights: Mapping[Row, int]) -> Weights:
        """See `Stage`."""
        frame = self._layout.frame(self._graph)
        out: Weights = {}
        for row, weight in weights.items():
            for place, cell in zip(self._columns, row, strict=True):
                frame[place] = cell
            out[tuple(frame)] = weight
        return out


class DescribeEvaluator(Evaluator):
    """A DESCRIBE: the triples that Oxigraph gives, the resource's own and those of blank nodes that hang on it."""

    moving = True

    def __init__(
        self,
        query: ListedQuery,
        dataset: Dataset,
        resources: Sequence[Term],
        where: str | None,
        depends: Dependencies,
    ) -> None:
        """`resources` are the IRIs it names, `where` the query that finds the others."""
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
        lines = written(answer, ox.RdfFormat.N_TRIPLES, Text(rules, rules.max_solutions))
        return ResultTable(header_of(TRIPLE_VARIABLES), dict.fromkeys(map(as_row, lines), 1), found)

    def dependencies(self, table: ResultTable | None = None) -> Dependencies:
        """See `Evaluator`. They follow the resources that it describes."""
        subjects: dict[Term | None, None] = dict.fromkeys(self._resources)
        if table is not None:
            if table.described is not None:
                for found in decoded(table.described.header, table.described.lines):
                    subjects.update(dict.fromkeys(found))
            for subject, _, object_ in decoded(table.header, table.lines):
                subjects[subject] = None
                if isinstance(object_, ox.BlankNode):  # it may have nothing to say yet
                    subjects[object_] = None
        described = tuple(Watch(subject=term) for term in subjects if isinstance(term, ox.NamedNode | ox.BlankNode))
        return Dependencies(self._depends.watches + described, self._depends.graph_names)


def compile_evaluator(request: QueryRequest, rules: QueryRules) -> Evaluator:
    """The evaluator of a query. Raises `ParsingFailed`, `Forbidden`."""
    query = prepare_query(request.sparql, rules)
    evaluator = _compile(query, request.dataset, rules)
    evaluator.outlined = outline(query.text, query.tokens, rules.base_iri)
    evaluator.dataset = request.dataset
    return evaluator


def _compile(query: ListedQuery, dataset: Dataset, rules: QueryRules) -> Evaluator:
    at = next(i for i, token in enumerate(query.tokens) if token.word() == query.form)
    prologue = query.text[: query.tokens[at].start]
    names = Names(read_prologue(query.text, query.tokens, 0)[0], rules.base_iri)
    depends = _dependencies(query, dataset, rules)
    if query.form == "SELECT":
        return SelectEvaluator(query, dataset, depends)
    if query.form == "ASK":
        return AskEvaluator(query, dataset, depends)
    if query.form == "CONSTRUCT":
        template, rest = _template(query, at)
        refuse_rdf12(template, IN_SUBSCRIPTION)
        return ConstructEvaluator(f"{prologue} SELECT * {rest}", dataset, parse_quads(template, names), depends)
    return _describe_evaluator(query, at, names, dataset, depends)


def _template(query: ListedQuery, at: int) -> tuple[Sequence[Token], str]:
    """The tokens of a CONSTRUCT's template, and its dataset and WHERE clause."""
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
    """What a query depends on. What is legal, and beyond our grammar, is taken to depend on everything."""
    try:
        parsed = parse_query(query.text, query.tokens, rules.base_iri)
    except ParsingFailed:
        return EVERYTHING
    default = parsed.default_graphs
    graphs = None if default is None else [graph.value for graph in default]
    if dataset.given:
        graphs = list(dataset.default_graphs or ())
    return dependencies(parsed, graphs, union=rules.union_default_graph)


def _select(
    store: ox.Store, text: str, tokens: Sequence[Token], dataset: Dataset, rules: QueryRules, now: int
) -> ResultTable:
    """The result of a SELECT."""
    answer = evaluate(store, text, tokens, dataset=dataset, rules=rules, now=now)
    assert isinstance(answer, ox.QuerySolutions)  # noqa: S101
    header, *lines = written(answer, ox.QueryResultsFormat.TSV, Text(rules, rules.max_solutions + 1))
    return ResultTable(header, Counter(lines))
