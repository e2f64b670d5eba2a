"""`edge run` with a damaged file: it starts, or reports the problem and the remedy. There is no traceback."""

import shutil

import pytest
from edge_command import FREE_PORTS, Edge, launch

SECURE = {
    "EDGE__SECURITY__ENABLED": "true",
    "EDGE__SECURITY__HTTPS_PORT": "0",
    "EDGE__SECURITY__WSS_PORT": "0",
    "EDGE__HOST__ENABLED": "false",
    "EDGE__MQTT__ENABLED": "false",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a data directory with all files that a gateway creates, and a client."""
    base = tmp_path_factory.mktemp("whole")
    edge = Edge(base / "home")
    edge.home.mkdir()
    try:
        assert launch(edge, base / "data", **SECURE).stop() == 0
        assert edge("clients", "allow", "lamp", "--data-dir", base / "data").returncode == 0
        assert edge("clients", "token", "lamp", "--data-dir", base / "data").returncode == 0
    finally:
        edge.end()
    return base / "data"


def zeros(file):
    file.write_bytes(bytes(file.stat().st_size))


def half(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def directory(file):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [zeros, half, directory])
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("edge.sqlite3", "Restore a backup|Check its owner"),
        ("clients.sqlite3", "edge restore|must be a file"),
        ("tls/server.pem", "edge cert init|cannot be read"),
    ],
)
def test_errors_at_the_start_name_the_remedy(edge, tmp_path, whole, name, remedy, damage):
    data = shutil.copytree(whole, tmp_path / "data")
    damage(data / name)
    done = edge("run", "--data-dir", data, environ={**FREE_PORTS, **SECURE})
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(data / name) in done.stderr
    assert any(words in done.stderr for words in remedy.split("|"))


@pytest.mark.parametrize("damage", [zeros, directory])
def test_all_other_files_damaged_at_once_keep_no_gateway_from_starting(edge, tmp_path, whole, damage):
    data = shutil.copytree(whole, tmp_path / "data")
    for name in ("last-run.json", "reserve", "tls/ca.key", "tls/ca.pem"):
        damage(data / name)
    running = launch(edge, data, **SECURE)
    assert running.stop() == 0
    assert "Traceback" not in running.output.with_suffix(".err").read_text()


def test_a_damaged_signing_key_keeps_no_gateway_from_starting(edge, tmp_path, whole):
    data = shutil.copytree(whole, tmp_path / "data")
    content = (data / "clients.sqlite3").read_bytes()
    mark = b"-----BEGIN PRIVATE KEY-----"
    assert mark in content
    (data / "clients.sqlite3").write_bytes(content.replace(mark, b"-----BEGIN PRIVATE K*Y-----"))
    running = launch(edge, data, **SECURE)
    (entry,) = [entry for entry in running.log() if entry["event"] == "security.key_damaged"][:1]
    assert "edge clients rotate-key --now" in entry["remedy"]
    assert "damaged rows: the signing key" in edge("doctor", "--data-dir", data).stdout
    assert edge("clients", "rotate-key", "--now", "--data-dir", data).returncode == 0
    assert running.stop() == 0
    assert "damaged rows" not in edge("doctor", "--data-dir", data).stdout
