"""Query processor: evaluates queries of all forms on the committed state, on any thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

import pyoxigraph as ox

from edge.engine.queries.cost_estimate import Outline, is_small, outline
from edge.engine.queries.forked_evaluation import ForkedEvaluator
from edge.engine.queries.oxigraph_queries import (
    CACHED_LENGTH,
    EvaluationFailed,
    ListedQuery,
    QueryRules,
    evaluate,
    prepare_query,
)
from edge.engine.requests import Answer, Dataset, Graph, QueryRequest, QueryResult, Solutions
from edge.engine.store.graph import LiveGraph
from edge.engine.store.mirror import Mirror

T = TypeVar("T")

_TOKENS: Final = 32
"""Bytes of memory for each character while a text is checked. They do not count against the query's memory limit."""


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A checked, legal query."""

    query: ListedQuery
    dataset: Dataset
    small: bool
    """Whether the answer certainly takes little time."""


class QueryProcessor:
    """Answers queries from the readers' mirror. Several threads may use it at once; queries do not wait for updates."""

    def __init__(self, graph: LiveGraph, mirror: Mirror, rules: QueryRules, texts: int = 256) -> None:
        """`texts`: number of checked queries in the cache."""
        self._graph = graph
        self._mirror = mirror
        self._rules = rules
        self._prepare = lru_cache(maxsize=texts)(self._prepare_uncached)

    def question(self, request: QueryRequest) -> CheckedQuery:
        """Check a query and estimate its cost. Raises `ParsingFailed`, `Forbidden`."""
        text = request.sparql
        query, outlined = self._prepare_uncached(text) if len(text) > CACHED_LENGTH else self._prepare(text)
        dataset = request.dataset.seen_by(request.access)
        small = is_small(outlined, self._graph, dataset, whole=self._rules.settings.default_graph_as_union)
        return CheckedQuery(query, dataset, small)

    def run(self, question: CheckedQuery, read: Callable[[Answer], T], now: int) -> T:
        """Evaluate a query on this thread and pass the answer to `read`. `now`: microseconds since 1970.

        The evaluation cannot be interrupted. Raises `EdgeError`.
        """
        return self._answer(self._mirror.open(), question.query, question.dataset, read, now)

    def run_forked(
        self,
        request: QueryRequest,
        question: CheckedQuery | None,
        read: Callable[[Answer], T],
        now: int,
        forked: ForkedEvaluator,
        seconds: float,
        setting: str,
    ) -> T:
        """Evaluate a query in a forked process, for at most `seconds` (see `ForkedEvaluator`).

        `question`: the checked query; None if the forked process is to check it, too. The check of a long text would
        hold the GIL for most of a second, because Oxigraph's parser does not release it. The return value of `read`
        must support pickling. Raises `ParsingFailed`, `Forbidden` and the errors of `Child.result`.
        """

        def answer() -> T:
            if question is not None:
                return self._answer(store, question.query, question.dataset, read, now)
            query = prepare_query(request.sparql, self._rules)
            return self._answer(store, query, request.dataset.seen_by(request.access), read, now)

        with self._mirror.held() as store:
            child = forked.begin(answer, seconds, setting, 0 if question else _TOKENS * len(request.sparql))
        return child.result()

    def _answer(
        self, store: ox.Store, query: ListedQuery, dataset: Dataset, read: Callable[[Answer], T], now: int
    ) -> T:
        answer = evaluate(store, query.text, query.tokens, dataset=dataset, rules=self._rules, now=now)
        try:
            return read(answer)
        except (RuntimeError, OSError) as error:
            raise EvaluationFailed(f"The query could not be evaluated: {error}") from None

    def _prepare_uncached(self, text: str) -> tuple[ListedQuery, Outline]:
        query = prepare_query(text, self._rules)
        return query, outline(query.text, query.tokens, self._rules.settings.base_iri)


def collect(answer: Answer) -> QueryResult:
    """Read a whole answer and convert it to terms."""
    if isinstance(answer, ox.QuerySolutions):
        variables = tuple(variable.value for variable in answer.variables)
        return Solutions(variables, tuple(tuple(solution) for solution in answer))
    if isinstance(answer, ox.QueryTriples):
        return Graph(tuple(answer))
    return bool(answer)
