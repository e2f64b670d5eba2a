"""The newest observations next to the table: always those of all rows, whatever happens to the table."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from history_data import EX, readings
from ingest_sender import Sender

from edge.outbox.observation import OWL_TIME, QUDT, SOSA, XSD, Cells, ObservationContext
from spark_offload import latest as newest
from spark_offload.cli import edge_history
from spark_offload.history import History
from spark_offload.ingest import ingest
from spark_offload.latest import candidates, latest
from spark_offload.log_changes import added_after
from spark_offload.positions import place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

PREFIXES = f"PREFIX sosa: <{SOSA}> PREFIX qudt: <{QUDT}> PREFIX time: <{OWL_TIME}> "
LAST = f"""{PREFIXES} SELECT DISTINCT ?s ?v {{ {{ SELECT ?s (MAX(?t) AS ?last) {{
        ?o sosa:madeBySensor ?s ; sosa:hasResult/time:hasTime/time:inXSDDateTimeStamp ?t }} GROUP BY ?s }}
    ?q sosa:madeBySensor ?s ; sosa:hasResult [ qudt:numericValue ?v ; time:hasTime/time:inXSDDateTimeStamp ?last ] }}"""
GRAPH = f"""{PREFIXES} SELECT ?s ?v {{
    GRAPH <urn:edge:latest> {{ ?o sosa:madeBySensor ?s ; sosa:hasResult/qudt:numericValue ?v }} }}"""


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

    def last(self) -> dict[str, str]:
        """Return the newest value of each sensor, as a term."""
        sent = (sender.observations[:count] for sender, count in zip(self.senders, self.sent, strict=True))
        # Observations of a sensor with the same time have the same value.
        found = sorted(
            ((cells.time, cells, context) for some in sent for context, cells in some), key=lambda one: one[0]
        )
        return {f"<{context.sensor}>": f'"{cells.value}"^^<{context.datatype}>' for _, cells, context in found}

    @property
    def used(self) -> bool:
        """Return whether queries use the kept observations."""
        return candidates(self.spark, str(self.table), place(self.spark, self.table).version) is not None


def _observations(box: str) -> list[tuple[ObservationContext, Cells]]:
    """Return observations of three sensors in no order of time, many with the same time."""
    made = [one for sensor in (1, 2, 3) for _ in range(2) for one in readings(f"{box}{sensor}", range(30))]
    random.Random(box).shuffle(made)
    return made


def test_the_newest_observations_are_those_of_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "_LEAST_ROWS", 1)
    store = Store(spark, tmp_path)
    store.ingest(0, 60)
    options = ["--table", str(store.table), "--format", "json", "--sensor", f"{EX}sensor/a1"]
    (row,) = json.loads(CliRunner().invoke(edge_history, ["latest", *options]).stdout)
    assert f'"{row["value_text"]}"^^<{XSD}decimal>' == store.last()[f"<{row['sensor']}>"]
    older = tmp_path / "older"
    shutil.copytree(store.table, older)

    store.ingest(1, 2)
    assert len(list(store.copies.iterdir())) == 1, "not enough new rows for a new copy"
    asked = History(spark, store.table)
    for query in (LAST, GRAPH):
        assert {tuple(row) for row in asked.sparql(query).collect()} == set(store.last().items())
    assert vars(asked._content)["newest_whole_rows"] is not None

    deltalake.DeltaTable(store.table).delete(f"sensor = '{EX}sensor/a2'")
    assert not store.used
    for one in store.copies.iterdir():
        os.utime(one, (0, 0))
    newest.complete(spark, str(store.table), place(spark, store.table).version)
    assert {f"<{row.sensor}>" for row in latest(spark, store.table).collect()} == {*store.last()} - {f"<{EX}sensor/a2>"}
    assert store.used
    (kept,) = store.copies.iterdir()

    # Another table at the same place has the same numbers of versions.
    shutil.rmtree(store.table)
    shutil.copytree(older, store.table)
    version = place(spark, store.table).version
    kept.rename(kept.with_name(f"{version:020d}.{kept.name.split('.', 1)[1]}"))
    assert not store.used


def test_only_added_rows_are_read_in_addition_to_kept_ones(tmp_path: Path) -> None:
    rows = [pa.table({"a": [number], "b": [number]}) for number in range(4)]
    for one in rows[:3]:
        deltalake.write_deltalake(tmp_path, one, mode="append")
    table = deltalake.DeltaTable(tmp_path)
    found = added_after(tmp_path, 0, 2)
    assert found is not None
    assert found.rows == 2
    assert sorted(pq.read_table(one)["a"].to_pylist() for one in found.paths) == [[1], [2]]
    assert (whole := added_after(tmp_path, -1, 2)) is not None
    assert whole.rows == 3
    table.optimize.compact()
    assert added_after(tmp_path, 2, 3) == ((), 0), "the same rows"
    assert added_after(tmp_path, 1, 3) is None, "the added rows are in a file with others"
    deltalake.write_deltalake(tmp_path, rows[3], mode="append")
    table = deltalake.DeltaTable(tmp_path)
    changes = (
        lambda: table.update({"b": "9"}, predicate="a = 3"),
        lambda: table.delete("a = 3"),
        lambda: table.restore(3),
        lambda: deltalake.write_deltalake(tmp_path, rows[0], mode="overwrite"),
    )
    for change in changes:
        version = deltalake.DeltaTable(tmp_path).version()
        change()
        assert added_after(tmp_path, version, version) == ((), 0)
        assert added_after(tmp_path, version, version + 1) is None
        table = deltalake.DeltaTable(tmp_path)
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    assert added_after(tmp_path, 1, 4) is None
