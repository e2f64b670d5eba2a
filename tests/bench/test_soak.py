"""`edge bench soak`: a run succeeds, and the test for a flat curve is right."""

import json
import random

import pytest
from click.testing import CliRunner

from edge.bench import soak
from edge.bench.experiment import ExperimentReport, Figure
from edge.bench.soak import QUANTITIES, Sample, growth, verdict
from edge.cli import edge

STEADY = {"memory_mb": 80.0, "fds": 25.0, "threads": 12.0, "p50_ms": 4.0, "p99_ms": 20.0, "files_kb": 5000.0}


def bench(*arguments):
    return CliRunner().invoke(edge, ["bench", *arguments], prog_name="edge", catch_exceptions=False)


def samples(count=60, apart=20.0, **changed):
    """Return values with a noise of one percent. `changed`: maps a time in seconds to a value."""
    waver = random.Random(1)
    return [
        Sample(
            number * apart,
            tuple(
                changed.get(name, lambda _, value=value: value)(number * apart) * waver.uniform(0.99, 1.01)
                for name, value in STEADY.items()
            ),
        )
        for number in range(count)
    ]


def growing(found):
    return [name for name, (by, allowed) in found.items() if by > allowed]


def test_a_short_run(forked):
    done = bench("soak", "--minutes", "0.08", "--json")
    assert done.exit_code == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert set(figures) == {*STEADY, "merged", "resumed"}
    assert all(figures[name] > 0 for name in STEADY)


def test_a_fluctuating_series_is_flat():
    found = verdict(samples())
    assert list(found) == [quantity.name for quantity in QUANTITIES]
    assert growing(found) == []


@pytest.mark.parametrize("name", STEADY)
def test_a_growing_series_is_named(name):
    assert growing(verdict(samples(**{name: lambda seconds: STEADY[name] * (1 + seconds / 100)}))) == [name]


def test_a_series_that_shrinks_or_jumps_once_is_flat():
    assert growing(verdict(samples(memory_mb=lambda seconds: 100 - seconds / 40))) == []
    assert growing(verdict(samples(p99_ms=lambda seconds: 900.0 if seconds == 1100 else 20.0))) == []


def test_a_sawtooth_is_flat_unless_its_peaks_grow():
    assert growing(verdict(samples(files_kb=lambda seconds: 400 + 25 * (seconds % 97)))) == []
    assert growing(verdict(samples(files_kb=lambda seconds: 400 + (25 + seconds / 20) * (seconds % 97)))) == [
        "files_kb"
    ]


def test_growth_during_the_warm_up_is_ignored():
    assert growing(verdict(samples(memory_mb=lambda seconds: min(80.0, 40 + seconds / 12)))) == []


def test_a_run_can_be_too_short_for_a_verdict():
    assert verdict(samples(apart=10)) == {}
    assert verdict([]) == {}


def test_growth_is_the_slope_over_the_whole_time():
    assert growth([(second, 3 + 2 * second) for second in range(11)]) == pytest.approx(20)


def test_a_series_that_is_not_flat_is_a_failure(monkeypatch):
    report = ExperimentReport(
        "soak", "sequential", {}, [Figure("memory_mb", "memory", [80.0])], failure="not flat: memory_mb"
    )
    monkeypatch.setattr(soak, "run", lambda _: report)
    done = bench("soak", "--minutes", "1")
    assert done.exit_code == 1
    assert "memory_mb" in done.stdout
    assert done.stderr == "edge: not flat: memory_mb\n"
