"""An update with a power cut at any moment: all possible states, and the behaviour of the appliance after each.

An appliance is a tree of two file systems (`boot` with GRUB's variables, and `data`) and its boot sequence: GRUB's
choice, the initial RAM disk, `trial.py`, and a gateway that writes its name to the data. Slot A has the system before
the update (data format 1), slot B the update (data format 2).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from sepa_edge_appliance import boot_counter, trial

from tests.appliance.appliance import own
from tests.support.power_cut import State, build, power_cuts, power_cuts_after, state

SERVES, FAILS, DAMAGED = "serves", "fails", "damaged"
"""Result of the update: its gateway becomes healthy, does not, or the system cannot be loaded."""
FORMAT = {"A": 1, "B": 2}
TRIAL, COPY = "data/rauc/trial", "data/before-update"


class Box:
    """An appliance that is built from a state and continues from there."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.patch = monkeypatch
        self.said = ""
        self.booted = "A"
        data, rauc = root / "data", root / "data" / "rauc"
        for name, file in {
            "DATA": data / "sepa-edge",
            "TRIAL": rauc / "trial",
            "UNDONE": rauc / "undone",
            "BEFORE": data / "before-update",
            "AFTER": data / "of-undone-update",
            "LOST": root / "lost",
        }.items():
            monkeypatch.setattr(trial, name, file)
        monkeypatch.setattr(boot_counter, "FILE", root / "boot" / "grubenv")
        monkeypatch.setattr(boot_counter, "COPY", root / "boot" / "grubenv.copy")
        monkeypatch.setattr(trial, "booted", lambda: self.booted)
        monkeypatch.setattr(trial, "reboot", lambda: None)
        bundle = root.parent / "bundle"
        bundle.mkdir(exist_ok=True)
        (bundle / "manifest.raucm").write_text("[update]\nversion=7.0\n")
        monkeypatch.setenv("RAUC_BUNDLE_MOUNT_POINT", str(bundle))
        own(monkeypatch)

    def new(self) -> State:
        """Return an appliance that runs system A and has data."""
        build(self.root, (("boot", None), ("data", None), ("data/rauc", None), ("data/sepa-edge", None)))
        boot_counter._write({"ORDER": "A B", "A_OK": "1", "A_TRY": "0", "B_OK": "0", "B_TRY": "0"})
        boot_counter._copy()
        self.booted = "A"
        self.counted("A")
        return state(self.root)

    def counted(self, slot: str) -> bool:
        """Act as the gateway of a system: write its format and its system in one commit, unless it cannot read the
        data.
        """
        with closing(sqlite3.connect(trial.DATA / "edge.sqlite3", isolation_level=None)) as connection:
            connection.execute("BEGIN")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > FORMAT[slot]:
                return False
            connection.execute("CREATE TABLE IF NOT EXISTS t (slot)")
            connection.execute("INSERT INTO t VALUES (?)", (slot,))
            connection.execute(f"PRAGMA user_version = {FORMAT[slot]}")
            connection.execute("COMMIT")
        return True

    def grub(self, *, fails: str = "") -> str:
        """Return the slot that grub.cfg chooses and count the attempt. The slot `fails` cannot be loaded."""
        while True:
            file = boot_counter.FILE if boot_counter._parse(boot_counter.FILE) else boot_counter.COPY
            found = boot_counter._parse(file)
            good = [one for one in found["ORDER"].split() if found[f"{one}_OK"] == "1"]
            ready = [one for one in good if int(found[f"{one}_TRY"]) < 3]
            slot = (ready or good or ["A"])[0]
            tries = int(found[f"{slot}_TRY"]) if ready else 0
            count, counted = f"{slot}_TRY={tries + 1}", file.read_text()
            file.write_text(counted.replace(f"{slot}_TRY={found[f'{slot}_TRY']}", count))
            if slot != fails:
                self.booted = slot
                return slot

    def env(self) -> dict[str, str]:
        """Return GRUB's variables after a start."""
        return boot_counter._parse(boot_counter.FILE)

    def start(self) -> None:
        """Run the boot sequence from the initial RAM disk to the gateway."""
        trial.DATA.mkdir(exist_ok=True)
        self.said = trial.end()
        trial.begin()

    def cuts(self, before: State, slot: str, action: Callable[[], object]) -> tuple[State, list[State]]:
        """Yield the states after an action of this system, and those that a power cut during the action can leave."""
        build(self.root, before)
        self.booted = slot
        left = power_cuts(self.root, action)
        return state(self.root), left

    def after(self, before: State, action: Callable[[], object], slot: str = "A") -> State:
        """Return the state after an action."""
        build(self.root, before)
        self.booted = slot
        action()
        return state(self.root)

    def life(self, before: State, update: str) -> str:
        """Restart until the appliance is stable; return its slot. `said` receives the last messages for its owner."""
        build(self.root, before)
        reported = []
        for _ in range(8):
            slot = self.grub(fails="B" if update == DAMAGED else "")
            self.start()
            reported.append(self.said)
            self.said = " ".join(reported)
            serves = self.counted(slot) and not (slot == "B" and update == FAILS)
            trial.main("good" if serves else "failed")
            if self.env()[f"{slot}_OK"] == "1":
                return slot
        raise AssertionError("the box does not come to rest")

    def rows(self, directory: Path) -> list[str]:
        """Return the systems that have written to the data."""
        file = directory / "edge.sqlite3"
        if not file.exists():
            return []
        with closing(sqlite3.connect(file)) as connection:
            return [row[0] for row in connection.execute("SELECT slot FROM t")]

    def at_rest(self) -> None:
        """Check the invariants of a stable appliance."""
        assert not trial.TRIAL.exists()
        left = {path.name for path in trial.DATA.parent.iterdir()}
        assert left <= {"rauc", "sepa-edge", "of-undone-update"}, "nothing takes up room for ever"
        assert self.rows(trial.DATA)[0] == "A", "data of before the update is there, whatever happened"
        assert self.env()[f"{self.booted}_OK"] == "1"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(tmp_path / "box", monkeypatch)


def has(left: State, name: str) -> bool:
    """Return whether there is such a file or directory."""
    return name in dict(left)


def activated() -> None:
    """Act as RAUC: write the update into slot B."""
    boot_counter._write(boot_counter.read("A") | {"ORDER": "B A", "B_OK": "1", "B_TRY": "0"})


def installed(box: Box) -> State:
    """Return the appliance after the installation of the update."""
    return box.after(box.new(), lambda: [trial.main("installing"), activated()])


def tried(box: Box) -> State:
    """Return the appliance after the first start of the update, which has written data."""
    return box.after(installed(box), lambda: [box.grub(), box.start(), box.counted("B")])


def undone(box: Box) -> None:
    """Check that the previous system runs with its data."""
    assert box.booted == "A"
    assert "B" not in box.rows(trial.DATA)
    assert "was undone" in box.said
    box.at_rest()


def confirmed(box: Box) -> None:
    """Check that the update runs with all data."""
    assert box.booted == "B"
    assert box.rows(trial.DATA).count("B") >= 1
    assert "undone" not in box.said
    box.at_rest()


def lives(box: Box, states: Iterable[State], update: str) -> Iterable[State]:
    """Return each state after the appliance has become stable."""
    for left in states:
        box.life(left, update)
        yield left


def test_power_cut_during_the_installation(box):
    """The previous system continues; no part of the update has started."""
    _, cuts = box.cuts(box.new(), "A", lambda: trial.main("installing"))
    assert len(cuts) > 3
    for _ in lives(box, cuts, DAMAGED):
        assert box.booted == "A"
        assert box.said.strip() == ""
        assert box.rows(trial.DATA) == ["A", "A"]
        box.at_rest()


def test_an_installation_never_has_the_copy_of_an_earlier_update(box):
    """Otherwise that copy would count as the data before this update."""
    before = [left for left in box.cuts(tried(box), "B", lambda: trial.main("good"))[1] if not has(left, TRIAL)]
    assert any(has(left, COPY) for left in before)
    for left in before:
        _, cuts = box.cuts(left, "B", lambda: trial.main("installing"))
        assert any(has(one, TRIAL) for one in cuts)
        assert not any(has(one, TRIAL) and has(one, COPY) for one in cuts)


@pytest.mark.parametrize("update", [SERVES, FAILS, DAMAGED])
@pytest.mark.parametrize("left", ["old", "none", "new"])
def test_power_cut_while_boot_loader_variables_are_written(box, update, left):
    """RAUC truncates the file of the variables before it writes them."""
    before = box.after(box.new(), lambda: trial.main("installing"))
    box.after(before, {"old": lambda: None, "none": lambda: boot_counter.FILE.write_bytes(b""), "new": activated}[left])
    slot = box.life(state(box.root), update)
    assert slot == ("B" if left == "new" and update == SERVES else "A")
    box.at_rest()


def test_without_its_variables_the_boot_loader_starts_the_system_that_ran(box):
    """RAUC also truncates the file as the first step of an installation."""
    before = box.after(tried(box), lambda: [trial.main("good"), boot_counter.FILE.write_bytes(b"")], "B")
    assert box.grub() == "B"
    build(box.root, before)
    assert box.grub(fails="B") == "A", "tries in vain are counted"
    box.start()
    assert "slot B did not start three times" in box.said


@pytest.mark.parametrize("update", [SERVES, FAILS, DAMAGED])
def test_power_cut_during_the_first_start_of_the_update(box, update):
    before = box.after(installed(box), box.grub)
    after, cuts = box.cuts(before, "B", box.start)
    assert len(cuts) > 4
    assert after in cuts
    for _ in lives(box, cuts, update):
        confirmed(box) if update == SERVES else undone(box)


@pytest.mark.parametrize("update", [SERVES, FAILS, DAMAGED])
def test_power_cut_while_the_update_is_confirmed(box, update):
    before = tried(box)
    after, cuts = box.cuts(before, "B", lambda: trial.main("good"))
    assert after in cuts
    outcomes = set()
    for left in lives(box, cuts, update):
        on_trial = has(left, TRIAL)
        if update == SERVES:
            confirmed(box)
        elif on_trial:  # the update was not confirmed yet
            undone(box)
        else:  # a system that fails later is not rolled back, and its data stays
            assert "undone" not in box.said
            assert box.rows(trial.DATA)[:2] == ["A", "B"]
        outcomes.add(on_trial)
    assert outcomes == {True, False}


def test_an_update_that_was_confirmed_is_never_on_trial_again(box):
    """This holds even if its system is damaged seconds later: the other system starts, and the data stays."""
    build(box.root, tried(box))
    box.booted = "B"
    for left in power_cuts_after(box.root, lambda: trial.main("good")):
        assert not has(left, TRIAL)
        box.after(left, lambda: [box.grub(fails="B"), box.start()])
        assert box.said.startswith("the system in slot B did not start three times")
        assert box.rows(trial.DATA) == ["A", "B"]


def test_each_step_is_on_the_disk_when_it_is_done(box):
    steps = [
        (box.new(), "A", lambda: trial.main("installing")),
        (box.after(installed(box), box.grub), "B", box.start),
        (tried(box), "B", lambda: trial.main("failed")),
        (box.after(tried(box), lambda: [trial.main("failed"), box.grub()], "B"), "A", box.start),
    ]
    for before, slot, step in steps:
        build(box.root, before)
        box.booted = slot
        left = power_cuts_after(box.root, step)
        assert left == [state(box.root)]


def test_no_system_starts_with_empty_data(box):
    """The same holds for the update, if it starts after the data was restored only in part."""

    def exhaust() -> None:
        boot_counter._write(box.env() | {"A_TRY": "3"})

    box.after(
        tried(box), lambda: [trial.DATA.rename(trial.AFTER), boot_counter._write(box.env() | {"A_TRY": "3"})], "B"
    )
    assert box.grub() == "B"
    box.start()
    assert box.rows(trial.DATA) == ["A"]


@pytest.mark.parametrize("update", [FAILS, DAMAGED])
def test_power_cut_while_the_update_is_abandoned(box, update):
    _, cuts = box.cuts(tried(box), "B", lambda: trial.main("failed"))
    for _ in lives(box, cuts, update):
        undone(box)


@pytest.mark.parametrize("update", [FAILS, DAMAGED])
@pytest.mark.parametrize("given_up", [True, False])
def test_power_cut_while_previous_data_is_restored(box, update, given_up):
    """The update has given up, or was chosen three times without success; the next start is interrupted again."""
    before = box.after(tried(box), (lambda: trial.main("failed")) if given_up else (lambda: None), "B")
    before = box.after(before, partial(box.grub, fails="B"))
    after, cuts = box.cuts(before, "A", box.start)
    assert after in cuts
    assert len(cuts) > 4
    again: dict[State, None] = {}
    for _ in lives(box, cuts, update):
        undone(box)
        assert box.rows(trial.AFTER)[:2] == ["A", "B"]
    for left in cuts:
        slot = box.after(left, partial(box.grub, fails="B")) and box.booted
        again.update(dict.fromkeys(box.cuts(state(box.root), slot, box.start)[1]))
    for _ in lives(box, again, update):
        undone(box)


def test_power_cut_after_the_update_was_undone(box):
    """The boot loader is set not to choose the update."""
    before = box.after(tried(box), lambda: [trial.main("failed"), box.grub(), box.start()], "B")
    after, cuts = box.cuts(before, "A", lambda: trial.main("good"))
    assert after in cuts
    for _ in lives(box, cuts, FAILS):
        undone(box)
