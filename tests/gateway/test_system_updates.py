"""Updates of an image's system over the HTTP interface of a gateway as a process, with a test as the system."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

ALONE = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false", "EDGE__COAP__ENABLED": "false"}
PATH = "/api/system-update"
BUNDLE = {"Content-Type": "application/octet-stream"}
CONTENT = b"a signed system" * 1_000_000


@pytest.fixture(scope="module")
def system(tmp_path_factory) -> Path:
    directory: Path = tmp_path_factory.mktemp("rauc")
    return directory


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, system) -> Iterator[GatewayProcess]:
    ports = {f"EDGE__{name}__PORT": str(free_port()) for name in ("HTTP", "WS")}
    settings = {**ALONE, **ports, "EDGE__APPLIANCE__UPDATE_DIRECTORY": str(system)}
    process = GatewayProcess(tmp_path_factory.mktemp("updated") / "data", settings)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def http(gateway, system) -> Iterator[httpx.Client]:
    for file in [*system.glob("*"), *system.glob("incoming/*")]:
        if file.is_file():
            file.unlink()
    (system / "incoming").mkdir(exist_ok=True)
    with httpx.Client(base_url=url(gateway), timeout=60) as client:
        yield client


def url(gateway: GatewayProcess) -> str:
    return str(json.loads((gateway.data_dir / "endpoints.json").read_text())["http"])


def files(system: Path) -> list[str]:
    return sorted(file.name for file in (system / "incoming").iterdir())


def test_an_update_is_stored_and_its_installation_requested(http, system):
    assert http.get(PATH).json() == {"state": "idle"}
    answer = http.post(PATH, content=CONTENT, headers=BUNDLE)
    assert (answer.status_code, answer.json()) == (202, {"state": "waiting"})
    assert (system / "incoming/update.raucb").read_bytes() == CONTENT
    assert (system / "incoming/request").read_text() == "install"
    answer = http.post(PATH, content=CONTENT, headers=BUNDLE)
    assert answer.status_code == 429
    assert "Another update" in answer.json()["error_description"]


def test_the_state_is_that_of_the_system(http, system):
    known = {"state": "installing", "percent": 40, "message": "Checking bundle"}
    (system / "state").write_text(json.dumps(known))
    assert http.get(PATH).json() == known
    (system / "trial").write_text("B 2.0")
    (system / "undone").write_text("B 1.9")
    (system / "state").write_text("{")  # written by something else
    assert http.get(PATH).json() == {"state": "idle", "trial": "2.0", "undone": "1.9"}


def test_a_restart_needs_an_installed_update(http, system):
    answer = http.post(f"{PATH}/restart", json={"restart": True})
    assert answer.status_code == 409
    assert "send one first" in answer.json()["error_description"]
    (system / "state").write_text('{"state": "installed", "version": "2.0"}')
    assert http.post(f"{PATH}/restart", content=b'{"restart": true}').status_code == 415
    assert http.post(f"{PATH}/restart", json={"restart": False}).status_code == 400
    assert http.post(f"{PATH}/restart", json={"restart": True}).status_code == 202
    assert (system / "incoming/request").read_text() == "restart"


def test_a_refused_update_leaves_nothing(http, system):
    assert http.post(PATH, content=CONTENT).status_code == 415
    answer = http.post(PATH, content=b"", headers=BUNDLE)
    assert (answer.status_code, files(system)) == (400, [])
    assert ".raucb" in answer.json()["error_description"]
    large = str(3 * 1024**3)
    assert status_of(http, large) == 413
    assert files(system) == []


def status_of(http: httpx.Client, length: str) -> int:
    """Announce a file of this length, send none of it, and return the status of the response."""
    place = urlsplit(str(http.base_url))
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {length}\r\n"
        connection.sendall(f"{head}Content-Type: {BUNDLE['Content-Type']}\r\n\r\n".encode())
        return int(connection.recv(100).split()[1])


def test_a_client_that_goes_away_leaves_nothing_and_others_are_served(http, system):
    place = urlsplit(str(http.base_url))
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(CONTENT)}\r\n"
        connection.sendall(f"{head}Content-Type: {BUNDLE['Content-Type']}\r\n\r\n".encode() + CONTENT[:9_000_000])
        wait_for(lambda: http.get(PATH).json() == {"state": "receiving"})
        wait_for(lambda: (system / "incoming/update.part").stat().st_size > 4_000_000)
        assert http.post(PATH, content=CONTENT, headers=BUNDLE).status_code == 429
        assert http.get("/query", params={"query": "ASK {}"}).json()["boolean"] is True
    wait_for(lambda: http.get(PATH).json() == {"state": "idle"})
    assert files(system) == []


def test_the_rest_of_an_interrupted_upload_is_removed_first(http, system):
    for name in ("update.part", "update.raucb"):
        (system / "incoming" / name).write_bytes(b"left")
    assert http.post(PATH, content=b"", headers=BUNDLE).status_code == 400
    assert files(system) == []


def test_a_directory_that_cannot_be_written_is_an_error_with_its_reason(http, system):
    (system / "incoming").rmdir()
    answer = http.post(PATH, content=CONTENT, headers=BUNDLE)
    assert answer.status_code == 507
    assert "could not be stored" in answer.json()["error_description"]


def test_elsewhere_there_are_no_updates(tmp_path):
    ports = {f"EDGE__{name}__PORT": str(free_port()) for name in ("HTTP", "WS")}
    process = GatewayProcess(tmp_path / "data", {**ALONE, **ports})
    process.start()
    try:
        with httpx.Client(base_url=url(process), timeout=60) as http:
            assert http.get(PATH).json() == {"state": "off"}
            answer = http.post(PATH, content=b"x", headers=BUNDLE)
            assert answer.status_code == 404
            assert "only images" in answer.json()["error_description"]
            assert http.post(f"{PATH}/restart", json={"restart": True}).status_code == 404
    finally:
        process.stop()
