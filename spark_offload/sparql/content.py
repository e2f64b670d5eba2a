"""What is in a version of the table, as far as it decides how questions are answered. Asked once, when it is needed."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property, reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import EPOCH_LENGTH
from spark_offload.sparql import lexical
from spark_offload.sparql.stars import CLASSES, EDGES, PREDICATES, TYPE
from spark_offload.table import NUMBERS
from spark_offload.triples import of_cells, of_quads

_DERIVED: Final = rf"[^<> ]*/[0-9a-f]{{{EPOCH_LENGTH}}}-[0-9]+(/result|/instant)?"


def _any(iris: Collection[str]) -> str:
    return "|".join(map(re.escape, sorted(iris)))


_CROSSING: Final = (
    rf"(?m)^<{_DERIVED}> <({_any(PREDICATES - {TYPE})})> "
    rf"|^<{_DERIVED}> <{re.escape(TYPE)}> <({_any(CLASSES)})> "
    rf"|<({_any(EDGES)})> <{_DERIVED}> "
)
"""Quads that say of the resources of a row what rows say."""


class Content:
    """Of a table at a version."""

    def __init__(self, rows: DataFrame) -> None:
        """`rows` of the table."""
        self.rows = rows
        self.general_rows = rows.where("series IS NULL AND lost IS NULL")

    @cached_property
    def chosen(self) -> bool:
        """Whether there are observations whose IRIs a client chose."""
        return not self.general_rows.where("quads IS NULL").limit(1).isEmpty()

    @cached_property
    def quads(self) -> bool:
        """Whether there are rows that do not fit."""
        return not self.general_rows.where("quads IS NOT NULL").limit(1).isEmpty()

    @property
    def general(self) -> bool:
        """Whether there are observations of which the mapping does not know everything: their triples are joined."""
        return self.chosen or self.quads

    @cached_property
    def crossing(self) -> bool:
        """Whether some of these speak of what the mapping stored as a row does: no row tells all of itself then."""
        if not self.general:
            return False
        own = [F.col(column).rlike(rf"^{_DERIVED}$") for column in ("observation", "result", "instant")]
        crossing = F.col("quads").rlike(_CROSSING)
        for column in own:
            crossing = F.coalesce(column, F.lit(False)) | F.coalesce(crossing, F.lit(False))
        return not self.general_rows.where(crossing).limit(1).isEmpty()

    @cached_property
    def odd_numbers(self) -> bool:
        """Whether there are numbers that have no `value`."""
        others = [datatype for datatype in lexical.NUMBERS if datatype not in NUMBERS]
        odd = F.col("datatype").isin(*others) | F.col("value_text").isin("INF", "-INF", "+INF", "NaN")
        rows = self.rows.where("series IS NOT NULL AND value IS NULL")
        return not rows.where(odd).limit(1).isEmpty()

    @cached_property
    def odd_times(self) -> bool:
        """Whether there are times that are written in a way of their own."""
        odd = "series IS NOT NULL AND (time_text IS NOT NULL OR time_datatype IS NOT NULL)"
        return not self.rows.where(odd).limit(1).isEmpty()

    def triples(self, predicates: Collection[str] | None, *, general: bool) -> DataFrame:
        """The triples of all rows, or of the general ones, as often as they are told."""
        rows = self.general_rows if general else self.rows
        told = []
        if self.chosen or not general:
            told.append(of_cells(rows, predicates))
        if self.quads or not told:
            told.append(of_quads(rows, predicates))
        return reduce(DataFrame.unionByName, told)
