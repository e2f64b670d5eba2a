"""Every metric is documented."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from edge.metrics import Costs, Metrics, written_bytes
from tests.support.dashboards import expressions

DOCUMENT = Path(__file__).parent.parent / "docs" / "metrics.md"
EDGE = Path(__file__).parent.parent / "edge"


def complete() -> Metrics:
    metrics = Metrics()
    metrics.watch_engine(
        triples=lambda: 5,
        pending_updates=lambda: 1,
        journal_sequence=lambda: 9,
        spus=lambda: 2,
        pending_timers=lambda: 3,
        subscription_faults=lambda: 0,
    )
    metrics.watch_evaluations(pending=lambda: 1, count=lambda: 6, seconds=lambda: 0.5, merged=lambda: 2)
    metrics.watch_costs(lambda: Costs({"update": (4, 0.5), "total": (4, 0.75)}, hits=7))
    return metrics


def test_every_metric_is_documented_and_nothing_else_is():
    names = set()
    for family in complete().registry.collect():
        names.add(f"{family.name}_total" if family.type == "counter" else family.name)
    for source in EDGE.rglob("*.py"):
        names.update(f"edge_{name}" for name in re.findall(r'\bwatch(?:_each)?\(\s*"(\w+)"', source.read_text()))
    documented = {line.split("`")[1] for line in DOCUMENT.read_text().splitlines() if line.startswith("| `edge_")}
    assert names - documented == set(), "describe these metrics in docs/metrics.md"
    assert documented - names == set(), "these metrics are described in docs/metrics.md and do not exist"


def test_the_dashboard_uses_existing_metrics():
    documented = {line.split("`")[1] for line in DOCUMENT.read_text().splitlines() if line.startswith("| `edge_")}
    text = " ".join(expressions("gateways.json"))
    used = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"edge_\w+", text)}
    assert len(used) > 20
    assert used - documented == set()


def test_gauges_are_evaluated_when_they_are_read():
    metrics, value = Metrics(), [1.0]
    metrics.watch("things", "Things.", lambda: value[0])
    assert b"edge_things 1.0" in metrics.text()
    value[0] = 7.0
    assert b"edge_things 7.0" in metrics.text()


def test_the_performance_model_is_sums_and_counts():
    text = complete().text().decode()
    for line in (
        'edge_update_phase_seconds_count{phase="update"} 4.0',
        'edge_update_phase_seconds_sum{phase="update"} 0.5',
        'edge_update_phase_seconds_sum{phase="total"} 0.75',
        "edge_hits_total 7.0",
    ):
        assert line in text.splitlines()


def test_two_gateways_do_not_share_metrics():
    one, other = complete(), complete()
    one.answered("http", "query", 200, 0.1)
    assert b'status="200"' in one.text()
    assert b'status="200"' not in other.text()


def test_bytes_written_to_disk_are_a_metric(tmp_path: Path):
    before = written_bytes()
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1_000_000))
        file.flush()
        os.fsync(file.fileno())
    assert written_bytes() >= before
    assert math.isnan(written_bytes(tmp_path / "missing"))
    assert b"edge_written_bytes" in complete().text()


def test_the_reason_of_the_start_is_a_metric():
    metrics = Metrics()
    metrics.set_restart("power", 7)
    lines = metrics.text().decode().splitlines()
    assert 'edge_last_restart{reason="power"} 1.0' in lines
    assert "edge_starts_total 7.0" in lines
