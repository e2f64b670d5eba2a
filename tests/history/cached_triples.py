"""One history queried in both ways, by rows and by triples; the triples are computed once for all queries."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_offload.history import History
from spark_offload.sparql.content import Content
from spark_offload.triples import triples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Kept(Content):
    """A table whose triples are computed once for all queries."""

    def __init__(self, rows: DataFrame) -> None:
        super().__init__(rows)
        self._kept = [triples(some).coalesce(1).cache() for some in (rows, self.general_rows)]

    def triples(self, predicates: Collection[str] | None, *, general: bool) -> DataFrame:
        kept = self._kept[general]
        return kept if predicates is None else kept.where(F.col("predicate").isin([f"<{iri}>" for iri in predicates]))


def both_ways(spark: SparkSession, rows: DataFrame) -> dict[str, History]:
    """Return `wide` and `triples`, over the same rows."""
    content = Kept(rows)
    histories = {way: History(spark, rows, wide=way == "wide") for way in ("wide", "triples")}
    for asked in histories.values():
        vars(asked)["_content"] = content
    return histories
