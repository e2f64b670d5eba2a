"""Metrics of the history in the Prometheus text format, and the alert rules on them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from spark_offload.errors import OutputRefused
from spark_offload.ingest import IngestRound
from spark_offload.landing import OutboxEpoch, Quarantined
from spark_offload.metrics import IngestCounters, Problems, text, write_metrics
from spark_offload.segment_selection import Gap
from spark_offload.status import HistoryStatus, OutboxStatus
from tests.support.dashboards import expressions

ALERTS = Path(__file__).parents[2] / "examples" / "history" / "alerts.yml"
BOX = OutboxEpoch("box-1", "00000000000000aa")
LABELS = '{gateway="box-1",epoch="00000000000000aa"}'
NEWEST = datetime(2026, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)


def measured() -> str:
    one = OutboxStatus(BOX, 10, 8, 2, newest=NEWEST, waiting=3, lag=90.5, gap=Gap(BOX, 11, 14, 3, 80.25))
    counters = IngestCounters()
    damaged = Quarantined(BOX, "1-2", "damaged")
    counters.add(IngestRound(4, observations=8, segments=2, damaged=[damaged], problems=["full"]), 1.0)
    return text(HistoryStatus(7, [one], [damaged]), counters)


def test_metrics_of_each_gateway_and_of_the_ingester() -> None:
    lines = measured().splitlines()
    assert {line for line in lines if not line.startswith("#")} == {
        *("edge_history_ingest_rounds_total 1", "edge_history_ingest_failed_runs_total 0"),
        *("edge_history_ingest_observations_total 8", "edge_history_ingest_segments_total 2"),
        *("edge_history_ingest_quarantined_segments_total 1", "edge_history_ingest_problems_total 1"),
        *("edge_history_ingest_last_success_timestamp_seconds 1.000", "edge_history_table_version 7"),
        *(f"edge_history_outbox_last_number{LABELS} 10", f"edge_history_outbox_waiting_segments{LABELS} 3"),
        *(f"edge_history_outbox_lag_seconds{LABELS} 90.500", f"edge_history_outbox_gap_observations{LABELS} 4"),
        *(f"edge_history_outbox_gap_seconds{LABELS} 80.250", f"edge_history_outbox_observations{LABELS} 8"),
        f"edge_history_outbox_lost_observations{LABELS} 2",
        f"edge_history_outbox_newest_timestamp_seconds{LABELS} 1767225601.500",
        'edge_history_quarantined_segments{gateway="box-1"} 1',
    }
    for line in lines:
        assert re.fullmatch(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.]+', line)


def test_labels_are_escaped_and_unknown_totals_left_out() -> None:
    odd = OutboxStatus(OutboxEpoch('a"b\\c\n', "e"), 1)
    found = text(HistoryStatus(1, [odd], counted=False))
    assert 'edge_history_outbox_last_number{gateway="a\\"b\\\\c\\n",epoch="e"} 1\n' in found
    assert "edge_history_outbox_observations" not in found
    assert text(None, IngestCounters()).count("\n") == 18


def test_the_file_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ingest.prom"
    write_metrics(path, "a 1\n")
    write_metrics(path, "a 2\n")
    assert (path.read_text(), [one.name for one in tmp_path.iterdir()]) == ("a 2\n", ["ingest.prom"])
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(OutputRefused, match=r"make .* writable"):
        write_metrics(tmp_path / "nowhere" / "ingest.prom", "a 1\n")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/a/.ingest.prom.1x2y")

    monkeypatch.setattr("spark_offload.metrics.write", full)
    with pytest.raises(OutputRefused) as refused:
        write_metrics(tmp_path / "ingest.prom", "a 1\n")
    assert str(refused.value).endswith("cannot be written (No space left on device): free space on its disk")


def test_a_problem_is_reported_once_until_it_has_ended() -> None:
    problems = Problems()
    rounds = [["a", "b", "a"], ["b"], ["c", "b"], [], ["b"]]
    assert [problems.new(found) for found in rounds] == [["a", "b"], [], ["c"], [], ["b"]]


def test_alert_rules_use_existing_metrics() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    known = set(re.findall(r"^# TYPE (\S+)", measured(), re.MULTILINE))
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) == 7
    for rule in group["rules"]:
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        used = set(re.findall(r"edge_history_\w+", rule["expr"]))
        assert used
        assert used <= known
        for name in used:  # only counters have a rate
            assert name.endswith("_total") == ("increase(" in rule["expr"])


def test_the_dashboard_uses_existing_metrics_and_shows_all_of_each_gateway() -> None:
    known = set(re.findall(r"^# TYPE (\S+)", measured(), re.MULTILINE))
    used = set(re.findall(r"edge_history_\w+", " ".join(expressions("history.json"))))
    assert used <= known
    assert known - used == set()
