"""Properties of a table version that decide how queries are evaluated. Each is computed once, on first use."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cached_property, reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import EPOCH_LENGTH
from spark_offload.latest import latest_of, newest_of_series
from spark_offload.sparql import lexical
from spark_offload.sparql.stars import CLASSES, EDGES, PREDICATES, TYPE
from spark_offload.table import NUMBERS
from spark_offload.triples import iri, of_cells, of_quads

_DERIVED: Final = rf"[^<> ]*/[0-9a-f]{{{EPOCH_LENGTH}}}-[0-9]+(/result|/instant)?"


def _any(iris: Collection[str]) -> str:
    return "|".join(map(re.escape, sorted(iris)))


_CROSSING: Final = (
    rf"(?m)^<{_DERIVED}> <({_any(PREDICATES - {TYPE})})> "
    rf"|^<{_DERIVED}> <{re.escape(TYPE)}> <({_any(CLASSES)})> "
    rf"|<({_any(EDGES)})> <{_DERIVED}> "
)
"""Pattern of quads that describe resources of a row with the predicates and classes of rows."""


class Content:
    """Content of one table version."""

    def __init__(self, rows: DataFrame, newest_rows: Callable[[], DataFrame | None] = lambda: None) -> None:
        """Analyse these rows of the table. `newest_rows` returns those of `spark_offload.newest_rows`."""
        self.rows = rows
        self._newest_rows = newest_rows
        self._foreign = rows.where("series IS NULL AND lost IS NULL")

    @cached_property
    def chosen(self) -> bool:
        """Whether there are observations whose IRIs a client chose."""
        return not self._foreign.where("quads IS NULL").limit(1).isEmpty()

    @cached_property
    def quads(self) -> bool:
        """Whether there are rows with `quads`."""
        return not self._foreign.where("quads IS NOT NULL").limit(1).isEmpty()

    @cached_property
    def whole_chosen(self) -> bool:
        """Whether there are observations with IRIs chosen by a client, each described completely by one row."""
        if not self.chosen:
            return False
        chosen = self._foreign.where("quads IS NULL")
        places = ("observation", "result", "instant")
        counts = [F.count_distinct(F.coalesce("graph", F.lit("")), F.col(place)) for place in places]
        count, *different = chosen.agg(F.count(F.lit(1)), *counts).collect()[0]
        if any(number < count for number in different):
            return False
        if not self.quads:
            return True
        named = chosen.select(F.explode(F.array(*(iri(F.col(place)) for place in places))).alias("node"))
        nodes = of_quads(self._foreign, PREDICATES).select(F.explode(F.array("subject", "object")).alias("node"))
        return nodes.join(named, "node", "left_semi").limit(1).isEmpty()

    @cached_property
    def graphs(self) -> bool:
        """Whether any observation is in a named graph."""
        return not self.rows.where("graph IS NOT NULL").limit(1).isEmpty()

    @cached_property
    def whole_rows(self) -> DataFrame:
        """Rows that describe their observation completely."""
        if self.rows.where("series IS NULL").limit(1).isEmpty():
            return self.rows
        return self._whole(self.rows)

    def _whole(self, rows: DataFrame) -> DataFrame:
        return rows.where("quads IS NULL AND lost IS NULL" if self.whole_chosen else "series IS NOT NULL")

    @cached_property
    def _newest(self) -> DataFrame | None:
        return self._newest_rows()

    @cached_property
    def newest_whole_rows(self) -> DataFrame | None:
        """Whole rows with at least all the newest ones (`spark_offload.newest_rows.newest`), but less than all rows.

        None if the newest rows are not known, or if some times do not order like their timestamps.
        """
        if self._newest is None or self.odd_times or not self.whole_rows.where("ts IS NULL").limit(1).isEmpty():
            return None
        return self._whole(self._newest)

    @cached_property
    def latest(self) -> Content:
        """Content of the graph `LATEST`: the newest observation of each series."""
        rows = latest_of(self.rows) if self._newest is None else newest_of_series(self._newest)
        return Content(rows.withColumn("graph", F.lit(None).cast("string")))

    @cached_property
    def general_rows(self) -> DataFrame:
        """The other rows with observations, whose triples must be joined."""
        return self._foreign.where("quads IS NOT NULL") if self.whole_chosen else self._foreign

    @property
    def general(self) -> bool:
        """Whether there are such rows."""
        return self.quads or (self.chosen and not self.whole_chosen)

    @cached_property
    def crossing(self) -> bool:
        """Whether general rows describe resources of mapped observations. Then no row is complete on its own."""
        if not (self.chosen or self.quads):
            return False
        own = [F.col(column).rlike(rf"^{_DERIVED}$") for column in ("observation", "result", "instant")]
        crossing = F.col("quads").rlike(_CROSSING)
        for column in own:
            crossing = F.coalesce(column, F.lit(False)) | F.coalesce(crossing, F.lit(False))
        return not self._foreign.where(crossing).limit(1).isEmpty()

    @property
    def plain(self) -> bool:
        """Whether each observation is described completely by one row."""
        return not (self.general or self.crossing)

    @cached_property
    def odd_numbers(self) -> bool:
        """Whether there are numbers without a `value`, such as INF, NaN or derived integer types."""
        others = [datatype for datatype in lexical.NUMBERS if datatype not in NUMBERS]
        odd = F.col("datatype").isin(*others) | F.col("value_text").isin("INF", "-INF", "+INF", "NaN")
        rows = self.whole_rows.where("value IS NULL")
        return not rows.where(odd).limit(1).isEmpty()

    @cached_property
    def large_numbers(self) -> bool:
        """Whether there are integers that a double cannot represent."""
        large = "value >= 9007199254740992 OR value <= -9007199254740992"
        return not self.whole_rows.where(large).where(F.col("datatype").isin(*lexical.INTEGERS)).limit(1).isEmpty()

    @cached_property
    def odd_times(self) -> bool:
        """Whether there are times with a lexical form or datatype other than the default."""
        odd = "time_text IS NOT NULL OR time_datatype IS NOT NULL"
        return not self.whole_rows.where(odd).limit(1).isEmpty()

    def triples(self, predicates: Collection[str] | None, *, general: bool) -> DataFrame:
        """Return the triples of all rows, or of the general rows, with duplicates."""
        rows = self.general_rows if general else self.rows
        parts = []
        if not general or (self.chosen and not self.whole_chosen):
            parts.append(of_cells(rows, predicates))
        if self.quads or not parts:
            parts.append(of_quads(rows, predicates))
        return reduce(DataFrame.unionByName, parts)
