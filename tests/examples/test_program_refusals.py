"""Examples and generated programs find the gateway, and report its refusals on one line with a remedy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import GatewayProcess
from tests.support.waiting import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {
    "chat": ("chat/client.py", "Anna", "Bob"),
    "lighting": ("lighting/lighting.py",),
    "live-values": ("monitoring/live_values.py",),
    "topics-manager": ("monitoring/topics_manager.py", "cellar/temperature"),
}
KINDS = ("producer", "consumer", "aggregator", "negation")
SECURED = {
    **{f"EDGE__SECURITY__{name}_PORT": "0" for name in ("HTTPS", "WSS", "MQTTS")},
    "EDGE__SECURITY__ENABLED": "true",
    "EDGE__HOST__ENABLED": "false",
    "EDGE__MQTT__ENABLED": "false",
}


def environ(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGE_")}
    return {**kept, **more}


def run(*command, **more):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=environ(**more),
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """A gateway with security: its data directory, and a token without permissions."""
    process = GatewayProcess(tmp_path_factory.mktemp("secured") / "data", SECURED)
    process.start()
    edge = ("-m", "edge", "clients")
    assert run(*edge, "allow", "nobody", "--action", "none", "--data-dir", process.data_dir).returncode == 0
    assert run(*edge, "allow", "me", "--data-dir", process.data_dir).returncode == 0
    tokens = {
        name: run(*edge, "token", name, "--data-dir", process.data_dir).stdout.strip() for name in ("nobody", "me")
    }
    yield process.data_dir, tokens
    process.stop()


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    directory = tmp_path_factory.mktemp("programs")
    for kind in KINDS:
        assert run("-m", "edge", "new", kind, directory).returncode == 0
    return directory


def command(name, generated):
    if name in KINDS:
        return (generated / f"{name}.py",)
    file, *arguments = PROGRAMS[name]
    return EXAMPLES / file, *arguments


@pytest.mark.parametrize("name", [*PROGRAMS, *KINDS])
def test_a_wrong_token_is_one_line_with_the_remedy(gateway, generated, name):
    done = run(*command(name, generated), EDGE__DATA_DIR=str(gateway[0]), EDGE_TOKEN="wrong")
    assert done.returncode == 1
    assert done.stderr == (
        "The token is not valid: it is not a readable JSON Web Token (invalid_grant, 401). "
        "Set EDGE_TOKEN to a token: `edge clients token NAME` on the gateway prints one\n"
    )


@pytest.mark.parametrize("name", ["chat", "lighting", "topics-manager", "producer"])
def test_a_missing_permission_is_one_line_with_the_remedy(gateway, generated, name):
    done = run(*command(name, generated), EDGE__DATA_DIR=str(gateway[0]), EDGE_TOKEN=gateway[1]["nobody"])
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith('The client "nobody" may not ')
    assert line.endswith("An administrator of the gateway permits it: `edge clients allow NAME --help`")


def test_the_token_of_the_environment_is_used(gateway, generated):
    name = "topics-manager"
    done = run(*command(name, generated), EDGE__DATA_DIR=str(gateway[0]), EDGE_TOKEN=gateway[1]["me"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("cellar/temperature is ")


@pytest.mark.parametrize("name", ["chat", "lighting", "topics-manager"])
def test_an_invalid_address_is_reported(generated, name):
    done = run(*command(name, generated), EDGE_URL="localhost:8000")
    assert done.returncode == 2
    assert 'EDGE_URL is "localhost:8000", and not an address such as http://127.0.0.1:8000' in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_store_is_one_line_with_the_remedy(tmp_path):
    profile = tmp_path / "here.json"
    # The store of the profile has a port that nothing uses.
    own = '{"sparql": "SELECT * { ?s ?p ?o }", "sparql11protocol": {"port": 1}}'
    profile.write_text(f'{{"include": "{EXAMPLES}/monitoring/storing.yaml", "queries": {{"LAST_STORED": {own}}}}}')
    done = run("-c", _IMPATIENT, EXAMPLES / "monitoring/storing_service.py", "--profile", profile)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("the store: no connection to http://localhost:1/query: ")
    assert "Traceback" not in done.stderr


_IMPATIENT = """
import dataclasses, runpy, sys
import edge.client.connections as connections
real = connections.Connections.__init__
connections.Connections.__init__ = lambda self, options: real(self, dataclasses.replace(options, timeout=0.2))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program whose requests have a short time limit."""


def test_the_street_finds_the_broker_of_this_machine(tmp_path):
    (tmp_path / "endpoints.json").write_text('{"mqtt": "mqtt://127.0.0.1:18830"}')
    street = EXAMPLES / "lighting/street.py"
    assert "(mqtt://127.0.0.1:18830)" in run(street, "--help", EDGE__DATA_DIR=str(tmp_path)).stdout
    found = run(street, "--help", EDGE__DATA_DIR=str(tmp_path), EDGE_MQTT="mqtt://127.0.0.1:18831")
    assert "(mqtt://127.0.0.1:18831)" in found.stdout
    done = run(street, "--mqtt", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("no MQTT broker at 127.0.0.1:1: ")
    assert done.stderr.endswith("is the gateway running (`edge run`)?\n")


@pytest.mark.parametrize("name", ["topics-manager", "live-values"])
def test_a_missing_gateway_is_one_line_with_the_remedy(generated, name):
    started = subprocess.Popen(
        [sys.executable, *map(str, command(name, generated))],
        env=environ(EDGE_URL="http://127.0.0.1:1"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = started.stderr.readline()
        started.send_signal(signal.SIGINT)
        rest = started.communicate(timeout=PATIENCE)[1]
    finally:
        started.kill()
        started.wait(10)
    assert "Connection refused; trying again. Is the gateway running (`edge run`)? EDGE_URL sets its address" in line
    assert (started.returncode, rest) == (130 if name == "topics-manager" else 0, "")
