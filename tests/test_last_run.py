"""The reason of the last restart: its record, and the places that report it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest

from edge import __version__, last_run
from edge.last_run import LastRun, Run, RunRecord
from tests.support.processes import GatewayProcess

ALONE = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"}


@pytest.fixture
def gateway(tmp_path):
    process = GatewayProcess(tmp_path / "data", ALONE)
    yield process
    process.stop()


def reported(endpoints) -> tuple[dict, str]:
    """Return `last_restart` of /health, and the metrics."""
    with urllib.request.urlopen(endpoints["http"] + "/health", timeout=30) as answer:
        health = json.load(answer)
    with urllib.request.urlopen(endpoints["http"] + "/metrics", timeout=30) as answer:
        return health["last_restart"], answer.read().decode()


def test_each_start_knows_how_the_run_before_it_ended(gateway):
    restart, metrics = reported(gateway.start())
    assert (restart["reason"], restart["starts"]) == ("first", 1)
    assert gateway.stop() == 0

    restart, metrics = reported(gateway.start())
    assert (restart["reason"], restart["starts"]) == ("stopped", 2)
    assert restart["text"] == "it was stopped in order"
    assert 'edge_last_restart{reason="stopped"} 1.0' in metrics
    assert "edge_starts_total 2.0" in metrics
    gateway.kill()

    restart, metrics = reported(gateway.start())
    assert (restart["reason"], restart["starts"], restart["ended"]) == ("crashed", 3, "")
    assert '"last_restart": "it was killed, or crashed, while the machine ran on"' in gateway.log()

    # A power cut leaves no end, and a new boot id.
    gateway.kill()
    record = last_run.read(gateway.data_dir)
    last_run.write(gateway.data_dir, replace(record, run=replace(record.run, boot="another", version="0.0.1")))
    restart, metrics = reported(gateway.start())
    assert (restart["reason"], restart["upgraded_from"], restart["starts"]) == ("power", "0.0.1", 4)
    assert restart["text"] == "power cut or reset of the machine; version 0.0.1 ran before"
    reasons = [run.reason for run in last_run.read(gateway.data_dir).before]
    assert reasons == ["power", "crashed", "stopped"]


def test_a_start_that_fails_leaves_its_reason(gateway):
    gateway.start()
    gateway.stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gateway.environment["EDGE__HTTP__PORT"] = str(taken.getsockname()[1])
        refused = subprocess.run(
            [sys.executable, "-m", "edge", "run", "--data-dir", gateway.data_dir],
            env=gateway.environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode == 1
    gateway.environment["EDGE__HTTP__PORT"] = "0"
    restart, _ = reported(gateway.start())
    assert (restart["reason"], restart["starts"]) == ("start_failed", 3)
    assert "EADDRINUSE" in restart["detail"] or "in use" in restart["detail"]


def test_a_process_without_the_lock_writes_nothing(gateway):
    gateway.start()
    before = (gateway.data_dir / last_run.NAME).read_bytes()
    second = [sys.executable, "-m", "edge", "run", "--data-dir", gateway.data_dir]
    assert subprocess.run(second, env=gateway.environment, capture_output=True, timeout=60, check=False).returncode == 1
    assert (gateway.data_dir / last_run.NAME).read_bytes() == before


def test_a_stalled_gateway_leaves_a_traceback(tmp_path):
    run = LastRun.begin(tmp_path, __version__, "here")
    run.last_words("stuck", "for 300 s")
    assert (
        LastRun.begin(tmp_path, __version__, "here").restart.text
        == "its event loop stood still and it ended (for 300 s)"
    )


def test_the_first_reason_counts_but_a_stop_need_not_end_in_order(tmp_path):
    run = LastRun.begin(tmp_path, __version__, "here")
    run.end("stopped")
    run.end("stop_timeout", "after 5 s")
    run.end("stopped")
    assert last_run.read(tmp_path).run.reason == "stop_timeout"


def test_an_unreadable_record_does_not_prevent_the_start(tmp_path):
    for content in (b"", b"{", b"[1]", b'{"starts": 1}', b"\xff" * 5000):
        (tmp_path / last_run.NAME).write_bytes(content)
        assert LastRun.begin(tmp_path, __version__, "here").restart.reason == "unknown"
    assert LastRun.begin(tmp_path / "missing", __version__, "here").restart.reason == "first"


def test_the_file_stays_small(tmp_path):
    for _ in range(30):
        LastRun.begin(tmp_path, __version__, "here").end("lost", "x" * 10_000)
        assert (tmp_path / last_run.NAME).stat().st_size == 4096
    record = last_run.read(tmp_path)
    assert record.starts == 30
    assert 5 < len(record.before) <= 10


def test_a_full_disk_overwrites_the_old_record(tmp_path):
    LastRun.begin(tmp_path, __version__, "here").end("stopped")
    (tmp_path / "last-run.part").mkdir()  # such a file cannot be created
    LastRun.begin(tmp_path, __version__, "here").end("lost", "because")
    assert last_run.read(tmp_path).run.detail == "because"
    assert last_run.read(tmp_path).starts == 2


def test_a_restored_directory_is_recorded(tmp_path):
    (old := tmp_path / "old").mkdir()
    (new := tmp_path / "new").mkdir()
    last_run.write(old, RunRecord(7, Run("1", last_run.boot_id(), "2026-01-01T00:00:00+00:00")))
    last_run.restored(old, new, __version__)
    restart = LastRun.begin(new, __version__).restart
    assert (restart.reason, restart.starts) == ("restored", 8)
    assert last_run.read(new).before[1].reason == "crashed"
