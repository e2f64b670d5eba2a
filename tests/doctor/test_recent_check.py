"""The doctor's check of the recent history."""

from __future__ import annotations

from edge.doctor.checks import recent
from edge.recent.block_file import Header, Samples, write
from edge.recent.series import SeriesKey

STATE = {"state": "records", "reason": "", "bytes": 5, "removed": 0, "damaged": 0, "lost": 0}


def found(machine, **state):
    machine.health = (200, {"recent": {**STATE, **state}})
    return [(finding.state, finding.what) for finding in recent.check(machine.around())]


def test_a_sound_history_is_reported_with_its_size(machine):
    directory = machine.around().data_dir / "recent"
    directory.mkdir(parents=True)
    write(directory, Header("raw", 1, 0, 9, ((0, 9),)), [(SeriesKey("", "urn:o", "number"), Samples([1], [1], []))])
    ((state, what),) = found(machine)
    assert state == "ok"
    assert "of at most 67 MB" in what


def test_damage_failure_and_removal_are_reported(machine):
    directory = machine.around().data_dir / "recent"
    directory.mkdir(parents=True)
    for number in range(7):
        (directory / f"raw-0000000{number}.blocks").write_bytes(b"x")
    states = found(machine, state="fails", reason="No space left on device", removed=3)
    assert [state for state, _ in states] == ["warning", "problem", "warning"]
    assert "7 files" in states[0][1]
    assert "and 2 more" in states[0][1]
    assert "No space left on device" in states[1][1]
