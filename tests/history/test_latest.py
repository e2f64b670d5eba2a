"""The newest observations next to the table: always those of a full scan, whatever happens to the table."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from history_data import EX, readings
from ingest_sender import Sender

from edge.outbox.observation import OWL_TIME, QUDT, SOSA, Cells, ObservationContext
from spark_offload import latest as newest
from spark_offload.cli import edge_history
from spark_offload.history import History
from spark_offload.ingest import ingest
from spark_offload.latest import candidates, latest, newest_of_series
from spark_offload.maintain import maintain
from spark_offload.positions import place
from spark_offload.table import named, open_table
from spark_offload.triples import triples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

LAST = f"""PREFIX sosa: <{SOSA}> PREFIX qudt: <{QUDT}> PREFIX time: <{OWL_TIME}>
    SELECT ?s ?v {{ {{ SELECT ?s (MAX(?t) AS ?last) {{
        ?o sosa:madeBySensor ?s ; sosa:hasResult/time:hasTime/time:inXSDDateTimeStamp ?t }} GROUP BY ?s }}
    ?q sosa:madeBySensor ?s ; sosa:hasResult [ qudt:numericValue ?v ; time:hasTime/time:inXSDDateTimeStamp ?last ] }}"""
GRAPH = "SELECT ?subject ?predicate ?object { GRAPH <urn:edge:latest> { ?subject ?predicate ?object } }"


class Store:
    """A landing zone and a table, and the observations of two gateways."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.landing, self.table = folder / "landing", folder / "table"
        self.copies = folder / ".table.latest"
        self.senders = [Sender(self.landing, _observations(box), f"box-{box}", box * 16) for box in "ab"]
        self.sent = [0, 0]

    def ingest(self, box: int, count: int) -> None:
        first, self.sent[box] = self.sent[box] + 1, self.sent[box] + count
        self.senders[box].send(first, self.sent[box])
        assert [one.problems for one in ingest(self.spark, self.landing, self.table)] == [[]]

    def complete(self) -> None:
        newest.complete(self.spark, str(self.table), place(self.spark, self.table).version)

    @property
    def used(self) -> bool:
        """Return whether queries use the kept observations."""
        return candidates(self.spark, str(self.table), place(self.spark, self.table).version) is not None

    def check(self) -> bool:
        """Compare with a full scan. Returns `used`."""
        expected = newest_of_series(open_table(self.spark, self.table))
        assert rows_of(latest(self.spark, self.table)) == rows_of(expected)
        return self.used

    def check_command(self) -> None:
        options = ["--format", "json", "--sensor", f"{EX}sensor/a1"]
        found = CliRunner().invoke(edge_history, ["latest", "--table", str(self.table), *options]).stdout
        sent = self.senders[0].observations[: self.sent[0]]
        last = max(cells for context, cells in sent if context.sensor == f"{EX}sensor/a1")
        shown = [(row["series"], row["value_text"]) for row in json.loads(found)]
        assert shown == [(f"{EX}observation/a1", last.value)]

    def check_queries(self) -> None:
        """Compare with the evaluation over triples, and with the rows of a full scan."""
        kept = History(self.spark, self.table)
        assert rows_of(kept.sparql(LAST)) == rows_of(History(self.spark, self.table, wide=False).sparql(LAST))
        assert vars(kept._content)["newest_whole_rows"] is not None
        expected = triples(newest_of_series(open_table(self.spark, self.table))).drop("graph")
        assert rows_of(kept.sparql(GRAPH)) == rows_of(expected)


def _observations(box: str) -> list[tuple[ObservationContext, Cells]]:
    """Return observations of three sensors in no order of time, many with the same time."""
    made = [one for sensor in (1, 2, 3) for _ in range(2) for one in readings(f"{box}{sensor}", range(30))]
    random.Random(box).shuffle(made)
    return made


def rows_of(found: DataFrame) -> list[str]:
    return sorted(str(row.asDict()) for row in found.collect())


def test_the_newest_observations_equal_a_full_scan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "_LEAST_ROWS", 1)
    store = Store(spark, tmp_path)
    table = named(str(store.table))
    store.ingest(0, 60)
    older = tmp_path / "older"
    shutil.copytree(store.table, older)
    store.check_command()
    store.ingest(1, 2)
    assert len(list(store.copies.iterdir())) == 1, "not enough new rows for a new copy"
    assert store.check()
    store.check_queries()

    for change in (
        f"DELETE FROM {table} WHERE sensor = '{EX}sensor/a2' AND value > 20",
        f"UPDATE {table} SET ts = ts - INTERVAL 1 HOUR WHERE sensor = '{EX}sensor/a1' AND value > 10",
        f"RESTORE TABLE {table} TO VERSION AS OF {place(spark, store.table).version}",
    ):
        spark.sql(change)
        assert not store.used, change
        store.complete()
        assert store.used, change
    with monkeypatch.context() as killed:
        # As after a kill between the commit and the copy.
        killed.setattr(newest, "refresh", lambda *_: None)
        store.ingest(0, 30)
    assert store.check()
    spark.sql(f"OPTIMIZE {table}").collect()
    assert not store.used, "the added rows are in a file with others"
    store.ingest(1, 40)
    assert not store.used, "only maintenance reads the whole table"
    for one in store.copies.iterdir():
        os.utime(one, (0, 0))
    maintain(spark, store.table)
    assert store.check()
    (kept,) = store.copies.iterdir()

    # Another table at the same place has the same numbers of versions.
    shutil.rmtree(store.table)
    shutil.copytree(older, store.table)
    version = place(spark, store.table).version
    kept.rename(kept.with_name(f"{version:020d}.{kept.name.split('.', 1)[1]}"))
    assert not store.used
