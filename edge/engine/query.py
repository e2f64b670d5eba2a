"""The query processor: all query forms, over what is committed, on any thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import pyoxigraph as ox

from edge.engine.general import CACHED_LENGTH, EvaluationFailed, ListedQuery, Rules, evaluate, prepare_query
from edge.engine.mirror import Mirror
from edge.engine.requests import Answer, Graph, QueryRequest, QueryResult, Solutions

T = TypeVar("T")


class QueryProcessor:
    """Answers queries from the readers' mirror. Several threads may use it at once; it waits for no update."""

    def __init__(self, mirror: Mirror, rules: Rules, texts: int = 256) -> None:
        """`texts` is how many checked queries are kept."""
        self._mirror = mirror
        self._rules = rules
        self._prepare = lru_cache(maxsize=texts)(self._prepare_anew)

    def run(self, request: QueryRequest, read: Callable[[Answer], T], now: int) -> T:
        """Evaluate a query and have `read` take in the answer. `now` in microseconds since 1970. Raises `EdgeError`."""
        text = request.sparql
        query = self._prepare_anew(text) if len(text) > CACHED_LENGTH else self._prepare(text)
        answer = evaluate(
            self._mirror.open(),
            query.text,
            query.tokens,
            dataset=request.dataset.seen_by(request.access),
            rules=self._rules,
            now=now,
        )
        try:
            return read(answer)
        except (RuntimeError, OSError) as error:
            raise EvaluationFailed(f"The query could not be evaluated: {error}") from None

    def _prepare_anew(self, text: str) -> ListedQuery:
        return prepare_query(text, self._rules)


def collect(answer: Answer) -> QueryResult:
    """Read a whole answer into terms."""
    if isinstance(answer, ox.QuerySolutions):
        variables = tuple(variable.value for variable in answer.variables)
        return Solutions(variables, tuple(tuple(solution) for solution in answer))
    if isinstance(answer, ox.QueryTriples):
        return Graph(tuple(answer))
    return bool(answer)
