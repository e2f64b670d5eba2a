"""`edge engine`: the cost of updates, and the processing mode."""

import json
import urllib.request

import pytest

COLUMNS = ["phase,", "in", "ms", "mean", "sigma", "min", "max"]


@pytest.fixture
def ask(shared_edge, gateway):
    def run(*arguments):
        return shared_edge("engine", "--data-dir", gateway.data_dir, *arguments)

    return run


def test_the_command_prints_a_table_of_the_phases(ask, shared_edge, gateway):
    assert shared_edge("update", "--data-dir", gateway.data_dir, "INSERT DATA { <urn:s> <urn:p> 1 }").returncode == 0
    done = ask()
    assert (done.returncode, done.stderr) == (0, "")
    *facts, empty, header, t_update, t_lutt, t_booster, t_notify, t_total = done.stdout.splitlines()
    assert [line.split()[0] for line in facts] == [
        *("processing", "booster", "subscriptions", "updates", "hits", "notifications")
    ]
    assert empty == ""
    assert header.split() == COLUMNS
    lines = [line.split() for line in (t_update, t_lutt, t_booster, t_notify, t_total)]
    assert [line[0] for line in lines] == ["T_UPDATE", "T_LUTT", "T_BOOSTER", "T_NOTIFY", "T_TOTAL"]
    means = [float(line[1]) for line in lines]
    assert means[0] > 0
    assert means[-1] == pytest.approx(sum(means[:-1]), abs=0.005)


@pytest.mark.parametrize("processing", ["sequential", "parallel"])
def test_processing_is_changed_and_stays(ask, processing):
    assert ask("--processing", processing).stdout.splitlines()[0].split()[1].rstrip(",") == processing
    assert json.loads(ask("--json").stdout)["processing"] == processing


def test_json_output_has_the_members_of_the_api(ask, gateway):
    ours = json.loads(ask("--json").stdout)
    with urllib.request.urlopen(f"{gateway.endpoints['http']}/api/engine") as answer:
        theirs = json.load(answer)
    assert ours.keys() == theirs.keys()
    assert ours["phases"].keys() == theirs["phases"].keys()


def test_an_invalid_argument_is_refused_before_any_request(edge):
    done = edge("engine", "--processing", "fast")
    assert done.returncode == 2
    assert "sequential" in done.stderr


def test_a_missing_gateway_is_reported(edge, tmp_path):
    done = edge("engine", "--data-dir", tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no gateway runs" in done.stderr


def test_another_server_than_a_gateway_is_reported(edge, gateway):
    done = edge("engine", "--url", f"{gateway.endpoints['http']}/api/endpoints?")
    assert done.returncode == 1
    assert "--url" in done.stderr
