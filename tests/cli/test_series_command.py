"""`edge series`: recent values of observations."""

from __future__ import annotations

import csv
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from edge_command import launch

HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
"""A whole hour, for the times of values."""

SET = """PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
WITH <%(graph)s>
DELETE { <%(name)s> ?p ?o . ?q qudt:numericValue ?value . ?i time:inXSDDateTimeStamp ?time }
INSERT {
  <%(name)s> sosa:hasResult <%(name)s/result> . <%(name)s/result> qudt:numericValue %(value)s .
  <%(name)s/result> time:hasTime <%(name)s/instant> .
  <%(name)s/instant> time:inXSDDateTimeStamp "%(time)s"^^xsd:dateTimeStamp
}
WHERE {
  OPTIONAL {
    <%(name)s> sosa:hasResult ?q . ?q qudt:numericValue ?value ; time:hasTime ?i . ?i time:inXSDDateTimeStamp ?time
  }
}"""


def record(run, name, *values, graph=None):
    """Give an observation one value after the other, one second apart, from `HOUR` on."""
    text = SET if graph else SET.replace("WITH <%(graph)s>", "")
    for seconds, value in enumerate(values):
        at = (HOUR + timedelta(seconds=seconds)).isoformat()
        done = run("update", text % {"name": name, "value": value, "time": at, "graph": graph})
        assert (done.returncode, done.stderr) == (0, "")


def shown(moment):
    """Return a time as the command prints it."""
    return moment.isoformat(" ", "milliseconds")


def cells(line):
    """Return the cells of a line, without the blank in times."""
    return line.replace(f"{HOUR:%Y-%m-%d} ", "").split()


@pytest.fixture
def run(shared_edge, gateway):
    return of(shared_edge, gateway)


def of(edge, gateway):
    """Return a function that runs commands with a gateway."""
    return lambda *arguments: edge(*arguments, "--data-dir", gateway.data_dir, environ={"TZ": "UTC"})


def test_the_list_names_observations_kinds_and_graphs(edge, tmp_path):
    run = of(edge, launch(edge, tmp_path / "data", EDGE__HOST__ENABLED="false"))
    assert run("series").stdout == "(no recent values)\n"
    assert json.loads(run("series", "--json").stdout) == {"series": []}
    record(run, "urn:lamp", "true")
    header, line = run("series").stdout.splitlines()
    assert header.split() == ["observation", "kind", "from", "to"]
    assert line.split()[:3] == ["urn:lamp", "boolean", f"{HOUR:%Y-%m-%d}"]
    record(run, "urn:door", '"open"', graph="urn:floor")
    header, *lines = run("series").stdout.splitlines()
    assert header.split() == ["observation", "graph", "kind", "from", "to"]
    assert [line.split()[:3] for line in lines] == [
        ["urn:door", "urn:floor", "text"],
        ["urn:lamp", "boolean", f"{HOUR:%Y-%m-%d}"],
    ]
    listed = list(csv.DictReader(run("series", "--csv").stdout.splitlines()))
    assert [(row["observation"], row["graph"], row["kind"]) for row in listed] == [
        ("urn:door", "urn:floor", "text"),
        ("urn:lamp", "", "boolean"),
    ]
    assert run("series", "urn:door").stdout.splitlines()[0] == "urn:door in graph urn:floor"


def test_values_are_printed_as_stored(run):
    record(run, "urn:a", 20, 21.5)
    record(run, "urn:b", "true")
    done = run("series", "urn:a", "urn:b", "--from", "-1d")
    assert (done.returncode, done.stderr) == (0, "")
    assert [cells(line) for line in done.stdout.splitlines()] == [
        ["urn:a"],
        ["time", "value"],
        [f"{HOUR:%H}:00:00.000+00:00", "20"],
        [f"{HOUR:%H}:00:01.000+00:00", "21.5"],
        [],
        ["urn:b"],
        ["time", "value"],
        [f"{HOUR:%H}:00:00.000+00:00", "true"],
    ]


def test_values_are_summarized(run):
    record(run, "urn:number", 20, 23.5, 21)
    record(run, "urn:boolean", "true", "false", "true", "true")
    record(run, "urn:text", '"on"', '"off"')
    period = ("--from", HOUR.isoformat(), "--to", (HOUR + timedelta(hours=1)).isoformat())
    done = run("series", "urn:number", "urn:boolean", "urn:text", *period, "--points", "1")
    assert [cells(line) for line in done.stdout.splitlines()] == [
        ["urn:number,", "one", "row", "per", "3600", "s"],
        ["time", "value", "min", "max", "mean", "count"],
        [f"{HOUR:%H}:00:00.000+00:00", "21", "20", "23.5", "21.5", "3"],
        [],
        ["urn:boolean,", "one", "row", "per", "3600", "s"],
        ["time", "value", "min", "max", "mean", "count"],
        [f"{HOUR:%H}:00:00.000+00:00", "true", "false", "true", "0.75", "4"],
        [],
        ["urn:text,", "one", "row", "per", "3600", "s"],
        ["time", "value", "count"],
        [f"{HOUR:%H}:00:00.000+00:00", "off", "2"],
    ]
    done = run("series", "urn:number", *period, "--points", "all")
    assert [cells(line)[1:] for line in done.stdout.splitlines()[2:]] == [["20"], ["23.5"], ["21"]]


def test_a_period_without_values_is_reported(run):
    record(run, "urn:quiet", 1)
    start, end = HOUR - timedelta(hours=2), HOUR - timedelta(hours=1)
    done = run("series", "urn:quiet", "--from", start.isoformat(), "--to", end.isoformat())
    assert done.stdout == f"urn:quiet\n(no values from {shown(start)} to {shown(end)})\n"


def test_json_and_csv_are_for_programs(run):
    record(run, "urn:programs", 20, 21.5)
    answer = json.loads(run("series", "urn:programs", "--json").stdout)
    (series,) = answer["series"]
    assert (series["observation"], series["graph"], series["kind"], series["step"]) == (
        "urn:programs",
        "",
        "number",
        None,
    )
    assert series["rows"] == [
        {"time": f"{HOUR:%Y-%m-%dT%H}:00:00Z", "value": 20},
        {"time": f"{HOUR:%Y-%m-%dT%H}:00:01Z", "value": 21.5},
    ]
    rows = list(csv.DictReader(run("series", "urn:programs", "--csv").stdout.splitlines()))
    assert [float(row["value"]) for row in rows] == [20, 21.5]
    assert list(rows[0]) == ["observation", "graph", "time", "value", "min", "max", "mean", "count"]


def test_unknown_observations_are_reported_after_the_others(run):
    record(run, "urn:known", 7)
    done = run("series", "urn:known", "urn:x", "urn:y")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "urn:known"
    assert done.stderr == (
        "edge: no recorded values of urn:x, urn:y; `edge series` lists the observations that have some\n"
    )
    done = run("series", "urn:known", "urn:x", "--json")
    assert (done.returncode, json.loads(done.stdout)["unknown"]) == (1, ["urn:x"])
    done = run("series", "urn:x")
    assert (done.returncode, done.stdout) == (1, "")
    assert "recorded value" in done.stderr
    assert "--url" not in done.stderr


@pytest.mark.parametrize("option", [("--from", "yesterday"), ("--to", "tomorrow"), ("--points", "0")])
def test_the_gateway_explains_a_wrong_option(run, option):
    done = run("series", "urn:known", *option)
    assert (done.returncode, done.stdout) == (1, "")
    assert option[1] in done.stderr
    assert "such as" in done.stderr or "10,000" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "-2h"], "need an observation"),
        (["--points", "all"], "need an observation"),
        (["urn:a", "--json", "--csv"], "exclude each other"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(edge, arguments, message):
    done = edge("series", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_restart_of_the_gateway_is_a_gap(edge, tmp_path):
    insert = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
    DELETE { <urn:q> qudt:numericValue ?old } INSERT { <urn:a> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue %s }
    WHERE { OPTIONAL { <urn:q> qudt:numericValue ?old } }"""
    gateway = launch(edge, tmp_path / "data", EDGE__HOST__ENABLED="false")
    assert of(edge, gateway)("update", insert % 1).returncode == 0
    assert gateway.stop() == 0
    time.sleep(1.1)  # shorter pauses are not gaps
    run = of(edge, launch(edge, tmp_path / "data", EDGE__HOST__ENABLED="false"))
    assert run("update", insert % 2).returncode == 0
    end = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    lines = run("series", "urn:a", "--to", end).stdout.splitlines()
    assert [line.split()[2:] for line in lines[2:]] == [["1"], ["(gap)"], ["2"]]
    rows = list(csv.DictReader(run("series", "urn:a", "--to", end, "--csv").stdout.splitlines()))
    assert [row["value"] == "" for row in rows] == [False, True, False]


def test_a_gateway_without_recent_values_names_the_setting(edge, tmp_path):
    gateway = launch(edge, tmp_path / "data", EDGE__HOST__ENABLED="false", EDGE__RECENT__ENABLED="false")
    for arguments in ([], ["urn:a"]):
        done = of(edge, gateway)("series", *arguments)
        assert done.returncode == 1
        assert "recent.enabled" in done.stderr


def test_an_unreachable_gateway_is_exit_code_3(shared_edge):
    assert shared_edge("series", "--url", "http://127.0.0.1:9").returncode == 3
