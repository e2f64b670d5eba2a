"""The demonstration: repeatable synthetic segments, questions with answers, and a report that says what it shows."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from edge.outbox.segment import unpacked
from edge.outbox.segment_validation import validate_rows
from spark_offload.cli import edge_history
from spark_offload.demo.city import GATEWAY, START, write_segments
from spark_offload.demo.questions import QUESTIONS
from spark_offload.landing import LandingZone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def test_segments_are_valid_and_depend_on_the_seed_only(tmp_path: Path) -> None:
    count = write_segments(tmp_path / "one", 30, 1)
    assert write_segments(tmp_path / "two", 30, 1) == write_segments(tmp_path / "three", 30, 2) == count
    assert content(tmp_path / "one") == content(tmp_path / "two") != content(tmp_path / "three")
    landing = LandingZone(tmp_path / "one")
    (outbox,) = landing.outboxes()
    assert outbox.gateway == GATEWAY
    times, sensors = [], Counter[str | None]()
    for segment in landing.segments(outbox):
        manifest = landing.manifest(segment)
        rows = landing.rows(segment, manifest)
        validate_rows(manifest, rows)
        for _, context, cells in unpacked(rows):
            times.append(cells.time)
            sensors[manifest.contexts[context].sensor] += 1
    assert len(times) == count
    assert START.timestamp() <= min(times) / 1e6 <= max(times) / 1e6 < (START + timedelta(30)).timestamp()
    assert len(sensors) == 80


def test_the_report_answers_all_questions(spark: SparkSession, tmp_path: Path) -> None:
    out, keep = tmp_path / "report.html", tmp_path / "kept"
    refused = CliRunner().invoke(edge_history, ["demo", "--out", str(tmp_path / "absent" / "report.html")])
    assert (refused.exit_code, refused.stdout) == (1, ""), "refused before any work"
    assert str(refused.exception).endswith("report.html cannot be written: No such file or directory")
    options = ["demo", "--days", "2", "--out", str(out)]
    found = CliRunner().invoke(edge_history, [*options, "--keep", str(keep)])
    assert found.exit_code == 0, found.output
    assert f"table: {keep / 'table'} (synthetic data)\n" in found.stdout
    text = out.read_text()
    assert "<strong>Synthetic data.</strong>" in text
    assert text.count("data:image/png;base64,") == len(QUESTIONS) == 6
    assert "http://" not in text.replace("&lt;http://", "")  # it needs no network
    assert [found.stdout.count(question.title) for question in QUESTIONS] == [1] * 6
    again = CliRunner().invoke(edge_history, [*options, "--keep", str(keep)])
    assert (again.exit_code, str(again.exception)) == (1, f"{keep} has files: give a new directory for --keep")
