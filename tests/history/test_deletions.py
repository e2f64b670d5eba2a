"""The record of deletions, and the segments that contain deleted observations. Without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from history_data import EX, MIDNIGHT, SECOND, readings
from ingest_sender import EPOCH, Sender, rows_of

from edge.outbox.observation import Cells, ObservationContext
from edge.outbox.segment import SegmentManifest
from spark_offload.deletions import Deletions, Filter, LastNumber, digest
from spark_offload.errors import TableRefused
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.segment_deletion import may_contain, remove_segments

LATER = MIDNIGHT + 1000 * SECOND
SENSOR = Filter(LATER, sensor=digest(f"{EX}sensor/a1"))


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_a_record_is_read_again(table: str) -> None:
    record = Deletions(table)
    assert (record.filters, record.head, record.applied, record.unfinished) == ([], "", "", [])
    record.begin(SENSOR, "ann", "ticket 7")
    record.count(3, [LastNumber("box-1", EPOCH, 9, 3)])
    again = Deletions(table)
    assert again.filters == again.unfinished == [SENSOR]
    assert again.counted() == (3, [LastNumber("box-1", EPOCH, 9, 3)])
    assert again.contains(again.applied)
    again.begin(SENSOR, "ann", "ticket 7")
    assert len(Deletions(table).entries) == 2, "an interrupted deletion continues"
    again.done(3, 2, 8)
    assert Deletions(table).unfinished == []
    assert Deletions(table).counted() == (0, [])
    assert [entry["state"] for entry in Deletions(table).entries] == ["begun", "counted", "done"]
    text = (Path(table).parent / ".table.deletions").read_text()
    assert "ann" in text
    assert f"{EX}sensor" not in text


def test_filters_that_differ_only_in_time_are_one(table: str) -> None:
    record = Deletions(table)
    for before in (20, 30, 10):
        record.begin(Filter(before), "ann", "")
        record.begin(Filter(before, gateway="box-1"), "ann", "")
    assert record.filters == [Filter(30), Filter(30, gateway="box-1")]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0].replace(b"ann", b"eve"), lines[1]],
        lambda lines: lines[1:],
        lambda lines: [lines[1], lines[0]],
        lambda lines: [lines[0], lines[1][:-9]],
        lambda lines: [b"{}"],
        lambda lines: [lines[0].replace(b'"gateway":""', b'"street":""')],
        lambda lines: [b"\xff"],
    ],
    ids=["changed", "removed", "exchanged", "cut", "empty", "unknown", "bytes"],
)
def test_a_damaged_record_is_refused(table: str, change) -> None:
    record = Deletions(table)
    record.begin(SENSOR, "ann", "")
    record.done(0, 0, 1)
    file = Path(table).parent / ".table.deletions"
    file.write_bytes(b"\n".join(change(file.read_bytes().splitlines())) + b"\n")
    with pytest.raises(TableRefused, match="restore it"):
        Deletions(table)


def test_tables_elsewhere_have_no_record() -> None:
    record = Deletions("hdfs://store/history")
    assert record.filters == []
    with pytest.raises(TableRefused, match="on a file system"):
        record.begin(SENSOR, "ann", "")


OTHER = ObservationContext(series=f"{EX}o", sensor=f"{EX}sensor/b2", feature=f"{EX}place/a")
QUADS = (ObservationContext(), Cells(MIDNIGHT, quads=f"<{EX}o> <{EX}p> <{EX}sensor/a1> ."))


@pytest.mark.parametrize(
    ("one", "contains"),
    [
        (SENSOR, True),
        (Filter(MIDNIGHT, sensor=SENSOR.sensor), False),
        (Filter(LATER, gateway="box-2", sensor=SENSOR.sensor), False),
        (Filter(LATER, gateway="box-1"), True),
        (Filter(LATER), True),
        (Filter(LATER, feature=digest(f"{EX}place/a")), True),
        (Filter(LATER, feature=digest(f"{EX}place/a"), sensor=digest(f"{EX}sensor/c3")), False),
    ],
    ids=["sensor", "earlier", "other-gateway", "gateway", "all", "feature", "other-sensor"],
)
def test_a_manifest_tells_whether_its_segment_is_affected(tmp_path: Path, one: Filter, contains: bool) -> None:
    path = Sender(tmp_path, [*readings("a1", range(5)), (OTHER, Cells(MIDNIGHT, "1"))]).send(1, 6)
    assert may_contain(SegmentManifest.from_json(path.read_bytes()), one) is contains


def test_segments_with_deleted_observations_are_removed(tmp_path: Path) -> None:
    plain = (OTHER, Cells(MIDNIGHT, "1"))
    other = (ObservationContext(), Cells(MIDNIGHT, quads=f"<{EX}o> <{EX}p> <{EX}q> ."))
    sender = Sender(tmp_path, [*readings("a1", range(2)), plain, plain, QUADS, other, *readings("a1", range(4))])
    paths = {first: sender.send(first, last) for first, last in ((1, 2), (3, 4), (5, 5), (6, 6), (7, 8), (9, 10))}
    paths[9].write_bytes(b"unreadable, until the ingester looks at it")
    landing = LandingZone(tmp_path)
    for first in (7, 9):
        (segment,) = [one for one in landing.segments(OutboxEpoch("box-1", EPOCH)) if one.first == first]
        landing.quarantine(segment, "damaged")
    assert remove_segments(landing, SENSOR) == 2 + 2 + 3 + 3
    assert [first for first, path in paths.items() if path.exists() or rows_of(path).exists()] == [3, 6]
    assert landing.quarantined() == []
    assert remove_segments(landing, SENSOR) == 0


def test_uploads_of_a_gateway_are_removed(tmp_path: Path) -> None:
    uploads = tmp_path / ".uploads"
    uploads.mkdir()
    for gateway in ("box-1", "box-1.a", "box"):
        (uploads / f"{gateway}.{EPOCH}.000000000001-000000000002.tsv.gz").touch()
    assert remove_segments(LandingZone(tmp_path), Filter(LATER, gateway="box-1")) == 1
    assert len(list(uploads.iterdir())) == 2


def test_conditions_contain_no_text_of_a_user() -> None:
    sql = Filter(LATER, sensor=digest("x' OR 1=1 --"), gateway="box-1").sql()
    assert "OR 1=1" not in sql
    assert json.dumps(sql)
