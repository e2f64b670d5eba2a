"""`edge timers`, and delayed updates with `edge update`."""

from __future__ import annotations

import json
import re

import pytest

INSERT = "INSERT DATA { <urn:timers> <urn:test> 1 }"


@pytest.fixture
def run(shared_edge, gateway):
    def run(command, *arguments):
        return shared_edge(command, "--data-dir", gateway.data_dir, *arguments)

    return run


def test_delayed_update_is_listed_shown_and_cancelled(run):
    done = run("update", "--delay", "PT1H", "--id", "a b/c", INSERT)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"a b/c runs at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d\n", done.stdout)
    header, *lines = run("timers", "--state", "pending").stdout.splitlines()
    assert header.split() == ["at", "state", "id"]
    (line,) = [line for line in lines if "a b/c" in line]
    assert "pending" in line
    assert INSERT in line
    shown = run("timers", "a b/c").stdout
    assert INSERT in shown
    assert json.loads(run("timers", "--json", "a b/c").stdout)["timer"]["sparql"] == INSERT
    assert run("timers", "--cancel", "a b/c").stdout == "a b/c is cancelled\n"
    again = run("timers", "--cancel", "a b/c")
    assert again.returncode == 1
    assert "it is cancelled" in again.stderr
    assert any("a b/c" in line for line in run("timers", "--state", "cancelled").stdout.splitlines())


def test_a_failed_update_shows_its_reason(run):
    run("update", "CREATE SILENT GRAPH <urn:there>")
    run("update", "--delay", "PT0S", "--id", "fails", "CREATE GRAPH <urn:there>")
    lines = run("timers", "--state", "failed").stdout
    assert "fails" in lines
    assert "urn:there" in lines


def test_invalid_time_is_refused_with_an_example(run):
    done = run("update", "--delay", "30", INSERT)
    assert done.returncode == 2
    assert "PT30S" in done.stderr
    done = run("timers", "nobody")
    assert done.returncode == 1
    assert "--url" not in done.stderr
    done = run("timers", "--cancel")
    assert done.returncode == 2
    assert "needs the id" in done.stderr
