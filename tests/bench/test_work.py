"""`edge bench work`: counts are compared with recorded ones, and counts that a machine lacks are left out."""

import json
import shutil
import sys

import pytest
from click.testing import CliRunner

from edge.bench import counters, work
from edge.cli import edge


def bench(*arguments):
    return CliRunner().invoke(edge, ["bench", "work", *arguments], prog_name="edge", catch_exceptions=False)


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """The file of recorded counts, without content."""
    monkeypatch.setattr(work, "RECORDED", tmp_path / "recorded.json")
    return tmp_path / "recorded.json"


def test_counts_are_compared_with_the_recorded_ones(recorded):
    if shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") is None:
        pytest.skip("no mosquitto here; install the package mosquitto")
    recorded.write_text(json.dumps({work.machine(): {"lamp_functions": 1.0, "reading_switches": 1e9}}))
    done = bench("--runs", "1", "--json")
    assert done.exit_code == 1
    assert done.stderr.count("recorded is") == 1
    figures = json.loads(done.stdout)["figures"]
    assert {"reading_switches", "batch_switches", "lamp_functions"} <= set(figures)
    assert f"lamp_functions is {figures['lamp_functions']:.4g}, recorded is 1." in done.stderr
    work.record(figures)
    assert json.loads(recorded.read_text())[work.machine()].keys() == figures.keys() - {"batch_switches"}


def test_recording_keeps_the_counts_of_other_machines(recorded):
    recorded.write_text(json.dumps({"riscv64 Python 3.11": {"reading_switches": 12.0}}))
    work.record({"reading_switches": 10.0})
    assert json.loads(recorded.read_text()) == {
        "riscv64 Python 3.11": {"reading_switches": 12.0},
        work.machine(): {"reading_switches": 10.0},
    }


def test_a_count_fails_when_it_is_30_percent_worse():
    recorded = {"reading_switches": 10.0, "reading_calls": 50.0, "other": 1.0}
    assert work.compare({"reading_switches": 13.0, "reading_calls": 40.0}, recorded) == work.Comparison([], [])
    batches = work.compare({"batch_calls": 1.9}, {"batch_calls": 1.0})  # these depend more on the machine
    assert not batches.failures
    worse = work.compare({"reading_switches": 13.1, "reading_calls": 30.0}, recorded)
    assert [failure.split(",")[0] for failure in worse.failures] == ["reading_switches is 13.1"]
    assert [note.split(",")[0] for note in worse.notes] == ["reading_calls is 30"]


def test_without_records_the_note_names_the_option_that_adds_them():
    assert work.compare({"reading_switches": 10.0}, None).notes == [
        f"There are no recorded counts for {work.machine()}: add them with --record."
    ]
    assert work.machine().endswith(f"Python {sys.version_info.major}.{sys.version_info.minor}")


@pytest.mark.parametrize("counter", [counters.system_calls, counters.instructions])
def test_a_missing_tool_is_the_reason(monkeypatch, counter):
    monkeypatch.setattr(counters.shutil, "which", lambda _: None)
    with pytest.raises(counters.NotCountable, match="is not installed"):
        counter(1, lambda: None)
