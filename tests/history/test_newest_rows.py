"""The newest rows next to the table: always those of all rows, whatever happens to the table."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from history_data import EX, readings
from ingest_sender import Sender

from edge.outbox.observation import OWL_TIME, QUDT, SOSA, XSD, Cells, ObservationContext
from spark_offload import commit, newest_rows
from spark_offload.cli import edge_history
from spark_offload.history import History
from spark_offload.ingest import ingest
from spark_offload.latest import latest
from spark_offload.log_changes import added_after
from spark_offload.maintain import maintain
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
        self.folder = folder / ".table.newest-rows"
        self.senders = [Sender(self.landing, _observations(box), f"box-{box}", box * 16) for box in "ab"]
        self.sent = [0, 0]

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())

    def send(self, box: int, count: int) -> None:
        first, self.sent[box] = self.sent[box] + 1, self.sent[box] + count
        self.senders[box].send(first, self.sent[box])

    def ingest(self, box: int, count: int) -> None:
        self.send(box, count)
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
        """Return whether queries use the kept rows."""
        found = newest_rows.newest_rows(self.spark, str(self.table), place(self.spark, self.table).version)
        return found is not None

    def complete(self) -> list[str]:
        return newest_rows.complete(self.spark, str(self.table), 60.0)

    def deleting(self, condition: str) -> Callable[..., contextlib.AbstractContextManager[None]]:
        """Return a lock of the table that is held by another program before, which deletes rows."""

        def alone(*arguments: Any) -> contextlib.AbstractContextManager[None]:
            deltalake.DeltaTable(self.table).delete(condition)
            return commit.alone(*arguments)

        return alone


def _observations(box: str) -> list[tuple[ObservationContext, Cells]]:
    """Return observations of three sensors in no order of time, many with the same time."""
    made = [one for sensor in (1, 2, 3) for _ in range(2) for one in readings(f"{box}{sensor}", range(30))]
    random.Random(box).shuffle(made)
    return made


def test_the_newest_rows_are_those_of_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(spark, tmp_path)
    monkeypatch.setattr(newest_rows, "_FEW", 100)
    store.ingest(0, 60)
    store.table.chmod(0o750)
    options = ["--table", str(store.table), "--format", "json", "--sensor", f"{EX}sensor/a1"]
    (row,), other = (
        json.loads(CliRunner().invoke(edge_history, ["latest", *options, "--engine", engine]).stdout)
        for engine in ("spark", "duckdb")
    )
    assert other == [row]
    assert f'"{row["value_text"]}"^^<{XSD}decimal>' == store.last()[f"<{row['sensor']}>"]
    older = tmp_path / "older"
    shutil.copytree(store.table, older)

    monkeypatch.setattr(newest_rows, "_FEW", 10_000)
    store.ingest(1, 2)
    assert len(store.files) == 1, "not enough new rows"
    with monkeypatch.context() as patch:
        patch.setattr(newest_rows, "MOST_COMMITS", 2)
        store.ingest(1, 1)
    assert len(store.files) == 2, "later, only maintenance could renew them"
    asked = History(spark, store.table)
    for query in (LAST, GRAPH):
        assert {tuple(row) for row in asked.sparql(query).collect()} == set(store.last().items())
    assert vars(asked._content)["newest_whole_rows"] is not None
    assert "a star: one scan of the newest rows" in asked.explain(LAST)

    deltalake.DeltaTable(store.table).delete(f"sensor = '{EX}sensor/a2'")
    assert not store.used
    with monkeypatch.context() as patch:
        patch.setattr(newest_rows, "alone", store.deleting(f"sensor = '{EX}sensor/a3'"))
        assert store.complete() == []
    assert not store.used, "rows were deleted while the newest ones were read"
    assert store.complete() == []
    assert {f"<{row.sensor}>" for row in latest(spark, store.table).collect()} == {
        one for one in store.last() if one[-3:] not in ("a2>", "a3>")
    }
    assert store.used
    assert store.files[-1].parent.stat().st_mode & 0o777 == 0o750
    *old, kept = store.files

    # Another table at the same place has the same numbers of versions.
    for each in old:
        each.unlink()
    newer = tmp_path / "newer"
    store.table.rename(newer)
    shutil.copytree(older, store.table)
    version = place(spark, store.table).version
    kept.rename(kept.with_name(f"{version:020d}.{kept.name.split('.', 1)[1]}"))
    assert not store.used


def test_newest_rows_that_cannot_be_kept(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(spark, tmp_path)
    store.ingest(0, 60)
    for limit in ("_MOST_ROWS", "_MOST_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(newest_rows, limit, 2)
            assert store.complete() == []
            assert store.files[-1].stat().st_size == 0
            assert not store.used
            patch.setattr(newest_rows, "newest", None)
            assert store.complete() == [], "it does not look again"
        newest_rows.forget(str(store.table))
    assert store.complete() == []
    assert store.used
    content = store.files[-1].read_bytes()
    for damaged in (b"", content[:-9], content[:50] + bytes(len(content) - 100) + content[-50:]):
        store.files[-1].write_bytes(damaged)
        assert not store.used
        assert len(latest(spark, store.table).collect()) == 3
        assert store.complete() == []
        assert store.used, "maintenance replaces the file"
    newest_rows.forget(str(store.table))
    store.folder.touch()
    monkeypatch.setattr(newest_rows, "_FEW", 1)
    store.send(0, 10)
    (done,) = ingest(spark, store.landing, store.table)
    assert "newest rows" in done.problems[0]
    assert done.observations == 10
    assert "newest rows" in maintain(spark, store.table).problems[0]


def test_only_added_rows_are_read_in_addition_to_kept_ones(tmp_path: Path) -> None:
    rows = [pa.table({"a": [number], "b": [number]}) for number in range(4)]
    for one in rows[:3]:
        deltalake.write_deltalake(tmp_path, one, mode="append")
    table = deltalake.DeltaTable(tmp_path)
    found = added_after(tmp_path, 0, 2, 9)
    assert found is not None
    assert found.rows == 2
    assert sorted(pq.read_table(one)["a"].to_pylist() for one in found.paths) == [[1], [2]]
    assert (whole := added_after(tmp_path, -1, 2, 9)) is not None
    assert whole.rows == 3
    assert added_after(tmp_path, -1, 2, 2) is None, "too many rows"
    table.optimize.compact()
    assert added_after(tmp_path, 2, 3, 9) == ((), 0), "the same rows"
    assert added_after(tmp_path, 1, 3, 9) is None, "the added rows are in a file with others"
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
        assert added_after(tmp_path, version, version, 9) == ((), 0)
        assert added_after(tmp_path, version, version + 1, 9) is None
        table = deltalake.DeltaTable(tmp_path)
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    assert added_after(tmp_path, 1, 4, 9) is None
