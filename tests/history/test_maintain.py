"""Maintenance of the table: migration of old schemas, protection of newer ones, removal of unused files."""

from __future__ import annotations

import fcntl
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from history_data import numbered, readings, write
from ingest_sender import Sender

from spark_offload.cli import edge_history
from spark_offload.commit import alone, maintaining
from spark_offload.errors import TableBusy, TableRefused
from spark_offload.ingest import ingest
from spark_offload.maintain import maintain
from spark_offload.table import SCHEMA, make_table, named, open_table
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

OBSERVATIONS = readings("a1", range(20))


def test_maintain_adds_missing_columns(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", str(tmp_path / "table")
    old = [name for name in SCHEMA.names if name not in ("replayed", "lost")]
    write(spark, tmp_path / "newest", numbered(OBSERVATIONS))
    open_table(spark, str(tmp_path / "newest")).select(old).write.format("delta").partitionBy("date").save(table)
    Sender(landing, OBSERVATIONS).send(1, 10)
    with pytest.raises(TableRefused, match="edge-history maintain"):
        ingest(spark, landing, table)
    assert maintain(spark, table).columns == ["replayed", "lost"]
    assert maintain(spark, table).columns == []
    assert ingest(spark, landing, table)[0].observations == 10
    assert open_table(spark, table).count() == 30


def test_newer_and_foreign_tables_are_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    table, other = str(tmp_path / "table"), str(tmp_path / "other")
    make_table(spark, table)
    spark.sql(f"ALTER TABLE {named(table)} SET TBLPROPERTIES ('edge.history.schema' = '99')")
    with pytest.raises(TableRefused, match="has schema 99, and this program supports 1: update"):
        maintain(spark, table)
    spark.range(3).write.format("delta").save(other)
    with pytest.raises(TableRefused, match="is not a history"):
        maintain(spark, other)
    with pytest.raises(TableRefused, match="does not exist"):
        maintain(spark, str(tmp_path / "nowhere"))


def test_files_that_no_version_needs_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """Replaced files, and those that a killed ingester left."""
    landing, table = tmp_path / "landing", tmp_path / "table"
    sender = Sender(landing, OBSERVATIONS)
    for first in (1, 11):
        sender.send(first, first + 9)
        ingest(spark, landing, table)
    (part, _) = sorted(table.glob("date=*/*.parquet"))
    orphan = part.with_name("part-00000-of-nobody.c000.zstd.parquet")
    orphan.write_bytes(part.read_bytes())
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        maintain(spark, str(table), retention=timedelta(milliseconds=1))
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    (left,) = table.glob("date=*/*.parquet")
    assert left not in (part, orphan)
    assert sorted(row.seq for row in open_table(spark, str(table)).collect()) == list(range(1, 21))


def test_processes_that_wait_for_a_table_take_turns(spark: SparkSession, tmp_path: Path) -> None:
    """Maintenance releases the table between its steps: an ingester that waits gets it before the next step."""
    table, entered = str(tmp_path / "table"), threading.Event()

    def wait() -> None:
        with alone(spark, table, 60):
            entered.set()

    waiting = threading.Thread(target=wait)
    with (tmp_path / ".table.lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        waiting.start()
        wait_for(lambda: _is_locked(tmp_path / ".table.queue"), what="a process waits for the table")
        with pytest.raises(TableBusy, match="wait until it has ended"), alone(spark, table):
            pass
        assert not entered.is_set()
    waiting.join(60)
    assert entered.is_set()
    with maintaining(spark, table), alone(spark, table):  # the same process, too
        with pytest.raises(TableBusy), alone(spark, table):
            pass
        with pytest.raises(TableBusy, match="maintain or delete"), maintaining(spark, table):
            pass


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("r+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.lockf(file, fcntl.LOCK_UN)
        return False


def test_ingest_status_and_maintain_commands(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, table = tmp_path / "landing", tmp_path / "table"
    Sender(landing, OBSERVATIONS).send(1, 10)
    Sender(landing, OBSERVATIONS, gateway="box-2").send(3, 4)
    runner = CliRunner()
    metrics = tmp_path / "ingest.prom"
    options = ["--landing", str(landing), "--table", str(table), "--metrics", str(metrics)]
    # An operator or a gateway may leave anything in the quarantine.
    (landing / "quarantine" / "box-1" / "00000000000000aa" / "000000000031-000000000040.reason").mkdir(parents=True)
    pauses = iter((False, True))
    monkeypatch.setattr("threading.Event.wait", lambda *_: next(pauses))
    ingested = runner.invoke(edge_history, ["ingest", *options, "--every", "5m"])
    monkeypatch.undo()
    assert next(pauses, None) is None, "it ran twice"
    assert ingested.exit_code == 0, ingested.output
    assert ingested.stdout == "ingested 10 observations (table version 1)\n"
    gap = "box-2/00000000000000aa: observations 1 to 2 are missing; 1 later segments have waited"
    assert ingested.stderr.count(gap) == 1, "a gap is reported once"
    lines = metrics.read_text().splitlines()
    assert {"edge_history_ingest_rounds_total 1", "edge_history_ingest_observations_total 10"} <= set(lines)
    assert 'edge_history_outbox_gap_observations{gateway="box-2",epoch="00000000000000aa"} 2' in lines
    reported = runner.invoke(edge_history, ["status", *options, "--json"])
    assert 'edge_history_outbox_observations{gateway="box-1",epoch="00000000000000aa"} 10' in metrics.read_text()
    assert "edge_history_ingest_rounds_total" not in metrics.read_text()
    assert reported.exit_code == 0, reported.output
    assert [(one["gateway"], one["last"], one["waiting"]) for one in json.loads(reported.stdout)["outboxes"]] == [
        ("box-1", 10, 0),
        ("box-2", 0, 1),
    ]
    assert "its reason cannot be read: " in json.loads(reported.stdout)["quarantined"][0]["reason"]
    again = runner.invoke(edge_history, ["ingest", *options[:4], "--metrics", str(tmp_path / "absent" / "x.prom")])
    assert again.exit_code == 0, again.output
    assert again.stderr.count("the metrics") == 1
    shown = runner.invoke(edge_history, ["status", "--table", str(table)])
    assert "2026-01-01T00:00:09.000Z" in shown.stdout
    kept = runner.invoke(edge_history, ["maintain", "--table", str(table)])
    assert kept.stdout == "compacted 0 files into 0\n"
    assert runner.invoke(edge_history, ["maintain", "--table", str(table), "--retention", "1"]).exit_code == 2
