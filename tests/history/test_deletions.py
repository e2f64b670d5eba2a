"""The record of deletions, and the segments that contain deleted observations. Without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from history_data import EX, MIDNIGHT, SECOND, readings
from ingest_sender import EPOCH, Sender, rows_of

from edge.outbox.observation import Cells, ObservationContext
from edge.outbox.segment import SegmentManifest
from spark_offload.delete import belonging, merged, refuse_missing
from spark_offload.deletions import Counted, Deletions, Filter, LastNumber, digest
from spark_offload.errors import LandingRefused, TableRefused
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.segment_deletion import affected, may_contain, remove_segments

LATER = MIDNIGHT + 1000 * SECOND
SENSOR = Filter(LATER, sensor=digest(f"{EX}sensor/a1"))


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_a_record_is_read_again(table: str) -> None:
    record = Deletions(table)
    assert (record.filters, record.head, record.applied, record.unfinished) == ([], "", "", [])
    record.begin(SENSOR, "ann", "ticket 7")
    record.count(3, [LastNumber("box-1", EPOCH, 9, 3)], 7)
    again = Deletions(table)
    assert again.filters == again.unfinished == [SENSOR]
    assert again.counted() == [Counted(7, 3, (LastNumber("box-1", EPOCH, 9, 3),))]
    assert again.contains(again.applied)
    again.begin(SENSOR, "ann", "ticket 7")
    assert len(Deletions(table).entries) == 2, "an interrupted deletion continues"
    again.done(3, 2, 8)
    assert Deletions(table).unfinished == []
    assert Deletions(table).counted() == []
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


def test_a_weaker_filter_is_not_added_while_the_stronger_one_is_unfinished(table: str) -> None:
    record = Deletions(table)
    for before in (20, 10, 20, 30):
        record.begin(Filter(before, gateway="box-1"), "ann", "")
    assert [one.before for one in record.unfinished] == [20, 30]


def test_only_deletions_of_a_command_are_interrupted(table: str) -> None:
    """A retention period that was interrupted ends in the next run."""
    record = Deletions(table)
    record.begin(Filter(20), "ann", "")
    assert not record.interrupted
    record.begin(Filter(20, gateway="box-1"), "ann", "")
    assert record.interrupted


def test_counts_of_another_state_of_the_table_are_not_used(table: str) -> None:
    """Only counts whose DELETE is the next version, or whose versions were forgotten."""
    counts = [Counted(version, 3, ()) for version in (4, 7, 9)]
    commits = [{"version": number, "operation": "WRITE", "userMetadata": None} for number in range(12, -1, -1)]
    assert belonging(counts, commits) == []
    commits[12 - 8] = {"version": 8, "operation": "DELETE", "userMetadata": None}
    assert belonging(counts, commits) == [Counted(7, 3, ())]
    noted = json.dumps({"edge_history": 1, "run": "", "positions": {}, "deleted": "abc"})
    assert belonging(counts, [{"version": 9, "operation": "WRITE", "userMetadata": noted}]) == counts[:2]
    assert belonging(counts, [{"version": 9, "operation": "WRITE", "userMetadata": None}]) == []


def test_last_numbers_of_an_outbox_are_merged() -> None:
    found = [LastNumber("box-1", EPOCH, 9, 3), LastNumber("box-2", EPOCH, 1, 1), LastNumber("box-1", EPOCH, 4, 2)]
    assert merged(found) == [LastNumber("box-1", EPOCH, 9, 5), LastNumber("box-2", EPOCH, 1, 1)]


def test_a_record_of_another_user_is_refused(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")  # the tests may run as root

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(TableRefused, match="make it readable"):
        Deletions(table)


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


def test_segments_that_no_gateway_can_send_again_are_not_removed(tmp_path: Path) -> None:
    """The table was restored from an older state, and 11 to 20 are in neither place."""
    box = OutboxEpoch("box-1", EPOCH)
    path = Sender(tmp_path, readings("a1", range(30))).send(21, 30)
    landing = LandingZone(tmp_path)
    refuse_missing(landing, "table", {box: 10})
    assert landing.acknowledge({box: 20}, 5) == []
    refuse_missing(landing, "table", {box: 20})
    with pytest.raises(LandingRefused, match=r"observations 11 to 20\).* edge-history gaps accept box-1 --landing"):
        refuse_missing(landing, "table", {box: 10})
    assert [str(one) for one in affected(landing, SENSOR, {box: 10})] == [f"{box}/{path.stem}"]
    assert affected(landing, SENSOR, {box: 30}) == []
    assert not landing.is_acknowledged(affected(landing, SENSOR, {})[0])
    landing.acknowledge({box: 21}, 6)
    assert landing.is_acknowledged(affected(landing, SENSOR, {})[0])
    assert affected(landing, Filter(LATER, gateway="box-2"), {}) == []


def test_segments_that_cannot_be_read_end_the_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would be recorded as done, and the segment could be ingested later."""
    Sender(tmp_path, readings("a1", range(2))).send(1, 2)
    landing = LandingZone(tmp_path)

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(landing, "manifest", failing)
    with pytest.raises(OSError, match="Input/output"):
        remove_segments(landing, SENSOR)


def test_rows_without_a_manifest_are_removed(tmp_path: Path) -> None:
    """Those of the gateway, and of all gateways after a day: they may have deleted observations."""
    sender = Sender(tmp_path, readings("b2", range(9)))
    new, old, whole = (sender.send(first, first + 2) for first in (1, 4, 7))
    new.unlink()
    old.unlink()
    os.utime(rows_of(old), (1, 1))
    os.utime(rows_of(whole), (1, 1))
    assert remove_segments(LandingZone(tmp_path), SENSOR) == 1
    assert [rows_of(one).exists() for one in (new, old, whole)] == [True, False, True]
    assert remove_segments(LandingZone(tmp_path), Filter(0, gateway="box-1")) == 1
    assert [rows_of(one).exists() for one in (new, whole)] == [False, True]


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
