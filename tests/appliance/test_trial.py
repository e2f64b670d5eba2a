"""The data of the gateway while an image update is on trial, and after a rollback."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sepa_edge_appliance import boot_counter, trial

from tests.appliance.appliance import own


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an appliance in slot A with data of format 1."""
    for name, file in {
        "DATA": "sepa-edge",
        "TRIAL": "trial",
        "UNDONE": "undone",
        "BEFORE": "before-update",
        "AFTER": "of-undone-update",
        "LOST": "lost",
    }.items():
        monkeypatch.setattr(trial, name, tmp_path / file)
    monkeypatch.setattr(boot_counter, "FILE", tmp_path / "grubenv")
    monkeypatch.setattr(boot_counter, "COPY", tmp_path / "grubenv.copy")
    own(monkeypatch)
    trial.DATA.mkdir()
    written(1)
    monkeypatch.setattr(trial, "booted", lambda: "A")
    start(monkeypatch, "A")
    (tmp_path / "manifest.raucm").write_text("[update]\ncompatible=sepa-edge-amd64\nversion=7.0\n")
    monkeypatch.setenv("RAUC_BUNDLE_MOUNT_POINT", str(tmp_path))
    return tmp_path


def env(**variables: str) -> dict[str, str]:
    """Return the boot loader's variables after these changes."""
    found = boot_counter.read(trial.booted())
    if variables:
        boot_counter._write(found | variables)
    return found | variables


def activated(slot: str) -> None:
    """Act as RAUC: install a system into this slot."""
    env(**{"ORDER": "B A" if slot == "B" else "A B", f"{slot}_OK": "1", f"{slot}_TRY": "0"})


def start(monkeypatch: pytest.MonkeyPatch, slot: str) -> str:
    """Start the appliance in this slot; return the messages for its owner."""
    env(**{f"{slot}_TRY": str(int(env()[f"{slot}_TRY"]) + 1)})  # grub.cfg
    monkeypatch.setattr(trial, "booted", lambda: slot)
    reported = trial.end()
    trial.begin()
    return str(reported)


def written(version: int) -> None:
    """Write data in the format of a gateway."""
    with closing(sqlite3.connect(trial.DATA / "edge.sqlite3")) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (version)")
        connection.execute("INSERT INTO t VALUES (?)", (version,))
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()


def found() -> list[int]:
    """Return the values that the gateways have written."""
    with closing(sqlite3.connect(trial.DATA / "edge.sqlite3")) as connection:
        return [row[0] for row in connection.execute("SELECT version FROM t")]


def test_an_update_that_serves_stays_with_all_written_data(box, monkeypatch):
    trial.main("installing")
    activated("B")
    start(monkeypatch, "B")
    written(2)
    trial.main("good")
    assert start(monkeypatch, "B") == ""
    assert found() == [1, 2]
    assert not trial.BEFORE.exists()


def test_nothing_is_lost_if_the_older_system_reads_the_new_data(box, monkeypatch):
    trial.main("installing")
    activated("B")
    start(monkeypatch, "B")
    written(1)
    assert start(monkeypatch, "A") == "update: 7.0 was undone: it did not reach health"
    assert found() == [1, 1]


def test_earlier_data_is_restored_if_the_older_system_cannot_read_the_new_data(box, monkeypatch):
    trial.main("installing")
    activated("B")
    start(monkeypatch, "B")
    written(2)
    reported = start(monkeypatch, "A")
    assert reported == f"update: 7.0 was undone: it did not reach health; its data is in {trial.AFTER}"
    assert found() == [1]
    assert (trial.AFTER / "edge.sqlite3").exists()


def test_a_power_cut_while_data_is_put_back_loses_none(box, monkeypatch):
    trial.main("installing")
    activated("B")
    start(monkeypatch, "B")
    written(2)
    trial.DATA.rename(trial.AFTER)
    trial.DATA.mkdir()  # as the initial RAM disk does
    start(monkeypatch, "A")
    assert found() == [1]
    assert (trial.AFTER / "edge.sqlite3").exists()


def test_a_second_start_on_trial_keeps_the_first_copy(box, monkeypatch):
    trial.main("installing")
    activated("B")
    start(monkeypatch, "B")
    written(2)
    start(monkeypatch, "B")
    start(monkeypatch, "A")
    assert found() == [1]


def test_the_owner_is_informed_until_the_next_update(box, monkeypatch):
    trial.main("installing")
    activated("B")
    start(monkeypatch, "B")
    start(monkeypatch, "A")
    assert "undone" in start(monkeypatch, "A")
    trial.main("installing")
    activated("B")
    assert start(monkeypatch, "B") == ""


def test_without_an_update_nothing_is_copied(box, monkeypatch):
    assert start(monkeypatch, "A") == ""
    assert start(monkeypatch, "B") == ""
    assert not trial.BEFORE.exists()


def test_a_normal_start_is_confirmed_when_its_data_is_mounted(box, monkeypatch):
    for _ in range(5):
        start(monkeypatch, "A")
        assert env()["A_TRY"] == "0"


def test_a_trial_is_counted_until_its_gateway_serves(box, monkeypatch):
    trial.main("installing")
    activated("B")
    start(monkeypatch, "B")
    start(monkeypatch, "B")
    assert env()["B_TRY"] == "2"
    trial.main("good")
    assert (env()["B_OK"], env()["B_TRY"]) == ("1", "0")


def test_the_trial_of_another_system_is_not_this_ones(box, monkeypatch):
    """A result of health checks that arrives between the installation and the restart."""
    trial.main("installing")
    activated("B")
    trial.main("good")
    trial.main("failed")
    assert env()["A_OK"] == "1"
    start(monkeypatch, "B")
    written(2)
    assert (trial.TRIAL.exists(), trial.BEFORE.exists()) == (True, True)


def test_an_incomplete_installation_is_not_reported_as_undone(box, monkeypatch):
    trial.main("installing")
    assert start(monkeypatch, "A") == ""
    assert not trial.TRIAL.exists()


def test_an_undone_update_can_be_selected_by_hand(box, monkeypatch):
    trial.main("installing")
    activated("B")
    start(monkeypatch, "B")
    assert "undone" in start(monkeypatch, "A")
    trial.main("good")
    assert env()["B_OK"] == "0"
    activated("B")  # rauc status mark-active other
    assert start(monkeypatch, "B") == ""
    trial.main("good")
    assert env()["A_OK"] == "1"
    assert not trial.UNDONE.exists()


def test_a_system_that_does_not_start_is_reported_and_tried_again(box, monkeypatch):
    env(ORDER="B A", B_TRY="3")
    assert "slot B did not start three times" in start(monkeypatch, "A")
    assert env()["B_TRY"] == "0"


@pytest.mark.parametrize("left", [b"", b"# GRUB Envir", b"\0" * 1024])
def test_a_file_of_the_boot_loader_that_a_power_cut_has_spoilt_is_made_again(box, monkeypatch, left):
    activated("B")
    start(monkeypatch, "B")
    boot_counter.FILE.write_bytes(left)
    assert start(monkeypatch, "B") == ""
    assert env() == {"ORDER": "B A", "A_OK": "1", "A_TRY": "0", "B_OK": "1", "B_TRY": "0"}
    assert boot_counter.FILE.stat().st_size == 1024


def test_a_start_without_its_data_is_not_confirmed(box, monkeypatch):
    start(monkeypatch, "A")
    trial.LOST.touch()
    env(A_TRY="1")
    trial.begin()
    assert "cannot be read" in trial.end()
    with pytest.raises(SystemExit, match="cannot be read"):
        trial.main("good")
    assert env()["A_TRY"] == "1"
