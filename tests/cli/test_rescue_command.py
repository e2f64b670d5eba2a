"""A gateway on a damaged data directory: rescue mode, `edge doctor` and `edge rescue`, as separate processes."""

import contextlib
import json
import socket
import sqlite3
import urllib.error
import urllib.request

from edge_command import FREE_PORTS, launch, launch_command

FILE = "edge.sqlite3"
QUERY = "SELECT ?o { <urn:s> <urn:p> ?o } ORDER BY ?o"


def values(edge, running):
    done = edge("query", "--data-dir", running.data_dir, "--format", "json", QUERY)
    assert done.returncode == 0, done.stderr
    return [int(row["o"]["value"]) for row in json.loads(done.stdout)["results"]["bindings"]]


def update(edge, running, number):
    return edge("update", "--data-dir", running.data_dir, f"INSERT DATA {{ <urn:s> <urn:p> {number} }}")


def answer(request):
    """Return the status and the error of an answer."""
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, {}
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def content(data_dir):
    return {file.name: file.read_bytes() for file in data_dir.glob(f"{FILE}*")}


def test_from_damage_to_a_gateway_that_works_again(edge, tmp_path):
    running = launch(edge, tmp_path / "data", EDGE__HOST__ENABLED="false")
    for number in range(1, 7):
        assert update(edge, running, number).returncode == 0
    assert running.stop() == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE commits SET crc = crc + 1 WHERE first = (SELECT max(first) - 1 FROM commits)")
    before = content(tmp_path / "data")

    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.setblocking(False)
        running = launch_command(
            edge, tmp_path / "data", EDGE__MQTT__BROKER=f"mqtt://127.0.0.1:{broker.getsockname()[1]}"
        )
        assert set(running.endpoints) == {"http", "ws"}
        assert values(edge, running) == [1, 2, 3, 4]
        refused = update(edge, running, 7)
        assert refused.returncode == 1
        assert "rescue mode" in refused.stderr
        http = running.endpoints["http"]
        body = b"INSERT DATA { <urn:s> <urn:p> 7 }"
        request = urllib.request.Request(f"{http}/update", body, {"Content-Type": "application/sparql-update"})
        status, error = answer(request)
        assert (status, error["error"]) == (503, "read_only")
        assert "Restore a backup" in error["error_description"]
        status, health = answer(f"{http}/health")
        assert status == 503
        assert "fails its checksum" in health["error_description"]
        doctor = edge("doctor", "--data-dir", running.data_dir)
        assert "rescue mode" in doctor.stdout
        assert edge("rescue", "--drop", "--data-dir", running.data_dir).returncode == 1, "it is in use"
        assert running.stop() == 0
        with contextlib.suppress(BlockingIOError):
            broker.accept()
            raise AssertionError("it asked the broker for readings")
    assert content(tmp_path / "data") == before
    text = running.output.read_text() + running.output.with_suffix(".err").read_text()
    assert "Traceback" not in text
    assert "edge rescue --drop" in text
    assert [entry["event"] for entry in running.log() if entry["level"] == "critical"] == ["journal.rescue_mode"]

    reported = edge("rescue", "--data-dir", tmp_path / "data")
    assert reported.returncode == 1
    assert "triples, as after update" in reported.stdout
    assert content(tmp_path / "data") == before
    dropped = edge("rescue", "--drop", "--data-dir", tmp_path / "data")
    assert dropped.returncode == 0, dropped.stderr
    (copy,) = (tmp_path / "data").glob(f"{FILE}.damaged-*")
    assert copy.read_bytes() == before[FILE]
    assert str(copy) in dropped.stdout
    assert edge("rescue", "--data-dir", tmp_path / "data").stdout.startswith("The file is sound")

    running = launch(edge, tmp_path / "data", EDGE__HOST__ENABLED="false")
    assert update(edge, running, 8).returncode == 0
    assert values(edge, running) == [1, 2, 3, 4, 8]
    assert running.stop() == 0


def test_a_directory_without_a_journal_is_refused(edge, tmp_path):
    done = edge("rescue", "--data-dir", tmp_path)
    assert done.returncode == 1
    assert "edge.sqlite3" in done.stderr


def test_a_file_that_is_not_a_journal_still_ends_the_start(edge, tmp_path):
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    done = edge("run", "--data-dir", tmp_path, environ=FREE_PORTS)
    assert done.returncode == 1
    assert "not an SQLite database" in done.stderr
    assert "Traceback" not in done.stderr
