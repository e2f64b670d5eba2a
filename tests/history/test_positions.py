"""The position up to which the table is complete, with several writers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from history_data import DAY, SECOND, numbered, readings, write
from ingest_sender import EPOCH, Sender

from spark_offload.commit_files import read_commits
from spark_offload.errors import TableRefused
from spark_offload.ingest import ingest
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.maintain import maintain
from spark_offload.positions import counted, history, place
from spark_offload.status import status
from spark_offload.table import SCHEMA, make_table, named, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

BOX = OutboxEpoch("box-1", EPOCH)
OBSERVATIONS = readings("a1", range(60), every=DAY // 20)


def test_new_and_missing_tables(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    with pytest.raises(TableRefused, match="does not exist"):
        place(spark, table)
    make_table(spark, table)
    make_table(spark, table)
    assert place(spark, table) == (0, {})
    with pytest.raises(TableRefused, match="no version 7"):
        open_table(spark, table, 7)


def assert_read_from_files(spark: SparkSession, table: str) -> None:
    """Compare the commits in the files of the log with those that Delta lists."""
    read = read_commits(Path(table), None)
    assert read == [{name: commit[name] for name in read[0]} for commit in history(spark, table, None)]
    assert read_commits(Path(table), 2) == read[:2]


def test_commits_of_other_writers_are_tolerated(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", str(tmp_path / "table")
    sender = Sender(landing, OBSERVATIONS)
    sender.send(1, 20)
    ingest(spark, landing, table)
    sender.send(21, 30)
    ingest(spark, landing, table)
    sender.send(31, 40)
    ingest(spark, landing, table)
    before = place(spark, table)
    assert before.positions == counted(spark, table, before.version) == {BOX: 40}

    done = maintain(spark, table)
    assert (done.compacted, done.into) == (2, 1)
    assert place(spark, table).positions == {BOX: 40}
    assert open_table(spark, table).count() == 40

    # A user who deletes old rows, even all of them, does not want them again.
    spark.sql(f"DELETE FROM {named(table)} WHERE seq > 10")
    assert place(spark, table).positions == {BOX: 40}
    assert ingest(spark, landing, table)[0].observations == 0

    # Rows of another writer: they are counted.
    write(spark, tmp_path / "table", numbered(OBSERVATIONS[:5], epoch="00000000000000bb"))
    assert place(spark, table).positions == {BOX: 10, OutboxEpoch("box-1", "00000000000000bb"): 5}

    # Restored to a version: later rows come again from the landing zone, which keeps them for some time.
    spark.sql(f"RESTORE TABLE {named(table)} TO VERSION AS OF 1")
    assert place(spark, table).positions == {BOX: 20}
    assert sender.acknowledged == 40
    assert ingest(spark, landing, table)[0].observations == 20
    assert sorted(row.seq for row in open_table(spark, table).collect()) == list(range(1, 41))
    assert_read_from_files(spark, table)


def test_the_last_commit_with_positions_is_found(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", str(tmp_path / "table")
    Sender(landing, OBSERVATIONS).send(1, 5)
    ingest(spark, landing, table)
    spark.sql(f"DELETE FROM {named(table)}")
    for number in range(22):
        spark.sql(f"ALTER TABLE {named(table)} SET TBLPROPERTIES ('note' = '{number}')")
    assert place(spark, table) == (24, {BOX: 5})
    assert_read_from_files(spark, table)


def test_status_reports_gaps_quarantine_and_waiting_segments(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", str(tmp_path / "table")
    one, two = Sender(landing, OBSERVATIONS), Sender(landing, OBSERVATIONS, gateway="box-2")
    one.send(1, 10)
    one.drop(11, 15)
    two.send(11, 20).write_text("damaged")
    two.send(21, 30)
    two.send(1, 10)
    ingest(spark, landing, table)
    one.send(16, 20)
    reported = status(spark, table, LandingZone(landing))
    first, second = reported.outboxes
    assert (first.outbox, first.last, first.observations, first.lost, first.acknowledged) == (BOX, 15, 10, 5, 15)
    assert (first.waiting, first.gap) == (1, None)
    assert [int(moment.timestamp() * SECOND) for moment in (first.oldest, first.newest)] == [
        cells.time for _, cells in (OBSERVATIONS[0], OBSERVATIONS[9])
    ]
    assert (second.last, second.waiting, second.gap.first, second.gap.last) == (10, 1, 11, 20)
    assert [fault.stem for fault in reported.quarantined] == ["000000000011-000000000020"]
    assert [one.last for one in status(spark, table).outboxes] == [15, 10]


def test_a_table_has_the_columns_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    make_table(spark, table)
    assert open_table(spark, table).schema.names == SCHEMA.names
