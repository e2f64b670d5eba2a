"""`edge health`: the state of the gateway."""

from __future__ import annotations

import json
import threading

from edge_command import launch

from tests.support.processes import free_port

QUIET = {"EDGE__HOST__ENABLED": "false", "EDGE__MQTT__ENABLED": "false"}


def test_a_working_gateway_is_healthy(edge, tmp_path):
    running = launch(edge, tmp_path / "data", **QUIET)
    done = edge("health", "--data-dir", running.data_dir)
    assert done.returncode == 0
    assert done.stdout.startswith("healthy: version ")
    assert done.stdout.endswith(" components make progress\n")
    done = edge("health", "--json", "--data-dir", running.data_dir)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["version"]
    assert isinstance(found["parts"], dict)


def test_a_broker_and_a_port_that_are_not_connected_are_named(edge, tmp_path):
    mappings = tmp_path / "data" / "mappings"
    mappings.mkdir(parents=True)
    (mappings / "meter.toml").write_text('[[serial]]\nname = "meter"\ndevice = "/dev/ttyNONE"\n')
    settings = {"EDGE__HOST__ENABLED": "false", "EDGE__MQTT__BROKER": f"mqtt://127.0.0.1:{free_port()}"}
    running = launch(edge, tmp_path / "data", **settings)
    done = edge("health", "--data-dir", running.data_dir)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "not connected: the MQTT broker, serial port meter; `edge doctor` says more"
    ]


def test_a_missing_gateway_is_unhealthy_and_can_be_awaited(edge, tmp_path):
    assert edge("health", "--json", "--data-dir", tmp_path / "data").stdout == ""
    done = edge("health", "--data-dir", tmp_path / "data")
    assert done.returncode == 3
    assert "no gateway runs" in done.stderr
    found = []
    waiting = threading.Thread(
        target=lambda: found.append(edge("health", "--wait", "60", "--data-dir", tmp_path / "data"))
    )
    waiting.start()
    launch(edge, tmp_path / "data", **QUIET)
    waiting.join()
    assert found[0].returncode == 0


def test_an_invalid_address_is_not_awaited(edge):
    done = edge("health", "--wait", "60", "--url", "nonsense")
    assert done.returncode == 2
