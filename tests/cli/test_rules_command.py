"""`edge rules`."""

from __future__ import annotations

import json

import pytest

from tests.support.waiting import wait_for

RULE = 'label = "Damp"\nobservation = "urn:rules:cellar"\nabove = 70\n'
VALUE = """\
PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
DELETE {{ <urn:rules:r> qudt:numericValue ?old }}
INSERT {{ <urn:rules:cellar> a sosa:Observation ; sosa:hasResult <urn:rules:r> . <urn:rules:r> qudt:numericValue {} }}
WHERE {{ OPTIONAL {{ <urn:rules:r> qudt:numericValue ?old }} }}"""


@pytest.fixture
def run(shared_edge, gateway):
    def run(command, *arguments):
        return shared_edge(*command.split(), "--data-dir", gateway.data_dir, *arguments)

    return run


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "damp.toml"
    path.write_text(RULE)
    return path


def test_rules_are_listed_with_their_actions(run, gateway):
    assert run("rules list").stdout == "(no rules)\n"
    rules = gateway.data_dir / "rules"
    (rules / "damp.toml").write_text(RULE)
    (rules / "bad.toml").write_text("above = 1")
    try:
        run("update", VALUE.format(80))
        wait_for(lambda: "1 active" in run("rules list").stdout)
        lines = run("rules list").stdout.splitlines()
        assert lines[0].split() == ["rule", "state", "begun", "label"]
        assert any(line.split() == ["damp.toml", "1", "active", "1", "Damp"] for line in lines)
        assert any(line.startswith("bad.toml: A rule needs") for line in lines)
        assert len(json.loads(run("rules list", "--json").stdout)) == 2
    finally:
        for each in rules.iterdir():
            each.unlink()
        rules.rmdir()
    wait_for(lambda: run("rules list").stdout == "(no rules)\n")


def test_a_rule_is_tried(run, file):
    run("update", VALUE.format(60))
    run("update", VALUE.format(81))
    done = run("rules test", file)
    assert (done.returncode, done.stderr) == (0, "")
    *occurrences, verdict = done.stdout.splitlines()
    assert "observation=urn:rules:cellar, value=81" in occurrences[-1]
    assert "situation" in verdict
    assert json.loads(run("rules test", "--json", "--hours", "1", file).stdout)["faults"] == []


def test_a_faulty_rule_is_refused_with_its_lines(run, file):
    file.write_text(RULE + 'updat = "x"\nend_update = "INSERTT"\n')
    done = run("rules test", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "line 4: updat: Unknown key. Did you mean update?" in done.stderr
    file.write_bytes(b"\xff")
    assert "cannot be read" in run("rules test", file).stderr
    assert run("rules test", file.with_name("absent.toml")).returncode == 2
    assert run("rules test", "--hours", "0", file).returncode == 2


def test_a_failing_update_is_reported(run, file):
    run("update", VALUE.format(10))
    run("update", VALUE.format(90))
    file.write_text(RULE + 'update = "DROP GRAPH <urn:absent>"\n')
    done = run("rules test", file)
    assert done.returncode == 1
    assert "urn:absent" in done.stderr
