"""A gateway that is restored from a backup made under load, with a landing zone that is ahead of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

from edge import last_run
from edge.engine.requests import QueryRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.outbox.segment import MANIFEST, SegmentManifest
from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

READING = """PREFIX sosa: <http://www.w3.org/ns/sosa/>
DELETE {{ <urn:sensor> <urn:value> ?old }} INSERT {{ <urn:sensor> <urn:value> {0} .
  GRAPH <urn:edge:history> {{ <urn:reading:{0}> a sosa:Observation ; <urn:value> {0} }} }}
WHERE {{ OPTIONAL {{ <urn:sensor> <urn:value> ?old }} }}"""
VALUE = "SELECT ?value { <urn:sensor> <urn:value> ?value }"


@pytest.fixture
def landing(tmp_path) -> Path:
    (tmp_path / "landing").mkdir()
    return tmp_path / "landing"


@pytest.fixture
def gateway(tmp_path, landing):
    settings = {
        "EDGE__MQTT__ENABLED": "false",
        "EDGE__HOST__ENABLED": "false",
        "EDGE__OFFLOAD__TO": str(landing),
        "EDGE__OFFLOAD__EVERY": "1",
        "EDGE__OFFLOAD__RETRY_MIN": "0.1",
        "EDGE__OFFLOAD__RETRY_MAX": "0.2",
    }
    process = GatewayProcess(tmp_path / "data", settings)
    yield process
    process.stop()


def ask(http: str, path: str, **form: str):
    body = urlencode(form).encode() if form else None
    with urllib.request.urlopen(http + path, body, timeout=30) as answer:
        return json.load(answer)


def value(http: str) -> int:
    (row,) = ask(http, "/query", query=VALUE)["results"]["bindings"]
    return int(row["value"]["value"])


def edge(gateway: GatewayProcess, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge", *map(str, arguments), "--data-dir", str(gateway.data_dir)]
    return subprocess.run(
        command, env=gateway.environment, capture_output=True, text=True, timeout=60, umask=0o022, check=False
    )


def shipped(landing: Path) -> dict[str, set[int]]:
    """Return the shipped numbers of each epoch."""
    found: dict[str, set[int]] = {}
    for path in landing.rglob(f"[!.]*{MANIFEST}"):
        manifest = SegmentManifest.from_json(path.read_bytes())
        found.setdefault(manifest.epoch, set()).update(range(manifest.first, manifest.last + 1))
    return found


def test_a_gateway_continues_from_its_backup_with_its_outbox_in_a_new_epoch(gateway, landing, tmp_path):
    http = gateway.start()["http"]
    last = 0
    enough = threading.Event()

    def read_on() -> None:
        nonlocal last
        while not enough.is_set():
            ask(http, "/update", update=READING.format(last + 1))
            last += 1

    reading = threading.Thread(target=read_on)
    reading.start()
    try:
        wait_for(lambda: last > 20, what="readings")
        archive = tmp_path / "backup.tar.gz"
        began = last
        made = edge(gateway, "backup", archive)
        ended = last + 1
        assert made.returncode == 0, made.stderr
        wait_for(lambda: last > ended + 20, what="more readings")
    finally:
        enough.set()
        reading.join(30)
    assert archive.stat().st_mode & 0o777 == 0o600
    (epoch,) = wait_for(lambda: (found := shipped(landing)) and last in next(iter(found.values())) and found)

    refused = edge(gateway, "restore", archive, "--replace")
    assert refused.returncode == 1
    assert "in use by another gateway" in refused.stderr
    assert value(http) == last
    gateway.kill()
    refused = edge(gateway, "restore", archive)
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    restored = edge(gateway, "restore", archive, "--replace")
    assert restored.returncode == 0, restored.stderr

    http = gateway.start()["http"]
    then = value(http)
    assert began <= then <= ended
    assert ask(http, "/health")["last_restart"]["reason"] == "restored"
    assert [run.reason for run in last_run.read(gateway.data_dir).before][:2] == ["restored", "crashed"]
    ask(http, "/update", update=READING.format(10_000))
    found = wait_for(lambda: len(found := shipped(landing)) == 2 and found, what="the new epoch")
    (other,) = found.keys() - {epoch}
    assert ask(http, "/api/outbox")["epoch"] == other
    # All unacknowledged observations of the copy, and the new reading, numbered from 1.
    wait_for(lambda: shipped(landing)[other] == set(range(1, then + 2)), what="all of it")
    assert "offload.older_copy" in gateway.log()


def test_a_backup_through_a_pipe_and_back(gateway, tmp_path):
    http = gateway.start()["http"]
    ask(http, "/update", update=READING.format(7))
    (gateway.data_dir / "queries" / "value.rq").write_text(VALUE)
    data = ["--data-dir", str(gateway.data_dir)]
    command = [sys.executable, "-m", "edge"]
    environment = {**gateway.environment, "EDGE__MQTT__PASSWORD_FILE": "/etc/hostname", "EDGE__MQTT__USERNAME": "me"}
    more = {"env": environment, "capture_output": True, "timeout": 60, "check": True}
    made = subprocess.run([*command, "backup", "-", *data], **more)
    assert b"not in the backup, because it is outside the data directory, or a link: /etc/hostname" in made.stderr
    gateway.stop()
    gateway.data_dir.rename(tmp_path / "lost")
    done = subprocess.run([*command, "restore", "-", *data], input=made.stdout, **more)
    assert b"is restored to its state of" in done.stdout
    assert (gateway.data_dir / "queries" / "value.rq").read_text() == VALUE
    assert value(gateway.start()["http"]) == 7


def test_a_killed_restore_leaves_either_the_old_or_the_new_data(gateway, tmp_path):
    ask(gateway.start()["http"], "/update", update=READING.format(1))
    assert edge(gateway, "backup", tmp_path / "backup.tar.gz").returncode == 0
    gateway.stop()
    ask(gateway.start()["http"], "/update", update=READING.format(2))
    gateway.stop()
    command = [sys.executable, "-m", "edge", "restore", tmp_path / "backup.tar.gz", "--replace"]
    for step in range(10):
        process = subprocess.Popen(
            [*command, "--data-dir", gateway.data_dir], env=gateway.environment, stdout=subprocess.DEVNULL
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.4 + 0.05 * step)  # whatever it is doing at that time
        process.kill()
        process.wait(10)
        engine = open_engine(gateway.data_dir, EngineSettings())
        found = engine.query(QueryRequest(VALUE)).result(20)
        assert [row[0].value for row in found.rows] in (["1"], ["2"])
        engine.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_restored_files_belong_to_the_owner_of_the_directory(gateway, tmp_path):
    gateway.start()
    gateway.stop()
    assert edge(gateway, "backup", tmp_path / "backup.tar.gz").returncode == 0
    again = edge(gateway, "backup", tmp_path / "backup.tar.gz")
    assert (again.returncode, again.stderr.endswith("or replace this one with --force\n")) == (1, True)
    assert edge(gateway, "backup", "--force", tmp_path / "backup.tar.gz").returncode == 0
    os.chown(gateway.data_dir, 4711, 4712)
    assert edge(gateway, "restore", tmp_path / "backup.tar.gz", "--replace").returncode == 0
    for path in (gateway.data_dir, gateway.data_dir / "edge.sqlite3"):
        assert (path.stat().st_uid, path.stat().st_gid) == (4711, 4712)


def test_a_missing_directory_or_file_is_reported_in_one_line(gateway, tmp_path):
    done = edge(gateway, "backup", tmp_path / "backup.tar.gz")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "is not a data directory" in done.stderr
    done = edge(gateway, "restore", tmp_path / "missing.tar.gz")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    done = edge(gateway, "restore", tmp_path / "missing.tar.gz", "--remove")
    assert done.returncode == 2
