"""Deleted observations leave no traces in the table, and do not come back."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from history_data import DAY, EX, MIDNIGHT, readings
from ingest_sender import EPOCH, Sender

from edge.outbox.observation import XSD, Cells, ObservationContext
from spark_offload import commit, newest_rows
from spark_offload import delete as deletion
from spark_offload.cli import edge_history
from spark_offload.deletions import Deletions, Filter, digest
from spark_offload.errors import TableRefused
from spark_offload.ingest import ingest
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.maintain import maintain
from spark_offload.positions import history, place
from spark_offload.table import named, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

BOX = OutboxEpoch("box-1", EPOCH)
SENSOR = f"{EX}sensor/a1"
NEVER = MIDNIGHT + 1000 * DAY
ALICE = Filter(NEVER, sensor=digest(SENSOR))
_OWN = ObservationContext(sensor=SENSOR, feature=f"{EX}place/a", datatype=XSD + "decimal")
OBSERVATIONS = [
    *readings("b2", range(10), every=DAY // 4),
    *readings("a1", range(10), every=DAY // 4),
    (_OWN, Cells(MIDNIGHT, "5", None, f"{EX}alice/7", f"{EX}alice/7/r", f"{EX}alice/7/i")),
    (ObservationContext(), Cells(MIDNIGHT, quads=f"<{EX}alice> <{EX}knows> <{SENSOR}> .")),
    (ObservationContext(), Cells(MIDNIGHT, quads=f"<{EX}bob> <{EX}knows> <{EX}sensor/b2> .")),
    *readings("a1", range(7)),
]
"""Of box-1: 1 to 10 and 23 stay, 11 to 22 and the last ones are about the deleted sensor."""


class Store:
    """A landing zone and a table with the observations of a gateway."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.landing = folder / "landing"
        self.table = folder / "table"

    def ingest(self) -> int:
        """Ingest; return the number of observations."""
        rounds = ingest(self.spark, self.landing, self.table)
        assert [problem for one in rounds for problem in one.problems] == []
        return sum(one.observations for one in rounds)

    def delete(self, one: Filter = ALICE) -> deletion.Deleted:
        return deletion.delete(self.spark, LandingZone(self.landing), str(self.table), one, "ann", "ticket 7")

    def numbers(self) -> list[int]:
        """Return the numbers of the observations in the table."""
        rows = open_table(self.spark, str(self.table)).where("lost IS NULL AND gateway = 'box-1'").select("seq")
        return sorted(row.seq for row in rows.collect())

    def assert_no_traces(self) -> None:
        """Look for the deleted values in all files: of the table, its log and the landing zone."""
        assert self.numbers() == [*range(1, 11), 23]
        assert place(self.spark, str(self.table)).positions[BOX] == 30
        files = [path for path in self.table.parent.rglob("*") if path.is_file()]
        for path in files:
            text = path.read_bytes()
            if path.suffix == ".parquet":
                text = str(pq.ParquetFile(path).read().to_pylist()).encode()
            for trace in (b"alice", b"sensor/a1"):
                assert trace not in text, path
        assert len(list(self.table.rglob("*.json"))) <= 3, "the log begins again"
        read = deltalake.DeltaTable(self.table).to_pyarrow_table(columns=["seq", "lost"]).to_pylist()
        assert sorted(row["seq"] for row in read if row["lost"] is None) == [*range(1, 11), 23]


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ingest the observations in two commits."""
    store = Store(spark, tmp_path_factory.mktemp("filled"))
    sender = Sender(store.landing, OBSERVATIONS)
    for first, last in ((1, 12), (13, 23), (24, 30)):
        sender.send(first, last)
        if last != 23:
            store.ingest()
    assert newest_rows.complete(spark, str(store.table), 60.0) == []
    return store.table.parent


@pytest.fixture
def store(spark: SparkSession, filled: Path, tmp_path: Path) -> Store:
    for name in ("landing", "table", ".table.newest-rows"):
        shutil.copytree(filled / name, tmp_path / name)
    return Store(spark, tmp_path)


@contextlib.contextmanager
def synced(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, set[str]]]:
    """Record which files were synced when VACUUM began, and which ones the table had then."""
    found: dict[str, set[str]] = {}
    paths: set[str] = set()
    sql, sync = store.spark.sql, commit.sync

    def recorded(path: Path) -> None:
        paths.add(str(path))
        sync(path)

    def watched(text: str) -> DataFrame:
        if text.startswith("VACUUM"):
            log = store.table / "_delta_log"
            read = [str(store.table / one) for one in deltalake.DeltaTable(store.table).file_uris()]
            found["files"] = {
                *read,
                *(str(Path(one).parent) for one in read),
                *(str(one) for one in log.iterdir() if one.is_file()),
            }
            found["files"].add(str(log))
            found["VACUUM"] = set(paths)
        return sql(text)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "sync", recorded)
        patch.setattr(store.spark, "sql", watched)
        yield found


def test_deleted_observations_leave_no_traces_and_do_not_come_back(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(store.table, tmp_path / "copy")
    version = deltalake.DeltaTable(store.table).version()
    with synced(store, monkeypatch) as before:
        done = store.delete()
    assert done.rows == 19
    assert done.version == version + 3, "one commit each for the rows, the filters and the last numbers"
    assert before["VACUUM"] >= before["files"]
    assert done.files == 6
    shutil.move(tmp_path / "copy", tmp_path.parent / f"{tmp_path.name}-copy")
    store.assert_no_traces()
    (begun, _, ended) = Deletions(str(store.table)).entries
    assert (begun["by"], begun["reason"], ended["rows"], ended["files"]) == ("ann", "ticket 7", 19, 6)

    # A segment that is sent again in another epoch, and new observations of the gateway.
    again = Sender(store.landing, OBSERVATIONS, epoch="00000000000000bb")
    again.send(9, 9)
    again.send(1, 8)
    again.send(10, 30)
    (one,) = ingest(store.spark, store.landing, store.table)
    assert (one.observations, one.deleted) == (11, 19)
    assert str(one).startswith("ingested 11 observations, left out 19 deleted ones (table version")
    assert place(store.spark, str(store.table)).positions[BOX._replace(epoch="00000000000000bb")] == 30

    # An older copy of the table.
    shutil.rmtree(store.table)
    shutil.move(tmp_path.parent / f"{tmp_path.name}-copy", store.table)
    store.spark.catalog.clearCache()
    store.delete()
    shutil.rmtree(store.landing / "box-1" / "00000000000000bb")
    store.assert_no_traces()


def test_an_older_table_is_cleaned_by_the_ingester(store: Store, tmp_path: Path) -> None:
    shutil.copytree(store.table, tmp_path / "copy")
    store.delete()
    shutil.rmtree(store.table)
    (tmp_path / "copy").rename(store.table)
    store.spark.catalog.clearCache()
    assert store.ingest() == 0
    store.assert_no_traces()
    (tmp_path / ".table.deletions").rename(tmp_path / "away")
    with pytest.raises(TableRefused, match="missing or does not belong to it: restore"):
        store.ingest()


def test_changes_of_other_programs_bring_nothing_back(store: Store, filled: Path) -> None:
    store.delete()
    open_table(store.spark, str(filled / "table")).createOrReplaceTempView("back")
    store.spark.sql(
        f"MERGE INTO {named(str(store.table))} t USING back ON t.seq = back.seq AND t.epoch = back.epoch"
        " AND t.lost IS NULL WHEN NOT MATCHED THEN INSERT *"
    )
    assert len(store.numbers()) > 11
    assert store.ingest() == 0
    store.assert_no_traces()
    store.spark.sql(f"UPDATE {named(str(store.table))} SET sensor = '{SENSOR}' WHERE seq = 10")
    assert maintain(store.spark, str(store.table)).deleted == 1
    assert store.numbers() == [*range(1, 10), 23]
    assert maintain(store.spark, str(store.table)).deleted == 0


class Killed(BaseException):
    """The process ended."""


STEPS = ("remove_segments", "_row", "forget_versions", "sync")


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_deletion_continues(store: Store, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The process ends before each of these steps; the ingester runs before the command runs again."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(deletion, step, killed)
        with pytest.raises(Killed):
            store.delete()
    store.ingest()
    assert store.numbers() == [*range(1, 11), 23]
    assert store.delete().rows == 19
    store.assert_no_traces()
    assert Deletions(str(store.table)).unfinished == []


def test_old_observations_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.fromtimestamp(MIDNIGHT / 1e6, UTC).replace(day=2)

    def killed(*_: object, **__: object) -> None:
        raise Killed

    kept = store.table.with_name(".table.newest-rows")
    assert list(kept.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(deletion, "flush", killed)
        with pytest.raises(Killed):
            maintain(store.spark, str(store.table), drop=now, by="ann")
    assert not list(kept.glob("*.parquet")), "they had dropped values"
    commits = len(history(store.spark, str(store.table), None))
    assert maintain(store.spark, str(store.table), drop=now, by="ann").deleted == 18
    assert Deletions(str(store.table)).unfinished == [], "the interrupted retention period has ended"
    assert maintain(store.spark, str(store.table), drop=now.replace(day=1), by="ann").deleted == 0
    assert len(Deletions(str(store.table)).entries) == 3, "a weaker one is not recorded"
    assert len(history(store.spark, str(store.table), None)) > commits, "old versions are kept"
    left = [row.date for row in open_table(store.spark, str(store.table)).where("lost IS NULL").collect()]
    assert {day.isoformat() for day in left} == {"2026-01-02", "2026-01-03"}
    late = Sender(store.landing, OBSERVATIONS, gateway="box-2")
    late.send(1, 10)
    assert store.ingest() == 6
    assert place(store.spark, str(store.table)).positions == {BOX: 30, OutboxEpoch("box-2", EPOCH): 10}

    monkeypatch.setattr(newest_rows, "complete", lambda *_: [])
    assert maintain(store.spark, str(store.table), drop=now.replace(day=3), by="ann").deleted > 0
    path, version = str(store.table), place(store.spark, str(store.table)).version
    found = newest_rows.newest_rows(store.spark, path, version)
    assert found is not None, "they are known without a scan of the table"
    left = newest_rows.newest(open_table(store.spark, path, version)).collect()
    assert left
    assert sorted(map(str, newest_rows.newest(found).collect())) == sorted(map(str, left))


def test_delete_command(store: Store) -> None:
    options = ["--landing", str(store.landing), "--table", str(store.table)]
    refused = CliRunner().invoke(edge_history, ["delete", *options])
    assert refused.exit_code == 2
    assert "maintain --drop-raw-after" in refused.output
    refused = CliRunner().invoke(edge_history, ["delete", "--gateway", "a'b", *options])
    assert "is not the name of a gateway" in refused.output
    asked = CliRunner().invoke(edge_history, ["delete", "--sensor", SENSOR, *options], input="n\n")
    assert "Delete 19 observations" in asked.output
    assert asked.exit_code == 1
    done = CliRunner().invoke(
        edge_history, ["delete", "--gateway", "box-1", "--before", "2026-01-02", "--yes", *options]
    )
    assert done.output.startswith("deleted 18 observations, and 6 files of the landing zone (table version ")
    assert "12 such observations have later times and stay" in done.stderr
    dropped = CliRunner().invoke(edge_history, ["maintain", "--table", str(store.table), "--drop-raw-after", "1d"])
    assert dropped.output.startswith("deleted 12 observations\n")
    assert store.numbers() == []
    assert place(store.spark, str(store.table)).positions == {BOX: 30}
    waiting = Sender(store.landing, OBSERVATIONS, epoch="00000000000000bb").send(12, 13)
    asked = CliRunner().invoke(edge_history, ["delete", "--sensor", SENSOR, *options], input="y\nn\n")
    assert f"box-1/00000000000000bb/{waiting.stem} waits, and is removed with its other observations" in asked.stderr
    assert asked.exit_code == 1
    assert waiting.exists()
