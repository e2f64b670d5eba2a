"""A table that does not have what was acknowledged, and gaps that an operator accepts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from history_data import readings
from ingest_sender import EPOCH, Sender
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_offload.cli import edge_history
from spark_offload.errors import TableRefused
from spark_offload.gaps import Missing, accept, missing
from spark_offload.ingest import ingest
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.landing_source.data_source import LandingOptions, LandingStreamReader
from spark_offload.positions import history, place
from spark_offload.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

OBSERVATIONS = readings("a1", range(60))
BOX = OutboxEpoch("box-1", EPOCH)


def stored(spark: SparkSession, table: Path) -> list[tuple[int, int | None]]:
    """Return number and `lost` of each row."""
    return sorted(tuple(row) for row in open_table(spark, str(table)).select("seq", "lost").collect())


def test_a_table_in_an_older_state_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    landing, table, copy = tmp_path / "landing", tmp_path / "table", tmp_path / "copy"
    sender, other = Sender(landing, OBSERVATIONS), Sender(landing, OBSERVATIONS, gateway="box-2")
    sender.send(1, 10)
    ingest(spark, landing, table)
    shutil.copytree(table, copy)
    sender.send(11, 20)
    ingest(spark, landing, table, keep=0)
    shutil.rmtree(table)
    copy.rename(table)
    spark.catalog.clearCache()
    sender.send(21, 30)
    other.send(1, 10)

    (done,) = ingest(spark, landing, table)
    assert done.observations == 10
    (problem,) = done.problems
    assert problem.startswith(f"box-1/{EPOCH}: observations 11 to 20 were acknowledged, but are not in the table")
    assert "edge-history gaps accept box-1 --landing" in problem
    assert place(spark, str(table)).positions == {BOX: 10, OutboxEpoch("box-2", EPOCH): 10}

    assert accept(spark, LandingZone(landing), str(table), ["box-1"], "restored") == [
        Missing(BOX, 11, 20, acknowledged=True)
    ]
    assert '"accepted":"restored"' in history(spark, str(table))[0]["userMetadata"]
    (done,) = ingest(spark, landing, table)
    assert (done.observations, done.problems) == (10, [])
    rows = stored(spark, table)
    assert [one for one in rows if one[1]] == [(20, 10)]
    assert len(rows) == 31


def test_a_missing_table_is_not_made_again_silently(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", tmp_path / "table"
    sender = Sender(landing, OBSERVATIONS)
    sender.send(1, 10)
    ingest(spark, landing, table, keep=0)
    shutil.rmtree(table)
    sender.send(11, 20)
    with pytest.raises(TableRefused, match="observations of 1 gateways were acknowledged: mount or restore"):
        ingest(spark, landing, table)
    assert not table.exists()
    assert accept(spark, LandingZone(landing), str(table), None, "new") == [Missing(BOX, 1, 10, acknowledged=True)]
    (done,) = ingest(spark, landing, table)
    assert done.observations == 10


def test_gaps_are_listed_and_accepted_by_command(spark: SparkSession, tmp_path: Path) -> None:
    """A stream that reads the landing zone continues after an accepted gap, with the rows of the table."""
    landing, table = tmp_path / "landing", tmp_path / "table"
    Sender(landing, OBSERVATIONS).send(1, 10)
    stream = LandingStreamReader(LandingOptions.of({"path": str(landing), "startingOffsets": "earliest"}))
    offset = stream.latestOffset({}, ReadAllAvailable())
    ingest(spark, landing, table)
    for first in (16, 31):
        Sender(landing, OBSERVATIONS).send(first, first + 9)
    assert list(missing(LandingZone(landing), {BOX: 10})) == [Missing(BOX, 11, 15, acknowledged=False)]
    options = ["--landing", str(landing), "--table", str(table)]
    run = CliRunner().invoke(edge_history, ["gaps", "list", *options])
    assert run.output == f"box-1/{EPOCH}: observations 11 to 15 missing\n"
    refused = CliRunner().invoke(edge_history, ["gaps", "accept", *options])
    assert refused.exit_code == 2
    assert "Name the gateways, or give --all." in refused.output
    run = CliRunner().invoke(edge_history, ["gaps", "accept", "box-1", *options])
    assert run.output == f"box-1/{EPOCH}: observations 11 to 15 accepted as lost\n"
    run = CliRunner().invoke(edge_history, ["gaps", "accept", "--all", *options])
    assert "earlier observations of box-1" in str(run.exception)
    ingest(spark, landing, table)
    run = CliRunner().invoke(edge_history, ["gaps", "accept", "--all", *options])
    assert run.output == f"box-1/{EPOCH}: observations 26 to 30 accepted as lost\n"
    ingest(spark, landing, table)
    run = CliRunner().invoke(edge_history, ["gaps", "list", *options])
    assert run.output == "no observations are missing\n"
    assert [seq for seq, lost in stored(spark, table) if lost] == [15, 30]
    after = stream.latestOffset(offset, ReadAllAvailable())
    assert (offset, after) == ({str(BOX): 10}, {str(BOX): 40})
    streamed = [
        (row["seq"], row["lost"], row["ts"])
        for partition in stream.partitions({}, after)
        for batch in stream.read(partition)
        for row in batch.to_pylist()
    ]
    kept = open_table(spark, str(table)).orderBy("seq").selectExpr("seq", "lost", "unix_micros(ts)").collect()
    assert [(seq, lost, int(ts.timestamp() * 1e6 + 0.5)) for seq, lost, ts in streamed] == [tuple(row) for row in kept]


@pytest.mark.parametrize(
    "files",
    [(), (".00000000000000000000.json.0a1b.tmp", ".00000000000000000000.json.crc"), ("00000000000000000000.json",)],
    ids=["empty", "temporary", "empty-commit"],
)
def test_a_log_without_a_commit_is_no_table(spark: SparkSession, tmp_path: Path, files: tuple[str, ...]) -> None:
    """A full disk ended its creation. The next round creates the table, unless observations were acknowledged."""
    landing, table = tmp_path / "landing", tmp_path / "table"
    (table / "_delta_log" / "_staged_commits").mkdir(parents=True)
    for file in files:
        (table / "_delta_log" / file).touch()
    Sender(landing, OBSERVATIONS).send(1, 10)
    zone = LandingZone(landing)
    zone.acknowledge({BOX: 1}, 1)
    with pytest.raises(TableRefused, match="observations of 1 gateways were acknowledged"):
        ingest(spark, landing, table)
    (landing / "box-1" / "ack.json").unlink()
    (done,) = ingest(spark, landing, table)
    assert (done.observations, done.version) == (10, 1)


def test_a_log_without_its_commits_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """A checkpoint, or any other file, shows that there was a table."""
    landing, table = tmp_path / "landing", tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    checkpoint = table / "_delta_log" / "00000000000000000010.checkpoint.parquet"
    checkpoint.write_bytes(b"PAR1")
    Sender(landing, OBSERVATIONS).send(1, 10)
    with pytest.raises(Exception, match=r"table|Delta|DELTA"):
        ingest(spark, landing, table)
    assert checkpoint.exists()
