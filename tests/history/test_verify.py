"""Totals and provenance in the log of the table: exact after replays, deletions and changes by others, and verified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from history_data import DAY, MIDNIGHT, numbered, readings, write
from ingest_sender import EPOCH, Sender, rows_of

from edge.outbox.observation import SOSA
from edge.outbox.segment import MANIFEST, SegmentManifest
from spark_offload import totals
from spark_offload.cli import edge_history
from spark_offload.delete import begin, checked, delete
from spark_offload.deletions import Deletions, Filter
from spark_offload.errors import TableRefused
from spark_offload.gaps import accept
from spark_offload.history import History
from spark_offload.ingest import ingest
from spark_offload.landing import LandingZone, OutboxEpoch, PendingSegment
from spark_offload.maintain import maintain, steps
from spark_offload.positions import history, state
from spark_offload.provenance import Provenance
from spark_offload.rows import rows
from spark_offload.segment_selection import SelectedSegment
from spark_offload.status import status
from spark_offload.table import named, open_table
from spark_offload.totals import Totals
from spark_offload.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

BOX = OutboxEpoch("box-1", EPOCH)
OBSERVATIONS = readings("a1", range(60), every=DAY // 20)


@pytest.fixture(scope="module")
def site(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a landing zone and a table with 20 observations, five dropped ones, and a segment that came twice."""
    folder = tmp_path_factory.mktemp("verified")
    sender = Sender(folder / "landing", OBSERVATIONS)
    sender.send(1, 10)
    ingest(spark, folder / "landing", folder / "table")
    sender.send(11, 20)
    sender.send(11, 20)
    sender.drop(21, 25)
    ingest(spark, folder / "landing", folder / "table")
    return folder / "landing", str(folder / "table")


def counted(spark: SparkSession, table: str) -> dict[OutboxEpoch, Totals]:
    return totals.counted(open_table(spark, table))


def test_the_log_has_the_totals_and_the_segments(spark: SparkSession, site: tuple[Path, str]) -> None:
    landing, table = site
    found = state(spark, table)
    start = MIDNIGHT
    assert found.totals == counted(spark, table) == {BOX: Totals(20, 5, start, start + 19 * (DAY // 20))}
    provenance = Provenance(history(spark, table, None))
    segment = provenance.of(BOX, 12)
    manifest = SegmentManifest.from_json((landing / str(BOX) / f"{segment.stem}{MANIFEST}").read_bytes())
    assert (segment.first, segment.last, segment.sha256, segment.version) == (11, 20, manifest.sha256, 2)
    assert (len(provenance), provenance.of(BOX, 23).sha256, provenance.of(BOX, 26)) == (3, "", None)
    assert provenance.unknown(BOX, 30) == [(26, 30)]


def test_a_table_without_faults_is_verified(spark: SparkSession, site: tuple[Path, str]) -> None:
    landing, table = site
    options = ["--table", table, "--landing", str(landing)]
    found = CliRunner().invoke(edge_history, ["verify", *options, "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == {
        "version": 2,
        "rows": 21,
        "segments": 3,
        "compared": 2,
        "faults": [],
        "notes": [],
    }
    found = CliRunner().invoke(edge_history, ["verify", "--table", table, "--observation", f"{BOX}/12"])
    assert f"{BOX}/000000000011-000000000020.tsv.gz, SHA-256 " in found.stdout
    found = CliRunner().invoke(edge_history, ["verify", "--table", table, "--observation", "box-1/12"])
    assert found.exit_code == 2


def test_paths_and_names_in_a_catalog(spark: SparkSession, site: tuple[Path, str]) -> None:
    _, table = site
    spark.sql(f"CREATE TABLE default.stored USING delta LOCATION '{table}'")
    try:
        for one in (Path(table), "default.stored", "spark_catalog.default.stored"):
            assert open_table(spark, one).inputFiles() == open_table(spark, table).inputFiles()
        assert state(spark, "default.stored").version == status(spark, Path(table)).version == 2
        assert History(spark, Path(table)).ask(f"ASK {{ ?o <{SOSA}madeBySensor> ?s }}")
    finally:
        spark.sql("DROP TABLE default.stored")
    for unknown in ("default.stored", "nowhere.default.stored"):
        with pytest.raises(TableRefused, match="does not exist"):
            open_table(spark, unknown)


def test_faults_are_reported(spark: SparkSession, site: tuple[Path, str], tmp_path: Path) -> None:
    """Rows that another program doubled, changed and deleted, a damaged file, and a changed segment."""
    landing, table = tmp_path / "landing", str(tmp_path / "table")
    sender = Sender(landing, OBSERVATIONS)
    segment = sender.send(1, 10)
    ingest(spark, landing, table)
    write(spark, tmp_path / "table", numbered(OBSERVATIONS[:1], epoch=EPOCH))
    spark.sql(f"UPDATE {named(table)} SET value = 1e6 WHERE seq = 5")
    spark.sql(f"DELETE FROM {named(table)} WHERE seq BETWEEN 7 AND 8")
    spark.sql(f"INSERT INTO {named(table)} (topic) VALUES ('x')")
    spark.sql(f"INSERT INTO {named(table)} (gateway, epoch, seq) VALUES ('a/b', 'c', 1)")
    assert state(spark, table) == (6, {BOX: 10}, None)
    assert [one.outbox for one in status(spark, table, LandingZone(landing)).outboxes] == [BOX]
    done = verify(spark, table, LandingZone(landing))
    assert done.compared == 1
    assert sorted(done.faults) == sorted(
        [
            "version 2: another program has changed the rows (WRITE)",
            "version 3: another program has changed the rows (UPDATE)",
            "version 4: another program has changed the rows (DELETE)",
            "version 5: another program has changed the rows (WRITE)",
            "version 6: another program has changed the rows (WRITE)",
            "rows of another program, without a valid gateway, epoch or number: 2",
            f"{BOX}: number 1 is in the table more than once",
            f"{BOX}: the numbers 7 to 8 are not in the table",
            f"{BOX}: rows of the segment from 1 on are not in the table: 5, 7, 8",
            f"{BOX}: rows of the segment from 1 on are in the table, but not in it: 1, 5",
        ]
    )
    rows_of(segment).write_bytes(rows_of(segment).read_bytes()[:-1])
    file = max(Path(table).glob("date=2026-01-01/*.parquet"), key=lambda one: one.stat().st_mtime_ns)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 0xFF
    file.write_bytes(content)
    found = CliRunner().invoke(edge_history, ["verify", "--table", table, "--landing", str(landing)])
    assert found.exit_code == 3
    assert "fault: the table cannot be read: " in found.stdout


def test_verify_next_to_an_ingester(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commits and its cleaning cause no fault, but a manifest with wrong times does."""
    landing, table = tmp_path / "landing", str(tmp_path / "table")
    sender = Sender(landing, OBSERVATIONS)
    sender.send(1, 10)
    ingest(spark, landing, table)
    path = sender.send(11, 20)
    path.write_bytes(replace(SegmentManifest.from_json(path.read_bytes()), start=0).to_json())

    def checked_later(*arguments: Any) -> Deletions:
        ingest(spark, landing, table)
        return checked(*arguments)

    def cleaned(session: SparkSession, taken: Sequence[SelectedSegment]) -> DataFrame:
        for one in taken[:1]:
            one.segment.rows.unlink(missing_ok=True)
        monkeypatch.undo()
        return rows(session, taken)

    monkeypatch.setattr("spark_offload.verify.checked", checked_later)
    done = verify(spark, table, LandingZone(landing))
    assert (done.version, done.rows, done.compared, done.faults, done.notes) == (1, 10, 1, [], [])
    monkeypatch.setattr("spark_offload.verify.checked", checked)
    monkeypatch.setattr("spark_offload.verify.rows", cleaned)
    done = verify(spark, table, LandingZone(landing))
    assert (done.version, done.rows, done.compared) == (2, 20, 1)
    assert done.notes == [f"1 segments were removed from {landing} meanwhile, and are not compared"]
    (fault,) = done.faults
    assert fault.startswith(f"{BOX}: the totals in the log are not those of the rows (oldest)")


def test_totals_after_deletions_and_maintenance(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", str(tmp_path / "table")
    one, two = Sender(landing, OBSERVATIONS), Sender(landing, OBSERVATIONS, gateway="box-2")
    one.send(1, 10)
    two.send(3, 10)
    ingest(spark, landing, table)
    accept(spark, LandingZone(landing), table, ["box-2"], "lost")
    delete(spark, LandingZone(landing), Path(table), Filter(MIDNIGHT + DAY // 10, gateway="box-1"), "user", "test")
    assert state(spark, table).totals is None
    assert maintain(spark, Path(table)).deleted == 0
    box_2 = OutboxEpoch("box-2", EPOCH)
    found = state(spark, table).totals
    assert found == counted(spark, table)
    assert (found[BOX].observations, found[box_2]) == (8, Totals(lost=2))
    done = verify(spark, table, LandingZone(landing))
    assert done.faults == []
    assert done.notes[0] == f"{BOX}: the numbers 1 to 2 are not in the table; observations were deleted"
    # Without deleted rows, the totals stay known.
    begin(spark, table, Filter(MIDNIGHT, gateway="box-9"), "user", "test")
    ingest(spark, landing, table)
    assert state(spark, table).totals == counted(spark, table)
    # A deletion of this program does not hide the one of another program before it.
    spark.sql(f"DELETE FROM {named(table)} WHERE seq = 4")
    maintain(spark, table, drop=datetime.fromtimestamp((MIDNIGHT + 3 * DAY // 20) / 1e6, UTC), by="user")
    (version,) = [one["version"] for one in history(spark, table) if one["operation"] == "DELETE"][1:]
    assert verify(spark, table).faults == [f"version {version}: another program has changed the rows (DELETE)"]
    assert state(spark, table).totals == counted(spark, table)


def test_totals_of_manifests() -> None:
    def taken(first: int, last: int, after: int, sha256: str = "0" * 64, end: int = 50) -> SelectedSegment:
        manifest = SegmentManifest("box-1", EPOCH, first, last, 40, end, 1, sha256)
        return SelectedSegment(PendingSegment(BOX, first, last, Path("x.json")), manifest, after)

    assert totals.added({}, [taken(1, 10, 0), taken(11, 15, 10, "")]) == {BOX: Totals(10, 5, 40, 50)}
    assert totals.added({}, [taken(1, 10, 0), taken(11, 15, 10, end=1 << 62)])[BOX].newest == totals.LATEST
    assert totals.added({}, [taken(1, 10, 5)]) is None
    assert totals.added(None, [taken(1, 10, 0)]) is None
    assert totals.from_json(json.loads(json.dumps(totals.to_json({BOX: Totals(1, 2)})))) == {BOX: Totals(1, 2)}
    for odd in (None, [], {"a": 1}, {"a/b/c": [1, 2, 3, 4]}, {"a/b": ["1", 2, 3, 4]}, {"a/b": [1, 2, 3, 4, 5]}):
        assert totals.from_json(odd) is None


def test_steps_of_a_compaction_are_short() -> None:
    days = [(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(day)).date().isoformat() for day in range(10)]
    files = [f"file:/a/date={day}/part-{number}.parquet" for day in days for number in range(200)]
    files += ["file:/a/date=2025-01-01/part-0.parquet", "file:/a/other.parquet"]
    assert list(steps(files)) == [(first, last) for first, last in zip(days[::2], days[1::2], strict=True)]
    assert list(steps(files[:2])) == [(days[0], days[0])]
    assert list(steps([])) == []
