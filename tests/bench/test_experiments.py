"""`edge bench`: the counts in the results of its experiments are right. Times are not checked."""

import json
import re
import shutil
import tempfile

import pytest
from click.testing import CliRunner

from edge.bench import attacks, chat, readings
from edge.bench.city import CITY, SMALL_CITY
from edge.bench.experiment import INDICATORS, ExperimentError, ExperimentOptions, ExperimentReport, Figure
from edge.bench.experiments import ATTACKS, BOTH_MODES, EXPERIMENTS
from edge.bench.lighting import UPDATES
from edge.bench.primitives import expected_notifications, subscriptions, value_of_run
from edge.bench.subject import subject
from edge.bench.tables import hit_rate
from edge.cli import edge

MEMBERS = {"experiment", "mode", *INDICATORS}


def bench(*arguments):
    return CliRunner().invoke(edge, ["bench", *arguments], prog_name="edge", catch_exceptions=False)


def found(*arguments):
    """Return the JSON object that a small run prints. Standard output contains nothing else."""
    done = bench(*arguments, "--small", "--runs", "1", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_city_of_the_papers_size_sends_the_same_notifications():
    with subject(CITY.quads(), ExperimentOptions()) as engine:
        engine.subscribe(subscriptions(CITY))
        assert engine.engine.spus.subscriptions == 1_004
        lamp = engine.round(UPDATES["lamp"](CITY, value_of_run(0)))
        assert (lamp.updates, lamp.triples, lamp.notifications, lamp.inside.notifications) == (310, 310, 23, 23)
        road = engine.round(UPDATES["road"](CITY, value_of_run(1)))
        assert (road.updates, road.triples, road.notifications) == (310, 9_500, 1_004)


@pytest.mark.parametrize("name", ["lamp", "road"])
@pytest.mark.parametrize("durability", ["memory", "commit"])
def test_lamp_and_road(name, durability):
    report = found(name, "--durability", durability)
    assert set(report) == MEMBERS
    assert (report["experiment"], report["mode"]) == (name, "sequential")
    assert report["updates"] == 310
    assert report["subscriptions"] == len(list(subscriptions(SMALL_CITY)))
    assert report["notifications"] == expected_notifications(name, SMALL_CITY)
    phases = [report[f"t_{phase}_ms"] for phase in ("update", "lutt", "booster", "notify")]
    assert sum(phases) == pytest.approx(report["t_total_ms"], rel=1e-4)
    assert all(phase > 0 for phase in phases)
    assert report["ups"] == pytest.approx(310_000 / report["t_total_ms"], rel=1e-4)
    assert report["sps"] == pytest.approx(report["subscriptions"] * report["ups"], rel=1e-4)
    triples = 310 if name == "lamp" else sum(SMALL_CITY.posts)
    assert report["tps"] == pytest.approx(report["sps"] * triples / 310, rel=1e-4)
    endpoint = report["t_endpoint_ms"]
    assert report["e2e"] == pytest.approx((report["t_total_ms"] - endpoint) / endpoint, abs=1e-3)
    assert 0 < report["nl_min_ms"] <= report["nl_max_ms"] < report["t_total_ms"]


def test_subscribers():
    report = found("subscribers")
    assert report["notifications"] == report["updates"] * report["subscriptions"]
    assert report["figures"]["evaluations"] == 1
    assert {"lamp_1_us", "lamp_100_us", "lamp_further_us", "road_further_us"} <= set(report["figures"])


def test_windows():
    report = found("windows")
    assert (report["subscriptions"], report["updates"], report["notifications"]) == (100, 1_200, 2)
    figures = report["figures"]
    assert figures["hour_to_minute"] == pytest.approx(figures["hour_us"] / figures["minute_us"], rel=1e-3)


def test_scale():
    report = found("scale")
    assert report["subscriptions"] == 1_000
    figures = report["figures"]
    assert set(figures) == {"update_10_us", "update_100_us", "update_1000_us", "ratio", "bytes"}
    assert figures["ratio"] == pytest.approx(figures["update_1000_us"] / figures["update_10_us"], rel=1e-4)


@pytest.mark.parametrize(("profile", "hits"), [("lamp", 19 + 4 * 310), ("road", 1_000 + 4 * 310)])
def test_the_hit_rate_is_that_of_the_paper(profile, hits):
    """0.40 % and 0.72 % (Table 8)."""
    assert hit_rate(CITY, profile) == pytest.approx(100 * hits / (310 * 1_004))


def test_lutt():
    figures = found("lutt")["figures"]
    for name in ("lamp", "road"):
        assert figures[f"{name}_t_total_off_ms"] > figures[f"{name}_t_total_on_ms"]
        assert figures[f"{name}_e2e_off"] > figures[f"{name}_e2e_on"]
        assert figures[f"{name}_t_lutt_walked_ms"] > 0


def test_figure_7():
    report = found("figure7", "--mode", "parallel")
    assert (report["mode"], report["subscriptions"], report["updates"], report["notifications"]) == (
        "parallel",
        11,
        4,
        1,
    )
    figures = report["figures"]
    assert report["t_total_ms"] == figures["parallel_ms"]
    ratio = figures["parallel_ms"] / figures["sequential_ms"]
    assert figures["parallel_to_sequential"] == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize("name", ["lamp", "road"])
def test_parallel(name):
    report = found(name, "--mode", "parallel")
    assert set(report) == MEMBERS
    assert report["mode"] == "parallel"
    assert report["notifications"] == expected_notifications(name, SMALL_CITY)


def test_operators():
    figures = found("operators")["figures"]
    for name in ("avg", "optional", "not_exists", "in_not_exists"):
        assert figures[f"{name}_to_join"] == pytest.approx(figures[f"{name}_us"] / figures["join_us"], rel=1e-4)


def test_latency(forked):
    report = found("latency")
    assert report["notifications"] == report["updates"] == 200
    figures = report["figures"]
    assert 0 < figures["notification_p50_ms"] <= figures["notification_p99_ms"]
    assert figures["ratio_p99"] == pytest.approx(figures["notification_p99_ms"] / figures["echo_p99_ms"], rel=1e-4)


def test_serial(forked):
    figures = found("serial")["figures"]
    assert set(figures) == {"idle_percent", "lines_percent", "slip_percent", "length_percent", "lost"}
    assert figures["lost"] == 0


def test_fairness(forked):
    figures = found("fairness", "--attack", "updates", "--attack", "timers")["figures"]
    parts = ("alone_p50_ms", "p50_ms", "p50_ratio", "alone_p99_ms", "p99_ms", "p99_ratio")
    assert set(figures) == {f"{attack}_{part}" for attack in ("updates", "timers") for part in parts}
    assert all(value > 0 for value in figures.values())


def test_streams(forked):
    figures = found("streams")["figures"]
    assert figures["reports"] >= 20
    assert all(value > 0 for value in figures.values())


def test_each_attack_has_a_description():
    assert set(attacks.ATTACKS) == set(ATTACKS)


def test_footprint():
    figures = found("footprint")["figures"]
    assert figures["loaded_mb"] > figures["rest_mb"] > 0
    assert figures["start_s"] > 0
    assert figures["loaded_start_s"] > 0


def test_chat(forked):
    report = found("chat")
    assert (report["subscriptions"], report["updates"], report["notifications"]) == (2, 60, 80)
    figures = report["figures"]
    requests = ("send", "sent", "set_received", "received", "remove")
    bare = sum(figures[f"{name}_endpoint_ms"] for name in requests) / 5
    added = sum(figures[f"{name}_ms"] for name in requests) / 5 - bare
    assert figures["added_ms"] == pytest.approx(added, abs=1e-4)
    assert figures["overhead_percent"] == pytest.approx(100 * added / bare, rel=1e-3, abs=1e-2)
    assert 0 < figures["notified_p50_ms"] <= figures["notified_p99_ms"] <= figures["notified_max_ms"]
    assert figures["message_ms"] > 0


def test_the_chat_needs_its_profile(monkeypatch, tmp_path):
    monkeypatch.setattr(chat, "PROFILE", tmp_path / "chat.jsap")
    done = bench("chat", "--small", "--runs", "1")
    assert done.exit_code == 1
    assert "needs the profile of the example" in done.stderr


def test_timers(forked):
    report = found("timers")
    assert report["notifications"] == report["updates"] == 100
    assert report["figures"]["start_s"] > 0


def test_readings(forked):
    needs_mosquitto()
    assert found("readings")["figures"]["readings_per_s"] > 0


def test_wear(forked, monkeypatch):  # it fails unless each reading causes a notification and is stored as configured
    # where /tmp is in memory, this directory is on a disk (FHS 3.0, 5.15)
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    done = bench("wear", "--small", "--runs", "1", "--json")
    if "is not on a disk" in done.stderr:
        pytest.skip("/var/tmp is not on a disk here")
    figures = json.loads(done.stdout)["figures"]
    assert len(figures) == 12
    assert 0 < figures["recent_fast"] < 10
    for durability in ("commit", "interval"):
        assert figures[f"{durability}_burst_plain"] < figures[f"{durability}_single_plain"]


def test_outbox(forked):
    needs_mosquitto()
    figures = found("outbox")["figures"]  # it fails unless each reading is shipped exactly once
    for name in ("cpu_percent", "mb"):
        added = figures[f"stored_{name}"] - figures[f"plain_{name}"]
        assert figures[f"added_{name}"] == pytest.approx(added, abs=1e-3)


def needs_mosquitto():
    if shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") is None:
        pytest.skip("no mosquitto here; install the package mosquitto")


def test_the_readings_experiment_names_its_requirements(monkeypatch):
    monkeypatch.setattr(readings.shutil, "which", lambda *_, **__: None)
    done = bench("readings", "--small", "--runs", "1")
    assert done.exit_code == 1
    assert "needs Mosquitto" in done.stderr
    assert done.stdout == ""


def test_a_wrong_number_of_notifications_is_an_error():
    with subject(SMALL_CITY.quads(), ExperimentOptions()) as engine:
        engine.subscribe(subscriptions(SMALL_CITY))
        engine.round(UPDATES["lamp"](SMALL_CITY, value_of_run(0))[:5])
        engine.check(5)
        with pytest.raises(ExperimentError, match="5 notifications where 6 are right"):
            engine.check(6)


def test_the_scheduler_sends_the_same():
    with subject(SMALL_CITY.quads(), ExperimentOptions()) as engine:
        engine.subscribe(subscriptions(SMALL_CITY))
        expected = expected_notifications("road", SMALL_CITY)
        for run in range(2):
            done = engine.pipelined_round(UPDATES["road"](SMALL_CITY, value_of_run(run)), expected)
            assert (done.updates, done.triples, done.notifications) == (310, sum(SMALL_CITY.posts), expected)


def test_a_terminal_gets_a_table():
    text = bench("lamp", "--small", "--runs", "2").stdout
    assert text.startswith("lamp, sequential, median of 2 runs")
    for name in INDICATORS:
        assert re.search(rf"^{name} +[-\d]", text, re.MULTILINE), name
    for phase in ("T_UPDATE", "T_LUTT", "T_BOOSTER", "T_NOTIFY", "T_TOTAL"):
        assert re.search(rf"^{phase} +\d+ %", text, re.MULTILINE), phase


def test_help_lists_every_experiment_and_indicator():
    text = " ".join(bench("--help").stdout.split())
    for names in (EXPERIMENTS, INDICATORS):
        for name, meaning in names.items():
            assert f"{name} {meaning}" in text


@pytest.mark.parametrize(
    "arguments",
    [(), ("weather",), ("lamp", "--runs", "0"), ("lamp", "--durability", "never"), ("scale", "--mode", "parallel")],
)
def test_wrong_command_lines(arguments):
    done = bench(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""


def test_modes_are_those_of_experiments():
    assert set(BOTH_MODES) <= set(EXPERIMENTS)


def test_figures_are_medians_and_missing_ones_are_null():
    report = ExperimentReport("some", "sequential", {"ups": [3.0, 1.0, 2.0]}, [Figure("own_us", "its own", [5.0, 4.0])])
    assert json.loads(report.to_json()) == {
        "experiment": "some",
        "mode": "sequential",
        **dict.fromkeys(INDICATORS),
        "ups": 2.0,
        "figures": {"own_us": 4.5},
    }
    assert "(1 to 3)" in report.to_text()
