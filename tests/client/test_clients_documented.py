"""The examples of docs/clients.md run, and are typed. Only the ports of the profile are those of the test's gateway."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

TEXT = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
PROFILE, *_ = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(empty_gateway, tmp_path, number):
    http, ws = empty_gateway.http_port, empty_gateway.ws_port
    (tmp_path / "lamps.jsap").write_text(PROFILE.replace("8000", str(http)).replace("9000", str(ws)))
    program = tmp_path / "example.py"
    program.write_text(EXAMPLES[number])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGE_")}
    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env={**kept, "EDGE_URL": empty_gateway.url},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_there_are_examples():
    assert len(EXAMPLES) == 7


def test_examples_are_typed(tmp_path):
    """With the settings of the project, and its cache: the modules of the library need no other check."""
    programs = [tmp_path / f"example_{number}.py" for number in range(len(EXAMPLES))]
    for program, example in zip(programs, EXAMPLES, strict=True):
        program.write_text(example)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *programs],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 5,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"Success: no issues found in {len(programs)} source files\n")
