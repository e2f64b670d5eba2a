"""`edge doctor` with real gateways."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.support.commands import run_edge
from tests.support.processes import GatewayProcess

ALONE = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false", "EDGE__SECURITY__HTTPS_PORT": "0",
         "EDGE__SECURITY__WSS_PORT": "0"}  # fmt: skip


@pytest.fixture
def gateway(tmp_path):
    process = GatewayProcess(tmp_path / "data", ALONE)
    yield process
    process.stop()


def doctor(gateway, *arguments, **environ):
    command = ["doctor", "--data-dir", gateway.data_dir, *arguments]
    return run_edge(command, gateway.environment, changed=environ, seconds=60)


def found(gateway, *arguments, **environ):
    """Return the rows of each check."""
    rows: dict[str, list] = {}
    for row in json.loads(doctor(gateway, "--json", *arguments, **environ).stdout):
        rows.setdefault(row["check"], []).append(row)
    return rows


def test_a_running_gateway_is_healthy_and_a_killed_one_is_not(gateway):
    gateway.start()
    gateway.data_dir.chmod(0o700)
    rows = found(gateway)
    assert [row["state"] for row in rows["gateway"]] == ["ok"]
    assert f"process {gateway.pid}" in rows["gateway"][0]["what"]
    assert rows["restarts"][0]["state"] == rows["files"][0]["state"] == rows["backlog"][0]["state"] == "ok"
    gateway.kill()
    done = doctor(gateway)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "no gateway runs" in done.stdout
    assert "it was killed, or crashed" in done.stdout
    assert "endpoints.json" in done.stdout
    assert "--fix does that" in done.stdout
    fixed = doctor(gateway, "--fix")
    assert "fixed: removed endpoints.json" in fixed.stdout
    assert not (gateway.data_dir / "endpoints.json").exists()
    gateway.start()


def test_a_stalled_gateway_is_reported_in_seconds(gateway):
    gateway.start()
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        rows = found(gateway)
    finally:
        os.kill(gateway.pid, signal.SIGCONT)
    assert rows["gateway"][0]["state"] == "problem"
    assert "no answer within 5 s" in rows["gateway"][0]["what"]


def test_a_secured_gateway_reports_details_only_with_a_token(gateway):
    gateway.environment |= {"EDGE__SECURITY__ENABLED": "true"}
    gateway.start()
    rows = found(gateway)
    assert [row["state"] for row in rows["gateway"]] == ["ok", "unknown"]
    assert "EDGE_TOKEN" in rows["gateway"][1]["do"]
    assert [row["state"] for row in rows["certificates"]] == ["ok", "ok"]
    for arguments in (["allow", "me", "--action", "administer"], ["token", "me"]):
        done = run_edge(["clients", *arguments, "--data-dir", gateway.data_dir], gateway.environment, seconds=60)
        assert done.returncode == 0, done.stderr
    rows = found(gateway, EDGE_TOKEN=done.stdout.strip())
    assert [row["state"] for row in rows["gateway"]] == ["ok"]
    assert rows["backlog"][0]["state"] == "ok"
    assert found(gateway, EDGE_TOKEN="nonsense")["gateway"][0]["state"] == "unknown"


def test_invalid_settings_are_exit_code_2(gateway):
    done = doctor(gateway, EDGE__HTTP__PORT="x")
    assert done.returncode == 2
    assert "EDGE__HTTP__PORT" in done.stderr
