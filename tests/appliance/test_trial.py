"""What an image does with the gateway's data when an update is tried, and when it is undone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.appliance.appliance import load, own

trial = load("trial")


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A box in slot A with data of format 1."""
    for name, file in {
        "DATA": "sepa-edge",
        "TRIAL": "trial",
        "UNDONE": "undone",
        "BEFORE": "before-update",
        "AFTER": "of-undone-update",
    }.items():
        monkeypatch.setattr(trial, name, tmp_path / file)
    own(monkeypatch)
    trial.DATA.mkdir()
    written(1)
    start(monkeypatch, "A")
    (tmp_path / "manifest.raucm").write_text("[update]\ncompatible=sepa-edge-amd64\nversion=7.0\n")
    monkeypatch.setenv("RAUC_BUNDLE_MOUNT_POINT", str(tmp_path))
    monkeypatch.setattr(trial, "rauc", lambda *_: None)
    return tmp_path


def start(monkeypatch: pytest.MonkeyPatch, slot: str) -> str:
    """A start of the box in that slot; what the owner is told."""
    monkeypatch.setattr(trial, "booted", lambda: slot)
    told = trial.end()
    trial.begin()
    return str(told)


def written(version: int) -> None:
    """A gateway writes, in its format."""
    with closing(sqlite3.connect(trial.DATA / "edge.sqlite3")) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (version)")
        connection.execute("INSERT INTO t VALUES (?)", (version,))
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()


def found() -> list[int]:
    """What the gateways have written."""
    with closing(sqlite3.connect(trial.DATA / "edge.sqlite3")) as connection:
        return [row[0] for row in connection.execute("SELECT version FROM t")]


def test_an_update_that_serves_stays_with_all_that_was_written(box, monkeypatch):
    trial.main("installed")
    start(monkeypatch, "B")
    written(2)
    trial.main("good")
    assert start(monkeypatch, "B") == ""
    assert found() == [1, 2]
    assert not trial.BEFORE.exists()


def test_where_the_older_system_can_read_what_the_update_wrote_nothing_is_lost(box, monkeypatch):
    trial.main("installed")
    start(monkeypatch, "B")
    written(1)
    assert start(monkeypatch, "A") == "update: 7.0 was undone: it did not reach health"
    assert found() == [1, 1]


def test_where_it_cannot_the_data_of_before_is_back_and_the_other_kept(box, monkeypatch):
    trial.main("installed")
    start(monkeypatch, "B")
    written(2)
    told = start(monkeypatch, "A")
    assert told == f"update: 7.0 was undone: it did not reach health; its data is in {trial.AFTER}"
    assert found() == [1]
    assert (trial.AFTER / "edge.sqlite3").exists()


def test_a_power_cut_while_data_is_put_back_loses_none(box, monkeypatch):
    trial.main("installed")
    start(monkeypatch, "B")
    written(2)
    trial.DATA.rename(trial.AFTER)
    trial.DATA.mkdir()  # as the initial RAM disk does
    start(monkeypatch, "A")
    assert found() == [1]
    assert (trial.AFTER / "edge.sqlite3").exists()


def test_a_second_start_on_trial_keeps_the_first_copy(box, monkeypatch):
    trial.main("installed")
    start(monkeypatch, "B")
    written(2)
    start(monkeypatch, "B")
    start(monkeypatch, "A")
    assert found() == [1]


def test_the_owner_is_told_until_the_next_update(box, monkeypatch):
    trial.main("installed")
    start(monkeypatch, "B")
    start(monkeypatch, "A")
    assert "undone" in start(monkeypatch, "A")
    trial.main("installed")
    assert start(monkeypatch, "B") == ""


def test_without_an_update_nothing_is_copied(box, monkeypatch):
    assert start(monkeypatch, "A") == ""
    assert start(monkeypatch, "B") == ""
    assert not trial.BEFORE.exists()
