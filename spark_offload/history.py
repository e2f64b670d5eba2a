"""The history as RDF: SPARQL over a table, each answer a DataFrame."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.errors import QueryRefused
from spark_offload.positions import history
from spark_offload.services import among, answered, unanswered
from spark_offload.sparql.construct import constructed
from spark_offload.sparql.content import Content
from spark_offload.sparql.evaluation import Evaluation
from spark_offload.sparql.explain import explained
from spark_offload.sparql.parsing import parse
from spark_offload.sparql.values import Term
from spark_offload.table import open_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from spark_offload.live import Gateway
    from spark_offload.sparql.algebra import Query


class History:
    """A table of observations at one version of it: the newest when it is first asked, or the one that is given."""

    def __init__(
        self,
        spark: SparkSession,
        table: str | DataFrame,
        version: int | None = None,
        *,
        live: Iterable[Gateway] = (),
        wide: bool = True,
    ) -> None:
        """`table`: where it is, or its rows. `live`: the gateways that queries may ask by SERVICE, each time anew.

        `wide=False` asks triples, not rows: slow, and good to compare with.
        """
        self._spark = spark
        self._table = table
        self._version = version
        self._live = tuple(live)
        self._wide = wide

    def sparql(self, text: str) -> DataFrame:
        """The solutions of a SELECT: a column a variable, each a term in N-Triples, or null where it is unbound.

        Raises `QueryRefused`, `TableRefused`, `GatewayRefused`.
        """
        query = self._parsed(text, "SELECT", "sparql")
        return self._solutions(query)

    def ask(self, text: str) -> bool:
        """The answer to an ASK. Raises `QueryRefused`, `TableRefused`, `GatewayRefused`."""
        query = self._parsed(text, "ASK", "ask")
        return not self._evaluation.frame(query.pattern).rows.limit(1).isEmpty()

    def construct(self, text: str) -> DataFrame:
        """The triples of a CONSTRUCT: columns subject, predicate, object, terms in N-Triples; each triple once.

        Raises `QueryRefused`, `TableRefused`.
        """
        query = self._parsed(text, "CONSTRUCT", "construct")
        return constructed(self._evaluation.frame(query.pattern), query.template)

    def explain(self, text: str) -> str:
        """How any query is answered: stars, columns, what is pushed down, and Spark's plan. Raises as `sparql` does."""
        query = self._answered(text)
        plan = self._solutions(query)
        return explained(query, self._content, plan, wide=self._wide)

    def form(self, text: str) -> str:
        """Which of SELECT, ASK, CONSTRUCT a query is, and so which method answers it. Raises `QueryRefused`."""
        return parse(unanswered(text).text).form

    @cached_property
    def _content(self) -> Content:
        """At one version, whatever is committed meanwhile."""
        if not isinstance(self._table, str):
            return Content(self._table)
        rows = open_table(self._spark, self._table, self._version)
        if self._version is None:
            newest = history(self._spark, self._table, 1)[0]["version"]
            rows = open_table(self._spark, self._table, newest)
        return Content(rows)

    @property
    def _evaluation(self) -> Evaluation:
        return Evaluation(self._spark, self._content, wide=self._wide)

    def _solutions(self, query: Query) -> DataFrame:
        solutions = self._evaluation.frame(query.pattern)
        unbound = Term(F.lit(None).cast("string"))
        return solutions.rows.select(
            *(solutions.values.get(name, unbound).term().alias(name) for name in query.variables)
        )

    def _parsed(self, text: str, form: str, method: str) -> Query:
        query = self._answered(text)
        if query.form != form:
            raise QueryRefused(f"this is a {query.form}, and History.{method} answers a {form}")
        return query

    def _answered(self, text: str) -> Query:
        """The query, with what gateways answer in the place of SERVICE."""
        asked = answered(text, among(self._live))
        return parse(asked.text, asked.answers)
