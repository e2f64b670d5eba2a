"""The data source `sepa`: observations in a landing zone that are not in the table yet, as a batch and a stream."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from history_data import DAY, SECOND, readings
from ingest_sender import EPOCH, Sender, rows_of
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from edge.outbox.segment import SegmentManifest, stem
from spark_offload import History
from spark_offload.errors import LandingRefused
from spark_offload.ingest import ingest
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.landing_source.data_source import (
    LandingOptions,
    LandingReader,
    LandingStreamReader,
    SlicePartition,
    register,
)
from spark_offload.segment_selection import look
from spark_offload.table import SCHEMA, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

pytestmark = pytest.mark.timeout(600)

OBSERVATIONS = readings("a1", range(1000), every=DAY // 10)
PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>\n"
BOX = OutboxEpoch("box-1", EPOCH)
LOST = SCHEMA.names.index("lost")


def options(landing: Path, **others: str) -> LandingOptions:
    return LandingOptions.of({"path": str(landing), **others})


def numbers(partitions: Sequence[InputPartition]) -> list[tuple[str, int, int | None]]:
    """Return gateway, number and lost observations of the rows of partitions."""
    return [
        (row["gateway"], row["seq"], row["lost"])
        for one in partitions
        if isinstance(one, SlicePartition)
        for batch in one.read()
        for row in batch.to_pylist()
    ]


def sorted_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[:3])


def test_a_batch_has_the_rows_of_the_next_round(spark: SparkSession, tmp_path: Path) -> None:
    """Damaged segments, and those behind a gap, are left out. Nothing in the landing zone is changed."""
    landing, table = tmp_path / "landing [1] é", tmp_path / "table"
    each_minute = readings("a1", range(80), every=60 * SECOND)
    one, two, three = (Sender(landing, each_minute, gateway=f"box-{number}") for number in (1, 2, 3))
    one.send(1, 30)
    one.send(21, 50)
    one.drop(45, 60)
    one.send(71, 80)
    two.send(1, 20, replayed=True)
    rows_of(two.send(21, 40)).write_bytes(b"damaged")
    rows_of(three.send(1, 10)).write_bytes(b"damaged")
    register(spark)
    files = sorted(landing.rglob("*"))
    pending = spark.read.format("sepa").load(str(landing))
    found = sorted_rows(pending)
    assert [(row[0], row[2]) for row in found] == [
        *(("box-1", number) for number in [*range(1, 51), 60]),
        *(("box-2", number) for number in range(1, 21)),
    ]
    late = F.lit("2026-01-01 00:20:00").cast("timestamp")
    some = pending.where((F.col("gateway") == "box-1") & (F.col("ts") < late))
    assert sorted_rows(some) == [row for row in found if row[0] == "box-1" and row[2] <= 20]
    assert sorted(landing.rglob("*")) == files

    ingest(spark, landing, table)
    assert found == sorted_rows(open_table(spark, table))
    one.send(61, 70)
    newer = spark.read.format("sepa").load(str(landing))
    assert [(row[0], row[2]) for row in sorted_rows(newer)] == [("box-1", number) for number in range(61, 81)]
    kept = LandingReader(options(landing, startingOffsets="earliest"))
    assert len(numbers(kept.partitions())) == len(found) + 20
    with pytest.raises(PySparkException, match=r"is a table.*format\(.delta.\)"):
        spark.read.format("sepa").load(str(table)).collect()


def test_one_frame_has_the_same_rows_in_all_of_its_uses(spark: SparkSession, tmp_path: Path) -> None:
    """Spark plans one reader of a DataFrame for all of them."""
    for number, last in ((1, 30), (2, 20), (3, 7)):
        Sender(tmp_path, OBSERVATIONS, gateway=f"box-{number}", epoch=f"{number:016}").send(1, last)
    register(spark)
    frame = spark.read.format("sepa").load(str(tmp_path))
    one, two = (frame.where(F.col("gateway") == box) for box in ("box-1", "box-2"))
    early = frame.where(F.col("date") == date(2026, 1, 1))
    assert [one.count(), frame.count(), two.count(), one.union(two).count(), early.count()] == [30, 57, 20, 50, 27]
    assert one.join(frame, "seq").count() == 30 + 20 + 7
    assert frame.where("ts > timestamp_micros(-70000000000000000)").count() == 57  # before the year 1
    history = History(spark, frame)
    counts = [
        history.sparql(
            PREFIXES + f"SELECT (COUNT(*) AS ?n) {{ ?o sosa:hasResult/qudt:numericValue ?v {condition} }}"
        ).first()
        for condition in ("FILTER(?v < 5)", "")
    ]
    assert [row and row[0].split("^")[0] for row in counts] == ['"15"', '"57"']
    some = spark.read.format("sepa").option("gateway", "box-1, box-3,box-9").load(str(tmp_path))
    assert [some.count(), some.where(F.col("gateway") == "box-1").count(), some.count()] == [37, 30, 37]


def test_a_stream_of_some_gateways_leaves_out_the_others(tmp_path: Path) -> None:
    for box in ("box-1", "box-2"):
        Sender(tmp_path, OBSERVATIONS, gateway=box).send(1, 3)
    reader = LandingStreamReader(options(tmp_path, gateway="box-2"))
    after = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert after == {f"box-2/{EPOCH}": 3}
    assert {gateway for gateway, _, _ in numbers(reader.partitions({}, after))} == {"box-2"}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("path", "", "has no path"),
        ("path", "file:", "has no path"),
        ("path", "hdfs://host/landing", "hdfs://host/landing is not a directory of this machine"),
        ("gateway", "box-1,", "gateway has the name ''"),
        ("gateway", "../x", "gateway has the name '../x'"),
        ("maxRowsPerTrigger", "9" * 5000, "with at most 18 digits"),
        ("maxRowsPerTrigger", "0", "above 0"),
        ("failOnDataLoss", "no", "give true or false"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, name: str, value: str, problem: str) -> None:
    with pytest.raises(LandingRefused, match=problem) as refused:
        LandingOptions.of({"path": str(tmp_path), name: value})
    assert len(str(refused.value)) < 300


def test_a_loop_of_links_does_not_stop_other_gateways(tmp_path: Path) -> None:
    sender = Sender(tmp_path, OBSERVATIONS)
    sender.send(1, 3)
    for loop in (tmp_path / "box-0", sender.folder.parent / ("0" * 16), sender.folder / f"{stem(4, 6)}.json"):
        loop.symlink_to(loop)
    assert len(numbers(LandingReader(options(tmp_path)).partitions())) == 3
    assert [one.segment.last for one in look(LandingZone(tmp_path), {}, 100).taken] == [3]


def test_a_segment_whose_manifest_has_wrong_times_is_read_like_ingest_takes_it(tmp_path: Path) -> None:
    sender = Sender(tmp_path, OBSERVATIONS)
    manifest = SegmentManifest.from_json(sender.send(1, 3).read_bytes())
    sender.put(replace(manifest, start=0, end=1), None)
    assert len(look(LandingZone(tmp_path), {}, 100).taken) == 1
    reader = LandingStreamReader(options(tmp_path))
    offset = reader.initialOffset()
    LandingZone(tmp_path).acknowledge({BOX: 3}, 1)
    after = reader.latestOffset(offset, ReadAllAvailable())
    assert len(numbers(reader.partitions(offset, after))) == 3


def test_a_segment_that_leaves_between_plan_and_task(tmp_path: Path) -> None:
    sender = Sender(tmp_path, OBSERVATIONS)
    rows = [rows_of(sender.send(1, 3)), rows_of(sender.send(4, 6))]
    strict, careless = (
        LandingReader(options(tmp_path, failOnDataLoss=fails)).partitions() for fails in ("true", "false")
    )
    rows[0].unlink()
    for plan in (strict, careless):
        with pytest.raises(LandingRefused, match="without an acknowledgement"):
            numbers(plan)
    LandingZone(tmp_path).acknowledge({BOX: 3}, 1)
    with pytest.raises(LandingRefused, match="was acknowledged and has left"):
        numbers(strict)
    assert [number for _, number, _ in numbers(careless)] == [4, 5, 6]


def test_the_log_tells_the_fate_of_a_segment_that_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    newer, damaged = (Sender(tmp_path, OBSERVATIONS, gateway=box).send(1, 3) for box in ("box-1", "box-2"))
    newer.write_bytes(newer.read_bytes().replace(b'"schema":1', b'"schema":2'))
    rows_of(damaged).write_bytes(b"damaged")
    LandingReader(options(tmp_path)).partitions()
    assert "box-1" in caplog.messages[0]
    assert "waits in the landing zone" in caplog.messages[0]
    assert "box-2" in caplog.messages[1]
    assert "moves it to quarantine" in caplog.messages[1]


@pytest.mark.parametrize("seed", range(8))
def test_a_stream_reads_each_observation_once(tmp_path: Path, seed: int) -> None:
    """Segments overlap, are damaged, dropped, ingested and sent again; the stream is restarted and repeats batches."""
    chance = random.Random(seed)
    landing = tmp_path
    sender = Sender(landing, OBSERVATIONS)
    sender.send(1, 1)
    zone = LandingZone(landing)
    found: list[tuple[str, int, int | None]] = []
    reader = LandingStreamReader(options(landing))
    offset = reader.initialOffset()
    sent = 1
    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1:
                first = max(1, sent + 1 - chance.randrange(4))
                sent = max(sent, first + chance.randrange(12))
                sender.send(first, sent)
            case 2:
                first = max(1, sent + 1 - chance.randrange(4))
                sent = max(sent, first + chance.randrange(12))
                sender.drop(first, sent)
            case 3:
                bad = sender.send(sent + 1, sent + 5)
                rows_of(bad).write_bytes(b"damaged")
                if chance.random() < 0.5:  # what the ingester and the gateway do
                    reader.latestOffset(offset, ReadAllAvailable())
                    sender.send(sent + 1, sent + 5)
                    sent += 5
                else:
                    for file in (bad, rows_of(bad)):
                        file.unlink()
            case 4:  # ingested, and removed as far as the stream has read it
                done = offset.get(str(BOX), 0)
                zone.acknowledge({BOX: chance.choice((done, sent))}, 1)
                zone.clean({BOX: done}, -1)
            case _:
                reader = LandingStreamReader(options(landing))
        limit = chance.choice((ReadAllAvailable(), ReadMaxRows(chance.randrange(1, 9))))
        after = reader.latestOffset(offset, limit)
        batch = numbers(reader.partitions(offset, after))
        assert numbers(LandingStreamReader(options(landing)).partitions(offset, after)) == batch
        assert len(batch) <= (limit.max_rows if isinstance(limit, ReadMaxRows) else 1000)
        reader.commit(after)
        found += batch
        offset = after
    while (after := reader.latestOffset(offset, ReadMaxRows(50))) != offset:
        found += numbers(reader.partitions(offset, after))
        offset = after
    assert offset == {str(BOX): sent}
    covered = [number for _, seq, lost in found for number in range(seq - (lost or 1) + 1, seq + 1)]
    assert covered == list(range(1, sent + 1))


def test_rows_that_left_the_landing_zone_are_not_skipped_silently(tmp_path: Path) -> None:
    sender = Sender(tmp_path, OBSERVATIONS)
    sender.send(1, 10)
    offset = LandingStreamReader(options(tmp_path)).initialOffset()
    sender.send(11, 20)
    zone = LandingZone(tmp_path)
    zone.acknowledge({BOX: 20}, 1)
    zone.clean({BOX: 15}, -1)
    with pytest.raises(LandingRefused, match=r"observations 1 to 10 of box-1/.* failOnDataLoss"):
        LandingStreamReader(options(tmp_path)).latestOffset(offset, ReadAllAvailable())
    careless = LandingStreamReader(options(tmp_path, failOnDataLoss="false"))
    steps = [offset]
    while (after := careless.latestOffset(steps[-1], ReadMaxRows(4))) != steps[-1]:
        steps.append(after)
    read = [one for start, end in pairwise(steps) for one in numbers(careless.partitions(start, end))]
    assert [number for _, number, _ in read] == list(range(11, 21))
    for file in sender.folder.iterdir():
        file.unlink()
    with pytest.raises(LandingRefused, match="observations 1 to 20"):
        LandingStreamReader(options(tmp_path)).latestOffset(offset, ReadAllAvailable())
    assert LandingStreamReader(options(tmp_path, startingOffsets="earliest")).initialOffset() == {str(BOX): 20}


def test_outboxes_take_turns(tmp_path: Path) -> None:
    """With fewer rows in a batch than outboxes, each outbox is read."""
    for number in range(5):
        Sender(tmp_path, OBSERVATIONS, gateway=f"box-{number}").send(1, 4 if number else 60)
    reader = LandingStreamReader(options(tmp_path))
    offset = reader.initialOffset()
    for _ in range(40):
        after = reader.latestOffset(offset, ReadMaxRows(3))
        assert len(numbers(reader.partitions(offset, after))) <= 3
        offset = after
    assert sorted(offset.values()) == [4, 4, 4, 4, 60]


def test_outboxes_without_rows_take_no_share_of_a_batch(tmp_path: Path) -> None:
    for number in range(20):
        rows_of(Sender(tmp_path, OBSERVATIONS, gateway=f"stuck-{number}").send(1, 900)).unlink()
    sender = Sender(tmp_path, OBSERVATIONS)
    sender.drop(1, 500)
    sender.send(501, 539)
    sender.send(540, 600)
    reader = LandingStreamReader(options(tmp_path))
    offset = reader.initialOffset()
    after = reader.latestOffset(offset, ReadMaxRows(40))
    assert after[str(BOX)] == 539  # a row with `lost`, and 39 observations
    assert len(numbers(reader.partitions(offset, after))) == 40


def test_a_streaming_query_continues_at_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    landing, sink = tmp_path / "landing", tmp_path / "sink"
    one, two = Sender(landing, OBSERVATIONS), Sender(landing, OBSERVATIONS, gateway="box-2")
    one.send(1, 40)
    two.send(1, 10)
    two.send(21, 30)
    register(spark)

    def run() -> list[tuple[Any, ...]]:
        query = (
            spark.readStream.format("sepa")
            .option("maxRowsPerTrigger", 30)
            .load(str(landing))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(sink))
        )
        query.awaitTermination()
        return sorted_rows(spark.read.parquet(str(sink)))

    assert [row[2] for row in run()] == [*range(1, 41), *range(1, 11)]
    two.send(11, 20)
    one.drop(41, 50)
    found = run()
    assert [row[2] for row in found if row[LOST] is None] == [*range(1, 41), *range(1, 31)]
    assert sum(row[LOST] or 0 for row in found) == 10  # in one row, or in two of different batches
