"""SPARQL queries over the table of the history. Answers are DataFrames."""

from __future__ import annotations

import copy
import os
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.compat import plan_text
from spark_offload.errors import QueryRefused
from spark_offload.newest_rows import newest_rows
from spark_offload.positions import logged_commits
from spark_offload.services import among, answered, unanswered
from spark_offload.sparql.construct import constructed
from spark_offload.sparql.content import Content
from spark_offload.sparql.evaluation import Evaluation
from spark_offload.sparql.explain_query import explained
from spark_offload.sparql.parsing import parse
from spark_offload.sparql.values import TermValue
from spark_offload.table import location, open_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from spark_offload.live import GatewayEndpoint
    from spark_offload.sparql.relational import TranslatedQuery


class History:
    """One version of the table of observations. By default it is the newest version at the time of the first query."""

    engine = "Spark"
    """Name of the engine that evaluates queries."""

    def __init__(
        self,
        spark: SparkSession,
        table: str | os.PathLike[str] | DataFrame,
        version: int | None = None,
        *,
        live: Iterable[GatewayEndpoint] = (),
        wide: bool = True,
    ) -> None:
        """Create a view of a table, given by its path, by its name in a catalog, or by its rows.

        `live` lists the gateways that SERVICE clauses may query; each query asks them again. `wide=False` evaluates
        queries over triples instead of rows: slow, but useful as a reference for tests.
        """
        self._spark = spark
        self._table = table
        self._version = version
        self._live = tuple(live)
        self._wide = wide
        self._dataset: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def with_dataset(self, default_graphs: Iterable[str], named_graphs: Iterable[str]) -> History:
        """Return a view whose queries have this dataset instead of that of FROM and FROM NAMED."""
        _ = self._content  # both views share it
        view = copy.copy(self)
        view._dataset = tuple(default_graphs), tuple(named_graphs)
        return view

    def sparql(self, text: str) -> DataFrame:
        """Return the solutions of a SELECT: a column for each variable, with terms in N-Triples; null means unbound.

        Raises `QueryRefused`, `TableRefused`, `GatewayRefused`.
        """
        query = self._parsed(text, "SELECT", "sparql")
        return self._solutions(query)

    def ask(self, text: str) -> bool:
        """Return the answer of an ASK. Raises `QueryRefused`, `TableRefused`, `GatewayRefused`."""
        query = self._parsed(text, "ASK", "ask")
        return not self._evaluation.frame(query.pattern).rows.limit(1).isEmpty()

    def construct(self, text: str) -> DataFrame:
        """Return the distinct triples of a CONSTRUCT: columns subject, predicate and object, with terms in N-Triples.

        DESCRIBE returns the triples whose subject is one of its resources. Raises `QueryRefused`, `TableRefused`.
        """
        query = self._parsed(text, "CONSTRUCT", "construct", "DESCRIBE")
        return constructed(self._evaluation.frame(query.pattern), query.template)

    def explain(self, text: str) -> str:
        """Describe the evaluation of a query: stars, columns, pushed-down filters and Spark's plan.

        Accepts any form of query, and raises the same errors as `sparql`.
        """
        query = self._answered(text)
        plan = self._solutions(query)
        return explained(query, self._content, plan_text(plan), wide=self._wide, engine=self.engine)

    def form(self, text: str) -> str:
        """Return the form of a query: SELECT, ASK, CONSTRUCT or DESCRIBE. Raises `QueryRefused`."""
        return parse(unanswered(text).text).form

    @cached_property
    def _content(self) -> Content:
        """Statistics and rows of the table, fixed to one version even if an ingester commits meanwhile."""
        if not isinstance(self._table, (str, os.PathLike)):
            return Content(self._table)
        path = location(self._spark, self._table)
        version = self._version
        rows = open_table(self._spark, path, version)
        if version is None:
            version = int(logged_commits(self._spark, path, 1)[0]["version"])
            rows = open_table(self._spark, path, version)
        return Content(rows, lambda: newest_rows(self._spark, path, version))

    @property
    def _evaluation(self) -> Evaluation:
        return Evaluation(self._spark, self._content, wide=self._wide)

    def _solutions(self, query: TranslatedQuery) -> DataFrame:
        solutions = self._evaluation.frame(query.pattern)
        unbound = TermValue(F.lit(None).cast("string"))
        return solutions.rows.select(
            *(solutions.values.get(name, unbound).term().alias(name) for name in query.variables)
        )

    def _parsed(self, text: str, form: str, method: str, *other_forms: str) -> TranslatedQuery:
        query = self._answered(text)
        if query.form not in (form, *other_forms):
            raise QueryRefused(f"History.{method} answers a {form}, and this query is a {query.form}")
        return query

    def _answered(self, text: str) -> TranslatedQuery:
        """Parse a query after replacing each SERVICE clause with the gateway's solutions."""
        asked = answered(text, among(self._live))
        return parse(asked.text, asked.answers, self._dataset)
