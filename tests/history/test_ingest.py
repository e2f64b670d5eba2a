"""Ingesting segments into the table: correct rows, each observation once, also with concurrent writers."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest
from history_data import EXPLICIT, MAPPED, MIDNIGHT, ODD, Stored, readings, row
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ingest_sender import EPOCH, Sender, rows_of

from edge.outbox.observation import XSD, Cells, ObservationContext
from edge.outbox.segment import SegmentManifest, packed
from spark_offload.commit import append
from spark_offload.errors import IngestFailed, LandingRefused, Overtaken, TableBusy, TableRefused
from spark_offload.ingest import ingest
from spark_offload.landing import LandingZone, OutboxEpoch, write
from spark_offload.landing_source.data_source import LandingOptions, LandingReader
from spark_offload.positions import place
from spark_offload.rows import rows
from spark_offload.segment_selection import look
from spark_offload.table import SCHEMA, make_table, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

OBSERVATIONS = readings("a1", range(60))
BOX = OutboxEpoch("box-1", EPOCH)
YEAR_1 = -62_135_596_800_000_000
END_OF_9999 = 253_402_300_799_999_999


def stored(spark: SparkSession, table: Path) -> list[tuple[object, ...]]:
    """Return the rows of a table."""
    found = open_table(spark, str(table)).selectExpr(
        *(f"unix_micros({name}) ts" if name == "ts" else name for name in SCHEMA.names)
    )
    return sorted((tuple(one) for one in found.collect()), key=lambda one: one[:3])


def expected(observations: Iterable[tuple[ObservationContext, Cells]]) -> list[tuple[object, ...]]:
    """Return the expected rows for observations of the sender."""
    at = SCHEMA.names.index("ts")
    found = []
    for seq, (context, cells) in enumerate(observations, 1):
        cells_of_row = list(row(Stored(context, cells, seq, EPOCH)))
        found.append((*cells_of_row[:at], cells.time, *cells_of_row[at + 1 :]))
    return found


def pending(landing: Path) -> list[tuple[object, ...]]:
    """Return the rows that the data source reads from the landing zone, in the form of `stored`."""
    reader = LandingReader(LandingOptions.of({"path": str(landing)}))
    at = SCHEMA.names.index("ts")
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            columns = [batch.column(n).cast("int64") if n == at else batch.column(n) for n in range(batch.num_columns)]
            found += list(zip(*(column.to_pylist() for column in columns), strict=True))
    return found


def numbers(spark: SparkSession, table: Path) -> list[int]:
    return [one[2] for one in stored(spark, table)]


@given(observations=st.lists(st.one_of(MAPPED, EXPLICIT, ODD), min_size=40, max_size=40), cuts=st.data())
@settings(
    max_examples=2,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_ingested_rows_equal_the_stored_observations(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, observations, cuts
) -> None:
    place = tmp_path_factory.mktemp("history [1] é*")
    landing, table = place / "landing", place / "table"
    sender = Sender(landing, observations)
    first = 1
    while first <= len(observations):
        last = cuts.draw(st.integers(first, min(first + 20, len(observations))))
        sender.send(first, last)
        first = last + 1
    assert pending(landing) == expected(observations)
    (done,) = ingest(spark, landing, table)
    assert done.observations == len(observations)
    assert stored(spark, table) == expected(observations)


def test_escapes_and_forms_of_numbers(spark: SparkSession, tmp_path: Path) -> None:
    texts = ["\\",
             "\\\\", "\\t", "\\\t", "\t\\\\t", "\\\\\\n\n", "\r\\r", "a\\", "\0", '"', " ", "NaN", "INF", "1e5", "1_0",
             "٣", "+.5", "5.", "-0", "1e400", "0x1", "1d", "1f", "1\n"]  # fmt: skip
    observations = [
        (ObservationContext(series=f"http://example.org/{kind}", datatype=XSD + kind), Cells(MIDNIGHT, text))
        for text in texts
        for kind in ("string", "double", "decimal", "integer", "boolean")
    ]
    Sender(tmp_path / "landing", observations).send(1, len(observations))
    waiting = pending(tmp_path / "landing")
    ingest(spark, tmp_path / "landing", tmp_path / "table")
    found = stored(spark, tmp_path / "table")
    assert waiting == found
    names = SCHEMA.names
    value, text, datatype = names.index("value"), names.index("value_text"), names.index("datatype")
    assert [one[text] for one in found] == [text for text in texts for _ in range(5)]
    reported = {(one[text], one[datatype].removeprefix(XSD)): one[value] for one in found if one[value] is not None}
    assert reported == {
        ("1e5", "double"): 1e5,
        ("+.5", "double"): 0.5,
        ("+.5", "decimal"): 0.5,
        ("5.", "double"): 5.0,
        ("5.", "decimal"): 5.0,
        ("-0", "double"): 0.0,
        ("-0", "decimal"): 0.0,
        ("-0", "integer"): 0.0,
        ("1e400", "double"): float("inf"),
    }


def test_the_history_of_a_landing_zone(spark: SparkSession, tmp_path: Path) -> None:
    """Duplicate, overlapping, late, missing, damaged and dropped segments: each observation once, and each case
    reported.
    """
    landing, table = tmp_path / "landing", tmp_path / "table"
    with pytest.raises(LandingRefused):
        ingest(spark, landing, table)
    one, two = Sender(landing, OBSERVATIONS), Sender(landing, OBSERVATIONS, gateway="box-2")
    one.send(1, 10)
    one.send(6, 20)
    one.send(1, 10)
    one.send(31, 40)
    two.send(1, 20, replayed=True)
    (done,) = ingest(spark, landing, table)
    assert (done.observations, done.segments, [gap.first for gap in done.gaps]) == (40, 3, [21])
    assert (one.acknowledged, two.acknowledged) == (20, 20)
    assert stored(spark, table)[:20] == expected(OBSERVATIONS[:20])
    assert {row[SCHEMA.names.index("replayed")] for row in stored(spark, table)[20:]} == {True}

    rows_of(one.send(21, 30)).write_bytes(b"damaged")
    (done,) = ingest(spark, landing, table)
    assert (done.observations, [fault.stem for fault in done.damaged]) == (0, ["000000000021-000000000030"])
    assert done.version == place(spark, str(table)).version

    one.send_again(40)
    one.drop(35, 45)
    one.send(46, 50)
    (tmp_path / "landing" / "box-2" / "ack.json").unlink()
    (done,) = ingest(spark, landing, table)
    assert (done.observations, done.lost, done.gaps) == (25, 5, [])
    assert (one.acknowledged, two.acknowledged) == (50, 20)
    mine = [row for row in stored(spark, table) if row[0] == "box-1"]
    lost = SCHEMA.names.index("lost")
    assert [row[2] for row in mine if row[lost] is None] == [*range(1, 41), *range(46, 51)]
    assert [(row[2], row[lost], row[3]) for row in mine if row[lost]] == [(45, 5, OBSERVATIONS[44][1].time)]

    again = Sender(landing, OBSERVATIONS, epoch="00000000000000bb")
    again.send(1, 10)
    for first in range(51, 60, 2):
        one.send(first, first + 1)
    steps = ingest(spark, landing, table, most=4, keep=-1)
    assert [step.more for step in steps] == [True, True, False]
    assert sum(step.observations for step in steps) == 20
    assert place(spark, str(table)).positions == {
        BOX: 60,
        OutboxEpoch("box-2", EPOCH): 20,
        OutboxEpoch("box-1", again.epoch): 10,
    }
    assert not list(landing.glob("*/*/*.gz"))

    read = deltalake.DeltaTable(table).to_pyarrow_table(columns=["gateway", "epoch", "seq", "ts", "value"])
    assert read.num_rows == len(stored(spark, table))
    assert read["ts"].to_pylist()[0].tzinfo is not None


def test_times_out_of_range_are_bounded(spark: SparkSession, tmp_path: Path) -> None:
    times = [-(2**63), YEAR_1 - 1, YEAR_1, -12_219_292_800_000_001, -1, 0, END_OF_9999, END_OF_9999 + 1, 2**63 - 1]
    landing, table = tmp_path / "landing", tmp_path / "table"
    observations = [(ObservationContext(series="http://example.org/o"), Cells(time, "x", "sometime")) for time in times]
    sender = Sender(landing, [*observations, *observations])
    sender.send(1, 9)
    sender.drop(10, 18)
    waiting = pending(landing)
    ingest(spark, landing, table)
    assert waiting == stored(spark, table)
    found = [one[3] for one in stored(spark, table)]
    assert found == [min(max(time, YEAR_1), END_OF_9999) for time in times] + [END_OF_9999]
    dates = {one[0] for one in open_table(spark, str(table)).select("date").distinct().collect()}
    assert {date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)} <= dates
    assert open_table(spark, str(table)).where("ts > '9000-01-01'").count() == 4
    assert min(one.as_py() for one in deltalake.DeltaTable(table).to_pyarrow_table()["ts"]) == datetime(
        1, 1, 1, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1\t1\t0\t1\n2\t7\t0\t1\n", "row 2 has the context 7"),
        ("1\t1\t0\t1\nx\t1\t0\t1\n", "row 2 begins with"),
        ("1\t1\t0\t1\n2\t1_0\t0\t1\n", "row 2 cannot be read"),
        ("1\t1\t0\t1\n2\t1\t1e3\t1\n", "row 2 cannot be read"),
        ("1\t1\t0\t1\n2\t1\t9999999999999999999\t1\n", "does not fit into 64 bits"),
    ],
)
def test_segment_with_invalid_rows_is_quarantined(spark: SparkSession, tmp_path: Path, text: str, reason: str) -> None:
    """The segment is quarantined, and those of other gateways are ingested."""
    landing, table = tmp_path / "landing", tmp_path / "table"
    Sender(landing, OBSERVATIONS, gateway="box-2").send(1, 10)
    bad = packed([text.removesuffix("\n")])
    checksum = hashlib.sha256(bad).hexdigest()
    Sender(landing, OBSERVATIONS).put(
        SegmentManifest("box-1", EPOCH, 1, 2, 0, 0, len(bad), checksum, {1: ObservationContext()}), bad
    )
    done = ingest(spark, landing, table)
    assert [reason in fault.reason for one in done for fault in one.damaged] == [True]
    assert sum(one.observations for one in done) == 10
    assert len(LandingZone(landing).quarantined()) == 1


def test_segments_that_only_spark_refuses_are_found(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    """A defect of the validation would otherwise let one segment stop all gateways."""
    monkeypatch.setattr("spark_offload.segment_selection.validate_rows", lambda manifest, packed: None)
    landing, table = tmp_path / "landing", tmp_path / "table"
    for number in range(6):
        Sender(landing, OBSERVATIONS, gateway=f"box-{number}").send(1, 10)
    bad = packed(["1\t1_0\t0"])
    checksum = hashlib.sha256(bad).hexdigest()
    manifest = SegmentManifest("box-9", EPOCH, 1, 1, 0, 0, len(bad), checksum, {1: ObservationContext()})
    Sender(landing, OBSERVATIONS, gateway="box-9").put(manifest, bad)
    first, second = ingest(spark, landing, table)
    (fault,) = first.damaged
    assert fault.outbox.gateway == "box-9"
    assert fault.reason.startswith("Spark cannot read it: ")
    assert second.observations == 60


def test_a_failure_of_the_table_is_no_fault_of_the_segments(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    Sender(tmp_path / "landing", OBSERVATIONS).send(1, 10)
    monkeypatch.setattr("spark_offload.ingest.append", full)
    with pytest.raises(IngestFailed, match="No space left"):
        ingest(spark, tmp_path / "landing", tmp_path / "table")
    assert LandingZone(tmp_path / "landing").quarantined() == []


def test_a_full_landing_zone_is_emptied(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    """An acknowledgement needs space: segments that are in the table make room for it."""
    landing, table = tmp_path / "landing", tmp_path / "table"
    sender = Sender(landing, OBSERVATIONS)
    sender.send(1, 10)

    def limited(path: Path, body: bytes) -> None:
        if path.name == "ack.json" and list(landing.glob("*/*/*.gz")):
            raise OSError(28, "No space left on device")
        write(path, body)

    monkeypatch.setattr("spark_offload.landing.write", limited)
    (done,) = ingest(spark, landing, table)
    assert (done.observations, done.problems, sender.acknowledged) == (10, [], 10)


def test_second_commit_on_the_same_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Of two ingesters that read the same version one has to retry, even without a lock between them."""
    landing, table = tmp_path / "landing", str(tmp_path / "table")
    Sender(landing, OBSERVATIONS).send(1, 10)
    make_table(spark, table)
    version, positions = place(spark, table)
    found = look(LandingZone(landing), positions, 100)
    append(spark, table, rows(spark, found.taken), version, found.positions(positions))
    with pytest.raises(Overtaken):
        append(spark, table, rows(spark, found.taken), version, found.positions(positions))
    assert numbers(spark, tmp_path / "table") == list(range(1, 11))


def test_table_locked_by_another_process_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", tmp_path / "table"
    sender = Sender(landing, OBSERVATIONS)
    sender.send(1, 10)
    with (tmp_path / ".table.lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with pytest.raises(TableBusy, match="wait until it has ended"):
            ingest(spark, landing, table)
        assert not table.exists()
    assert ingest(spark, landing, table)[0].observations == 10


def test_a_foreign_table_is_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", tmp_path / "table"
    Sender(landing, OBSERVATIONS).send(1, 10)
    spark.range(5).write.format("delta").save(str(table))
    with pytest.raises(TableRefused, match="is not a history"):
        ingest(spark, landing, table)
    assert spark.read.format("delta").load(str(table)).count() == 5
