"""Backups on a full disk."""

from __future__ import annotations

import subprocess
import sys

from tests.faults.monitored_gateway import Watched


def edge(process, *arguments):
    command = [sys.executable, "-m", "edge", *map(str, arguments), "--data-dir", str(process.data_dir)]
    return subprocess.run(command, env=process.environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_backup_on_a_full_disk_leaves_nothing_behind(gateway, disk, tmp_path):
    process = gateway(disk.data, EDGE__MQTT__ENABLED="false")
    watched = Watched(process)
    text = " . ".join(f"<urn:s{number}> <urn:p> '{number * 7919:x}'" for number in range(20_000))
    watched.update(f"INSERT DATA {{ {text} }}")
    target = disk.data.parent / "backup.tar.gz"
    target.write_text("the last one")
    disk.fill()
    done = edge(process, "backup", "--force", target)
    assert done.returncode == 1
    assert "could not be made" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in disk.data.parent.iterdir()) == ["backup.tar.gz", "ballast", "data"]
    assert target.read_text() == "the last one"

    elsewhere = tmp_path / "backup.tar.gz"  # a full disk is a good reason for a backup
    assert edge(process, "backup", elsewhere).returncode == 0
    process.kill()
    before = (disk.data / "edge.sqlite3").read_bytes()
    done = edge(process, "restore", elsewhere, "--replace")
    assert done.returncode == 1
    assert (disk.data / "edge.sqlite3").read_bytes() == before
    assert sorted(path.name for path in disk.data.parent.iterdir()) == ["backup.tar.gz", "ballast", "data"]
    disk.make_room()
    assert edge(process, "restore", elsewhere, "--replace").returncode == 0
    assert len(Watched(process).values("SELECT ?o { ?s <urn:p> ?o }")) == 20_000
