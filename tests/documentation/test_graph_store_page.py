"""The examples of the page about the graph store."""

from __future__ import annotations

import subprocess
import sys

import httpx
from page import blocks

from tests.support.processes import GatewayProcess

PAGE = "graph-store.md"


def test_the_examples_work(tmp_path):
    shell, program = (next(block.text for block in blocks(PAGE) if block.language == each) for each in ("sh", "python"))
    gateway = GatewayProcess(tmp_path / "data", {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"})
    try:
        url = gateway.start()["http"]
        commands = shell.replace("http://localhost:8000", url).replace("curl ", "curl -sSf ")
        done = subprocess.run(["bash", "-ec", commands], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "<urn:lamp> <urn:room> <urn:hall> .\n"
        for _ in range(2):
            text = program.replace("http://localhost:8000", url)
            subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=60, check=True)
        answer = httpx.get(f"{url}/graph-store?graph=urn:floor-plan", trust_env=False)
        assert answer.text == "<urn:lamp2> <urn:room> <urn:hall> .\n"
    finally:
        gateway.stop()
