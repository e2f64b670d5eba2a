"""The units of systemd/: valid for systemd, and sandboxed as far as the gateway permits."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from images.sandbox import TESTS

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "systemd"
SERVICES = ["edge.service", "edge-health.service", "edge-offload.service"]
EXPOSED = 1.5
"""Upper limit of the exposure level, from 0 to 10, that `systemd-analyze security` computes."""


@pytest.fixture
def analyze():
    """Run `systemd-analyze`, which needs no running systemd."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here; install the package systemd")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Return the units as they are installed, with the command of this environment."""
    for unit in [*SERVICES, "edge-offload.timer"]:
        text = (SYSTEMD / unit).read_text().replace("/usr/bin/edge", str(Path(sys.executable).with_name("edge")))
        (tmp_path / unit).write_text(text)
    return tmp_path


@pytest.mark.parametrize("unit", [*SERVICES, "edge-offload.timer"])
def test_systemd_analyze_verifies_the_units(analyze, units, unit):
    found = analyze("verify", "--man=no", str(units / unit))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", SERVICES)
def test_exposure_of_services_is_limited(analyze, unit):
    found = analyze("security", "--offline=true", f"--threshold={EXPOSED * 10:.0f}", str(SYSTEMD / unit))
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", found.stdout)
    assert level is not None
    assert float(level[1]) <= EXPOSED
    assert found.returncode == 0


def test_serial_ports_are_within_reach():
    text = (SYSTEMD / "edge.service").read_text()
    assert "SupplementaryGroups=dialout" in text
    assert {"char-ttyUSB rw", "char-ttyACM rw"} <= set(re.findall(r"^DeviceAllow=(.*)$", text, re.MULTILINE))
    assert "PrivateDevices=yes" not in text


def test_invalid_settings_end_the_service_and_other_failures_restart_it_forever():
    text = (SYSTEMD / "edge.service").read_text()
    assert "RestartPreventExitStatus=2\n" in text
    assert "Restart=always\n" in text
    assert "StartLimitIntervalSec=0\n" in text


def test_the_service_has_no_further_privileges():
    named = set(re.findall(r"^(\w+)=", TESTS, re.MULTILINE))
    what_and_when = {
        "Type",
        "ExecStart",
        "Restart",
        "WatchdogSec",
        "TimeoutStartSec",
        "StandardOutput",
        "StandardError",
    }
    where = {"WorkingDirectory", "Environment", "UnsetEnvironment"}
    how_much = {"MemoryHigh", "MemoryMax", "TasksMax"}
    assert named <= what_and_when | where | how_much
