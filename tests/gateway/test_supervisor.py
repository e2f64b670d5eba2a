"""Notifications of a gateway to systemd."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.supervisor import Supervisor
from tests.support.processes import GatewayProcess

QUIET = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"}


@pytest.fixture
def notify_socket(tmp_path: Path) -> Iterator[socket.socket]:
    """Listen on systemd's notification socket, at `tmp_path/notify`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(20)
        yield ear


def lines(notify_socket: socket.socket) -> dict[str, str]:
    return dict(line.split("=", 1) for line in notify_socket.recv(4096).decode().splitlines())


def test_the_supervisor_gets_ready_heartbeats_and_stopping(notify_socket, tmp_path):
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
    gateway = GatewayProcess(tmp_path / "data", {**QUIET, **environment})
    try:
        http = gateway.start()["http"]
        # The event loop gives signs of life before the gateway is ready, if the start takes long.
        while "READY" not in (first := lines(notify_socket)):
            assert first["WATCHDOG"] == "1"
        assert (first["READY"], first["STATUS"]) == ("1", "Serves clients; all components are live")
        assert urllib.request.urlopen(f"{http}/health", timeout=20).status == 200
        # The gateway's own interval is 10 s; a watchdog of 1.2 s gets a notification every 0.6 s.
        assert [lines(notify_socket)["WATCHDOG"] for _ in range(3)] == ["1"] * 3
    finally:
        gateway.stop()
    while "STOPPING" not in (fields := lines(notify_socket)):
        assert fields["WATCHDOG"] == "1"


def test_invalid_settings_end_with_2_and_temporary_errors_with_1(notify_socket, tmp_path):
    wrong = GatewayProcess(tmp_path / "data", {**QUIET, "EDGE__HTTP__PORTT": "1"})
    with pytest.raises(pytest.fail.Exception, match="EDGE__HTTP__PORTT"):
        wrong.start()
    assert wrong.wait(10) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = GatewayProcess(tmp_path / "data", {**QUIET, "EDGE__HTTP__PORT": str(taken.getsockname()[1])})
        with pytest.raises(pytest.fail.Exception, match="in use"):
            refused.start()
        assert refused.wait(10) == 1


def test_a_closed_notification_socket_is_ignored(tmp_path):
    supervisor = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "3000000"})
    supervisor.ready("in vain")
    assert supervisor.longest_silence == 1
    supervisor.close()
    supervisor.alive("after the end")


def test_the_watchdog_of_another_process_is_ignored():
    assert Supervisor({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}).longest_silence == float("inf")


def test_a_status_is_one_line_and_an_abstract_socket_one_too():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(b"\0sepa-edge-test-of-notifications")
        supervisor = Supervisor({"NOTIFY_SOCKET": "@sepa-edge-test-of-notifications"})
        supervisor.alive("two\nREADY=1")
        assert lines(ear) == {"WATCHDOG": "1", "STATUS": "two READY=1"}
        supervisor.close()
