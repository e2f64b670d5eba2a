"""`edge outbox`: show the waiting observations and ship them."""

from __future__ import annotations

import json
import re

import pytest
from edge_command import launch

STORE = """PREFIX sosa: <http://www.w3.org/ns/sosa/>
INSERT DATA { GRAPH <urn:edge:history> { <urn:%s> a sosa:Observation } }"""


@pytest.fixture(scope="module")
def landing(tmp_path_factory):
    return tmp_path_factory.mktemp("zone") / "landing"


@pytest.fixture(scope="module")
def shipping(shared_edge, landing, tmp_path_factory):
    """Start a gateway that ships on request."""
    landing.mkdir()
    settings = {
        "EDGE__HOST__ENABLED": "false",
        "EDGE__MQTT__ENABLED": "false",
        "EDGE__OFFLOAD__TO": str(landing),
        "EDGE__OFFLOAD__EVERY": "86400",
        "EDGE__OFFLOAD__RETRY_MIN": "3600",
        "EDGE__OFFLOAD__RETRY_MAX": "3600",
        "EDGE__OUTBOX__GATEWAY": "street-7",
    }
    return launch(shared_edge, tmp_path_factory.mktemp("gateway") / "data", **settings)


@pytest.fixture
def run(shared_edge, shipping):
    return lambda *arguments: shared_edge(*arguments, "--data-dir", shipping.data_dir)


def test_waiting_observations_are_shipped_on_request(run, landing):
    assert run("outbox", "ship").stdout == "0 observations shipped in 0 segments\n"
    for name in ("a", "b"):
        assert run("update", STORE % name).returncode == 0
    status = json.loads(run("outbox", "status", "--json").stdout)
    assert (status["gateway"], status["state"], status["last"], status["shipped"]) == ("street-7", "ships", 2, 0)
    assert run("outbox", "ship").stdout == "2 observations shipped in 1 segment\n"
    assert json.loads(run("outbox", "ship", "--json").stdout) == {"segments": 0, "observations": 0, "failure": ""}
    assert len(list(landing.glob("street-7/*/*-*.json"))) == 1
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in run("outbox", "status").stdout.splitlines())
    assert lines["gateway"] == f"street-7, epoch {status['epoch']}"
    assert lines["state"] == f"ships to {landing}"
    assert lines["waiting"].startswith("2 observations, 0.")
    assert (lines["stored"], lines["shipped"], lines["acknowledged"]) == ("up to 2", "up to 2", "up to 0")


def test_a_missing_landing_zone_is_reported(run, landing):
    landing.rename(landing.with_name("away"))
    done = run("outbox", "ship")
    assert (done.returncode, done.stdout) == (1, "0 observations shipped in 0 segments\n")
    remedy = "make the directory, or mount it; the gateway retries automatically"
    assert done.stderr == f"edge: {landing} is not there; {remedy}\n"
    status = run("outbox", "status")
    assert status.returncode == 0
    assert f"fails: {landing} is not there" in status.stdout
    landing.with_name("away").rename(landing)
    assert run("outbox", "ship").returncode == 0
    assert "ships to" in run("outbox", "status").stdout


def test_the_missing_setting_of_the_landing_zone_is_named(shared_edge, gateway):
    done = shared_edge("outbox", "ship", "--data-dir", gateway.data_dir)
    assert done.returncode == 1
    assert "offload.to" in done.stderr
    status = shared_edge("outbox", "status", "--data-dir", gateway.data_dir)
    assert "off: offload.to is not set" in status.stdout


def test_an_unreachable_gateway_is_exit_code_3(shared_edge):
    assert shared_edge("outbox", "status", "--url", "http://127.0.0.1:9").returncode == 3
