"""The query processor: all query forms, over what is committed, on any thread."""

from __future__ import annotations

from functools import lru_cache

import pyoxigraph as ox

from edge.engine.general import EvaluationFailed, ListedQuery, Rules, evaluate, prepare_query
from edge.engine.mirror import Mirror
from edge.engine.requests import Graph, QueryRequest, QueryResult, Solutions


class QueryProcessor:
    """Answers queries from the readers' mirror. Several threads may use it at once; it waits for no update."""

    def __init__(self, mirror: Mirror, rules: Rules, texts: int = 256) -> None:
        """`texts` is how many checked queries are kept."""
        self._mirror = mirror
        self._rules = rules
        self._prepare = lru_cache(maxsize=texts)(self._prepare_anew)

    def check(self, request: QueryRequest) -> None:
        """Refuse a wrong query. Raises `ParsingFailed`, `Forbidden`."""
        self._prepare(request.sparql)

    def run(self, request: QueryRequest, now: int) -> QueryResult:
        """The whole result. `now` in microseconds since 1970. Raises `EdgeError`."""
        query = self._prepare(request.sparql)
        result = evaluate(
            self._mirror.open(), query.text, query.tokens, dataset=request.dataset, rules=self._rules, now=now
        )
        try:
            if isinstance(result, ox.QuerySolutions):
                variables = tuple(variable.value for variable in result.variables)
                return Solutions(variables, tuple(tuple(solution) for solution in result))
            if isinstance(result, ox.QueryTriples):
                return Graph(tuple(result))
            return bool(result)
        except (RuntimeError, OSError) as error:
            raise EvaluationFailed(f"The query could not be evaluated: {error}") from None

    def _prepare_anew(self, text: str) -> ListedQuery:
        return prepare_query(text, self._rules)
