"""The units of the history: valid for systemd, sandboxed, and with options that the commands have."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_offload.cli import edge_history

UNITS = Path(__file__).parents[2] / "systemd" / "history"
SERVICES = ["edge-history-receive.service", "edge-history-ingest.service", "edge-history-maintain.service"]
PROGRAM = "/opt/sepa-edge/bin/edge-history"
EXPOSED = 1.5
"""Upper limit of the exposure level, from 0 to 10, that `systemd-analyze security` computes."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here; install the package systemd")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("unit", [*SERVICES, "edge-history-maintain.timer"])
def test_systemd_verifies_the_units(tmp_path: Path, unit: str) -> None:
    for name in [*SERVICES, "edge-history-maintain.timer"]:
        text = (UNITS / name).read_text()
        (tmp_path / name).write_text(text.replace(PROGRAM, str(Path(sys.executable).with_name("edge-history"))))
    found = analyze("verify", "--man=no", str(tmp_path / unit))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", SERVICES)
def test_services_are_sandboxed(unit: str) -> None:
    found = analyze("security", "--offline=true", str(UNITS / unit))
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", found.stdout)
    assert level is not None
    assert float(level[1]) <= EXPOSED


@pytest.mark.parametrize("unit", SERVICES)
def test_commands_have_the_options_of_the_units(unit: str) -> None:
    (command,) = re.findall(r"^ExecStart=(.*(?:\\\n.*)*)$", (UNITS / unit).read_text(), re.MULTILINE)
    program, name, *options = command.replace("\\\n", " ").split()
    assert (program, name) == (PROGRAM, unit.removeprefix("edge-history-").removesuffix(".service"))
    helped = CliRunner().invoke(edge_history, [name, "--help"]).output
    for option in options:
        assert not option.startswith("--") or re.search(rf"{option}\b", helped)
