"""The examples of docs/clients.md run unchanged, except for the ports of the gateway."""

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
    at = f'"127.0.0.1", http_port={http}, ws_port={ws}'
    example = re.sub(r"(\w*Client)\(\)", rf"\1(Endpoints.at({at}))", EXAMPLES[number])
    program = tmp_path / "example.py"
    program.write_text(f"from edge.client import Endpoints\n{example}")
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_there_are_examples():
    assert len(EXAMPLES) == 5
