"""Thousands of silent unauthenticated connections to a gateway with few descriptors: clients still get in."""

from __future__ import annotations

import os
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.faults.network_link import NEAR
from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

DESCRIPTORS = 1024
SERVICES = ["https", "wss", "mqtts"]


@pytest.fixture
def watched(cable, tmp_path) -> Iterator[GatewayProcess]:
    settings = {
        "EDGE__HOST__ENABLED": "false",
        "EDGE__SECURITY__ENABLED": "true",
        "EDGE__SECURITY__HOST": "0.0.0.0",
        "EDGE__SECURITY__HTTPS_PORT": "0",
        "EDGE__SECURITY__WSS_PORT": "0",
    }
    process = GatewayProcess(tmp_path / "data", settings, DESCRIPTORS)
    yield process
    process.stop()


@contextmanager
def enough_descriptors(count: int) -> Iterator[None]:
    """Raise the limit of descriptors for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        pytest.skip(f"needs {count} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def shakes_hands(cable, port: int, trust: ssl.SSLContext) -> bool:
    """Return whether the TLS handshake succeeds. A gateway under load may close the connection at first."""
    try:
        with cable.connect(port) as plain, trust.wrap_socket(plain) as secure:
            return secure.version() is not None
    except (ConnectionError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
        return False


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def memory(pid: int) -> int:
    """Return the resident memory in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20


@pytest.mark.parametrize("service", SERVICES)
def test_silent_unauthenticated_connections_block_no_client(cable, watched, service):
    endpoints = watched.start()
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    before = memory(watched.pid)
    with enough_descriptors(4000), ExitStack() as stack:
        for _ in range(1200):
            stack.enter_context(cable.connect(port_of(endpoints[service])))
        wait_for(lambda: descriptors(watched.pid) < DESCRIPTORS // 2, what="few descriptors")
        for other in {*SERVICES} - {service}:
            assert shakes_hands(cable, port_of(endpoints[other]), trust)
        # The address of the silent connections has used its quota; this address is still accepted.
        with (
            socket.create_connection((NEAR, port_of(endpoints[service])), 20) as plain,
            trust.wrap_socket(plain) as secure,
        ):
            assert secure.version() is not None
        with httpx.Client(timeout=20) as http:
            assert http.get(f"{endpoints['http']}/health").status_code == 200
        assert memory(watched.pid) - before < 120
    assert watched.log().count("\n") < 100
    assert "system resource" not in watched.log()
    wait_for(lambda: shakes_hands(cable, port_of(endpoints[service]), trust))
