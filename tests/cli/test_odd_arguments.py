"""Arguments that are not UTF-8, empty names, names with line breaks, and a standard output that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import httpx
import pytest
from click.testing import CliRunner
from click.types import StringParamType
from edge_command import DEADLINE, GATEWAY

from edge.cli import edge as edge_group
from spark_offload.cli import edge_history
from tests.support.waiting import wait_for

ODD = "a\udcff"
"""An argument with a byte that is not UTF-8, as Python decodes it (PEP 383)."""
BYTES = {"publish payload", "mapping test payload", "mapping new payload"}
"""Arguments with any bytes."""
FULL = Path("/dev/full")
MESSAGE = "standard output cannot be written: No space left on device"
QUERY = "REGISTER ISTREAM <urn:all> AS SELECT ?s FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:full> [ELEMENTS 1] \
WHERE { WINDOW <urn:w> { ?s <urn:p> ?o } }"


def text_parameters(command, words=()):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from text_parameters(command.get_command(context, name), (*words, name))
        return
    for parameter in command.params:
        if isinstance(parameter.type, StringParamType):
            yield words, parameter


def test_each_text_of_each_command_must_be_utf8():
    checked = 0
    for words, parameter in text_parameters(edge_group):
        name = " ".join([*words, parameter.name])
        if name in BYTES:
            continue
        arguments = [parameter.opts[-1], ODD] if isinstance(parameter, click.Option) else [ODD] * 2
        done = CliRunner().invoke(edge_group, [*words, *arguments])
        assert (done.exit_code, done.stdout) == (2, ""), name
        assert "a\\udcff is not UTF-8 text" in done.stderr, name
        checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    "arguments",
    [
        ["queries", "show", ODD],
        ["queries", "follow", ODD],
        ["queries", "put", "warm", ODD],
        ["streams", "put", "rooms", "--lateness", ODD],
        ["streams", "add", "rooms", ODD],
        ["query", ODD],
        ["explain", ODD],
    ],
    ids=lambda words: "-".join(word for word in words if word != ODD),
)
def test_text_that_is_not_utf8_is_exit_code_2(edge, arguments):
    done = edge(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not UTF-8 text" in done.stderr
    assert "Traceback" not in done.stderr


def test_variables_of_the_environment_must_be_utf8(edge):
    done = edge("query", "ASK {}", environ={"EDGE_URL": ODD})
    assert done.returncode == 2
    assert "is not UTF-8 text" in done.stderr


def test_files_may_have_names_that_are_not_utf8(shared_edge, gateway, tmp_path):
    query, profile = tmp_path / f"{ODD}.rq", tmp_path / f"{ODD}.jsap"
    query.write_text("ASK {}")
    profile.write_text('{"host": "localhost", "updates": {}, "queries": {}}')
    done = shared_edge("query", f"@{query}", "--data-dir", gateway.data_dir)
    assert (done.returncode, done.stdout, done.stderr) == (0, "true\n", "")
    missing = shared_edge("query", f"@{query}x", "--data-dir", gateway.data_dir)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "cannot be read: No such file" in missing.stderr
    checked = shared_edge("app", "check", profile, environ={"PYTHONIOENCODING": "utf-8:strict"})
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "a\\udcff.jsap: good" in checked.stdout


@pytest.mark.parametrize(
    "command", ["queries show", "queries observers", "queries pause", "queries follow", "streams show", "streams put"]
)
def test_an_empty_name_is_exit_code_2(shared_edge, gateway, command):
    for more in ([], ["--json"]) if command.endswith(("show", "observers", "follow")) else ([],):
        done = shared_edge(*command.split(), "", *more, "--data-dir", gateway.data_dir)
        assert (done.returncode, done.stdout) == (2, "")
        assert "name is empty" in done.stderr


@pytest.mark.parametrize("command", ["queries show", "queries observers", "streams show", "timers"])
def test_a_name_may_have_line_breaks(shared_edge, gateway, command):
    done = shared_edge(*command.split(), "first\nlast", "--data-dir", gateway.data_dir)
    assert (done.returncode, done.stdout) == (1, "")
    assert "first" in done.stderr
    assert "/graph-store" not in done.stderr  # a path of the gateway: it lists them for an unknown one


@pytest.mark.parametrize("path", ["queries/x%0A", "streams/x%0A", "timers/x%0A", "things/x%0A", "properties/x%0A"])
def test_the_gateway_does_not_cut_the_line_break_at_the_end_of_a_name(gateway, path):
    answer = httpx.get(f"{gateway.endpoints['http']}/{path}")
    assert answer.status_code in (400, 404)
    assert "/graph-store" not in answer.text
    assert "x\\n" in answer.text


def written(edge, *arguments):
    with FULL.open("w") as full:
        process = edge.start(*arguments, stdout=full)
        return process.communicate(timeout=DEADLINE)[1], process.returncode


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["config", "schema"], ["completion", "bash"], ["mapping", "units", "K"], ["queries", "show", "-h"]],
    ids=" ".join,
)
def test_a_full_standard_output_is_exit_code_1(edge, arguments):
    assert written(edge, *arguments) == (f"edge: {MESSAGE}\n", 1)


@pytest.mark.parametrize("form", ["table", "csv"])
def test_a_full_standard_output_of_a_query(shared_edge, gateway, form):
    done = written(shared_edge, "query", "ASK {}", "--format", form, "--data-dir", gateway.data_dir)
    assert done == (f"edge: {MESSAGE}\n", 1)


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
def test_a_full_standard_output_ends_a_subscription(shared_edge, gateway, form):
    done = written(shared_edge, "subscribe", "SELECT * { ?s ?p ?o }", *form, "--data-dir", gateway.data_dir)
    assert done == (f"edge: {MESSAGE}\n", 1)


def test_a_full_standard_output_ends_the_follower_of_a_query(shared_edge, gateway):
    where = ("--data-dir", gateway.data_dir)
    for words in (["streams", "put", "full"], ["queries", "put", "urn:all", QUERY]):
        assert shared_edge(*words, *where).returncode == 0
    with FULL.open("w") as full:
        process = shared_edge.start("queries", "follow", "urn:all", *where, stdout=full)
        metrics = gateway.endpoints["http"] + "/metrics"
        wait_for(lambda: 'edge_subscriptions{gate="ws"} 1.0' in httpx.get(metrics).text, what="the follower")
        assert shared_edge("streams", "add", "full", "<urn:s> <urn:p> 1 .", *where).returncode == 0
        assert process.communicate(timeout=DEADLINE)[1] == f"edge: {MESSAGE}\n"
    assert process.returncode == 1
    assert shared_edge("queries", "delete", "urn:all", *where).returncode == 0


def test_a_full_standard_output_of_a_backup(shared_edge, gateway):
    assert written(shared_edge, "backup", "-", "--data-dir", gateway.data_dir) == (f"edge: {MESSAGE}\n", 1)


def test_the_gateway_runs_with_a_full_standard_output(edge, tmp_path):
    data_dir, log = tmp_path / "data", tmp_path / "log"
    with FULL.open("w") as full, log.open("w") as errors:
        arguments = ("run", "--data-dir", data_dir)
        process = edge.start(*arguments, environ=GATEWAY, stdout=full, stderr=errors)
        endpoints = data_dir / "endpoints.json"
        wait_for(lambda: endpoints.exists() or process.poll() is not None, what="the gateway")
        process.terminate()
        assert process.wait(DEADLINE) == 0
    assert "Traceback" not in log.read_text()


def test_full_standard_output_and_error_are_exit_code_1(edge):
    with FULL.open("w") as full:
        process = edge.start("config", "schema", stdout=full, stderr=full)
        process.communicate(timeout=DEADLINE)
    assert process.returncode == 1


def test_a_closed_standard_output_is_exit_code_1(edge):
    process = edge.start("config", "schema", stdout=None, preexec_fn=lambda: os.close(1))
    errors = process.communicate(timeout=DEADLINE)[1]
    assert (process.returncode, errors) == (1, "edge: standard output cannot be written: Bad file descriptor\n")


def test_text_of_the_history_must_be_utf8():
    done = CliRunner().invoke(edge_history, ["query", "--master", ODD])
    assert done.exit_code == 2
    assert "is not UTF-8 text" in done.stderr


def test_a_full_standard_output_of_the_history(edge):
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from spark_offload.cli import main; main()", "--help"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE, env=edge.environ(), check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, f"edge-history: {MESSAGE}\n")
