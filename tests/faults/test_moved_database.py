"""An operator renames the database files of a running gateway: it refuses updates, says so, and goes on afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.monitored_gateway import Watched

VALUES = "SELECT ?n { <urn:set> <urn:has> ?n }"


def put(value: object) -> str:
    return f"INSERT DATA {{ <urn:set> <urn:has> '{value}' }}"


@pytest.fixture
def watched(gateway, tmp_path) -> Watched:
    return Watched(gateway(tmp_path / "data", EDGE__SECURITY__ENABLED="false"))


def files(directory: Path) -> list[Path]:
    return [directory / f"edge.sqlite3{suffix}" for suffix in ("", "-wal", "-shm")]


def test_no_acknowledged_update_is_lost_in_a_renamed_file(watched):
    directory = watched.process.data_dir
    watched.update(put("before"))
    for file in files(directory):
        file.rename(file.with_name(f"moved-{file.name}"))
    status, health = watched.ask("/health")  # also without an update
    assert (status, "renamed, deleted or replaced" in str(health)) == (503, True)
    status, error = watched.ask("/update", update=put("lost"))
    assert (status, error["error"]) == (507, "storage_failed")
    assert "Put the same files back" in error["error_description"]
    status, _ = watched.ask("/update", update=put("later"), delay="PT1S")
    assert status == 507
    assert watched.values(VALUES) == ["before"]
    for file in files(directory):
        file.with_name(f"moved-{file.name}").rename(file)
    watched.update(put("after"))
    assert watched.ask("/health")[0] == 200
    watched.process.kill()
    watched.endpoints = watched.process.start()
    assert watched.values(VALUES) == ["after", "before"]
