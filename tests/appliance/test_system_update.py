"""Updates that the gateway has received: installed by RAUC, whose command is replaced here, or restarted into."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from appliance import own
from sepa_edge_appliance import trial, update

WORKS = """#!/bin/sh
test "$1" = install && test "$(cat "$2")" = "a signed system" || exit 9
echo "installing"
echo "  0% Installing"
echo " 40% Checking bundle"
cp {state} {seen}
echo " 40% Checking bundle done."
echo "100% Installing done."
echo "Installing \\`$2\\` succeeded"
printf 'B 2.0' >{trial}
"""
FAILS = """#!/bin/sh
echo "installing"
echo "100% Installing failed."
echo "LastError: signature verification failed: certificate is not known"
echo "Installing \\`$2\\` failed" >&2
exit 1
"""


@pytest.fixture
def box(tmp_path: Path, monkeypatch) -> Path:
    own(monkeypatch)
    (tmp_path / "incoming").mkdir()
    monkeypatch.setattr(update, "STATE", tmp_path / "state")
    monkeypatch.setattr(update, "INCOMING", tmp_path / "incoming")
    monkeypatch.setattr(update, "RAUC", str(tmp_path / "rauc"))
    monkeypatch.setattr(trial, "TRIAL", tmp_path / "trial")
    monkeypatch.setattr(update, "BUNDLE", tmp_path / "update.raucb")
    monkeypatch.setattr(trial, "booted", lambda: "A")
    monkeypatch.setattr(trial, "other", lambda: "B")
    return tmp_path


def request(box: Path, word: str) -> None:
    (box / "incoming/request").write_text(word)


def received(box: Path, command: str) -> None:
    """Put the file of an update and its request, and the command that stands for RAUC."""
    rauc = box / "rauc"
    rauc.write_text(command.format(state=box / "state", seen=box / "seen", trial=box / "trial"))
    rauc.chmod(0o755)
    (box / "incoming/update.raucb").write_text("a signed system")
    request(box, "install")


def state(box: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((box / "state").read_text())
    return found


def test_an_update_is_installed_and_its_file_removed(box):
    received(box, WORKS)
    update.main()
    assert state(box) == {"state": "installed", "version": "2.0"}
    assert json.loads((box / "seen").read_text())["state"] == "installing"
    assert list((box / "incoming").iterdir()) == []


def test_the_reason_of_a_failure_is_reported_and_the_file_removed(box):
    received(box, FAILS)
    with pytest.raises(SystemExit, match="signature"):
        update.main()
    assert state(box) == {
        "state": "failed",
        "message": "signature verification failed: certificate is not known",
    }
    assert list((box / "incoming").iterdir()) == []


def test_a_command_that_says_nothing_is_reported_as_failed(box):
    received(box, "#!/bin/sh\nexit 3\n")
    with pytest.raises(SystemExit):
        update.main()
    assert state(box)["message"] == "RAUC ended with exit code 3"


def test_the_box_restarts_only_into_an_installed_update(box, monkeypatch):
    restarts = []
    monkeypatch.setattr(trial, "reboot", lambda: restarts.append(True))
    for marked in ("", "A 2.0"):
        (box / "trial").write_text(marked)
        request(box, "restart")
        with pytest.raises(SystemExit, match="no installed update"):
            update.main()
    assert restarts == []
    (box / "trial").write_text("B 2.0")
    request(box, "restart")
    update.main()
    assert restarts == [True]

    assert not (box / "incoming/request").exists()


def test_other_requests_are_refused_once(box):
    request(box, "install; reboot")
    with pytest.raises(SystemExit, match="unknown"):
        update.main()
    assert not (box / "incoming/request").exists()


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    (path / "in").mkdir(parents=True)


@pytest.mark.parametrize("plant", [os.mkfifo, link, directory])
@pytest.mark.parametrize("name", ["request", "update.raucb"])
def test_an_unexpected_file_type_in_the_incoming_folder_is_removed(box, plant, name):
    received(box, WORKS)
    (box / "incoming" / name).unlink()
    plant(box / "incoming" / name)
    with pytest.raises(SystemExit, match="unknown" if name == "request" else "not a file"):
        update.main()
    assert not os.path.lexists(box / "incoming" / name)
    assert not os.path.lexists(box / "update.raucb")
    assert not (box / "seen").exists()


def test_the_state_says_installing_before_the_request_is_gone(box, monkeypatch):
    (box / "state").write_text('{"state": "failed"}')
    received(box, WORKS)
    states = []
    clear = update.clear

    def note(file: Path) -> None:
        states.append((file.name, state(box)["state"]))
        clear(file)

    monkeypatch.setattr(update, "clear", note)
    update.main()
    assert states[0] == ("request", "installing")


def test_no_update_replaces_the_system_before_one_on_trial(box):
    received(box, WORKS)
    (box / "trial").write_text("A 2.0")
    with pytest.raises(SystemExit, match="not confirmed yet"):
        update.main()
    assert state(box)["state"] == "failed"
    assert not (box / "seen").exists()


@pytest.mark.parametrize("fault", ["no RAUC", "no update"])
def test_an_installation_that_cannot_begin_is_reported(box, fault):
    received(box, WORKS)
    (box / ("rauc" if fault == "no RAUC" else "incoming/update.raucb")).unlink()
    with pytest.raises(SystemExit):
        update.main()
    assert state(box)["state"] == "failed"
    assert not (box / "update.raucb").exists()


def test_a_killed_installation_is_reported(box):
    for before, after in (("installing", "failed"), ("installed", "installed")):
        (box / "state").write_text(json.dumps({"state": before}))
        (box / "update.raucb").touch()
        update.main("ended")
        assert state(box)["state"] == after
        assert (box / "update.raucb").exists() == (before == "installed")
    (box / "state").unlink()
    update.main("ended")
