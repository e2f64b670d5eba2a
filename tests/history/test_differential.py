"""Random queries over random observations: Spark and rdflib must give the same answers on the exported data.

Both rewrites are tested: wide rows and triples. The histories take turns: each query is sent to one of them, so that a
run has more different queries. $EDGE_HISTORY_DIFFERENTIAL, for example `1000:2000`, selects the queries of a long run;
the default is a few.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from cached_triples import both_ways
from generated_queries import Query, query
from history_data import EXPLICIT, MAPPED, ODD, ONCE, frame, history
from history_oracles import Oxigraph, Rdflib, Row, canonical, rounded

from spark_offload import export
from spark_offload.errors import QueryRefused
from spark_offload.history import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, _, LAST = os.environ.get("EDGE_HISTORY_DIFFERENTIAL", "0:16").partition(":")
NUMBERS = range(int(FIRST), int(LAST))
HISTORIES = {
    "mapped": ((MAPPED, 24),),
    "chosen": ((MAPPED, 16), (EXPLICIT, 10)),
    "once": ((MAPPED, 12), (ONCE, 12)),
    "odd": ((MAPPED, 14), (EXPLICIT, 6), (ODD, 8)),
}
SMALL = {
    # Tables are small and plans are many: Spark's optimizations for large tables take longer than the queries.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}


class World:
    """A history, and the oracles that know its content."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        session = spark.newSession()
        for key, value in SMALL.items():
            session.conf.set(key, value)
        stored = history(*HISTORIES[name], number=list(HISTORIES).index(name))
        rows = frame(session, stored).coalesce(1).cache()
        lines = [row.line for row in export.lines(rows).collect()]
        self.rdflib, self.oxigraph = Rdflib(lines), Oxigraph(lines)
        self.histories = both_ways(session, rows)


@pytest.fixture(scope="module")
def world(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[World]:
    logging.getLogger("rdflib.term").disabled = True  # it warns of malformed literals
    yield World(spark, request.param)
    spark.catalog.clearCache()
    logging.getLogger("rdflib.term").disabled = False


@pytest.mark.parametrize(
    ("world", "number"),
    [(name, number) for place, name in enumerate(HISTORIES) for number in NUMBERS if number % len(HISTORIES) == place],
    indirect=["world"],
)
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:Dataset:DeprecationWarning:rdflib")  # it warns about itself
def test_answers_are_those_of_rdflib(world: World, number: int) -> None:
    sample = query(number)
    whole = world.rdflib.answer(sample.text, sample.form)
    for way, asking in world.histories.items():
        try:
            found = answer(asking, sample)
        except QueryRefused:
            return  # by name; that is not a wrong answer
        if whole is None or wrong(sample, found, whole):
            # rdflib turns a blank node into a text, and some errors stop it. Oxigraph has neither fault, but does not
            # distinguish lexical forms.
            found = [tuple(canonical(term) for term in row) for row in found]
            reason = wrong(sample, found, world.oxigraph.answer(sample.text, sample.form))
            assert not reason, f"{way}: {reason}\n{sample}"


def answer(history: History, sample: Query) -> list[Row]:
    """Return Spark's solutions, with columns sorted by name; one row or none for an ASK."""
    if sample.form == "ASK":
        return [()] if history.ask(str(sample)) else []
    found = history.sparql(str(sample)) if sample.form == "SELECT" else history.construct(str(sample))
    names = sorted(found.columns) if sample.form == "SELECT" else ["subject", "predicate", "object"]
    return [tuple(row) for row in found.select(*(f"`{name}`" for name in names)).collect()]


def wrong(sample: Query, found: list[Row], whole: list[Row]) -> str:
    """Return why these are wrong solutions, or an empty text. `whole`: the solutions without LIMIT."""
    if sample.computed or sample.order:
        found, whole = ([tuple(map(rounded, row)) for row in rows] for rows in (found, whole))
    count = len(whole) if sample.limit is None else min(sample.limit, len(whole))
    if sample.order and found != whole[:count]:
        return f"{found} is not {whole[:count]}"
    if more := Counter(found) - Counter(whole):
        return f"{dict(more)} is not one of {whole}"
    return (
        "" if len(found) == count else f"{count} expected, {len(found)} found: {dict(Counter(whole) - Counter(found))}"
    )
