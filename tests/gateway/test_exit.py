"""A process that cannot recover ends, so that systemd restarts it with all its data."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from edge import last_run
from tests.support.processes import HANGING_ENGINE, GatewayProcess

STUCK = """
import asyncio, time
from edge.process import end_if_stuck

async def main():
    end_if_stuck(asyncio.get_running_loop(), 0.5, lambda *why: print(*why, flush=True))
    await asyncio.sleep(1.5)
    print("it moves", flush=True)
    time.sleep(60)

asyncio.run(main())
"""


def test_a_stalled_event_loop_ends_the_process_with_a_traceback():
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout) == (1, "it moves\nstuck for 0.5 s\n")
    assert "in main" in ended.stderr


def ask(url: str, **form: str) -> str:
    with urllib.request.urlopen(url, urlencode(form).encode(), timeout=60) as answer:
        return str(answer.read().decode())


def test_a_stalled_engine_ends_the_process_without_data_loss(tmp_path: Path):
    hanging = tmp_path / "hanging"
    environment = {
        "EDGE__MQTT__ENABLED": "false",
        "EDGE__HOST__ENABLED": "false",
        "PYTHONPATH": str(HANGING_ENGINE),
        "HANGING": str(hanging),
        "EDGE__ENGINE__STALL_AFTER": "1",
        "EDGE__SHUTDOWN__TIMEOUT": "1",
        "EDGE__WATCHDOG__INTERVAL": "0.1",
        "EDGE__WATCHDOG__END_AFTER": "0.5",
    }
    gateway = GatewayProcess(tmp_path / "data", environment)
    try:
        http = gateway.start()["http"]
        many = " . ".join(f"<urn:{number}> <urn:p> {number}" for number in range(100))
        ask(f"{http}/update", update=f"INSERT DATA {{ {many} }}")

        hanging.touch()

        def endless() -> None:
            with contextlib.suppress(urllib.error.URLError, OSError):
                ask(f"{http}/update", update="INSERT DATA { <urn:a> <urn:b> <urn:c> }")

        asking = threading.Thread(target=endless)
        asking.start()
        assert gateway.wait(50) == 1
        asking.join(10)
        hanging.unlink()
        assert "gateway.stopping" in gateway.log()
        run = last_run.read(gateway.data_dir).run
        assert run.reason == "lost"
        assert "engine has not moved" in run.detail
        http = gateway.start()["http"]
        assert '"100"' in ask(f"{http}/query", query="SELECT (COUNT(*) AS ?n) { ?s <urn:p> ?o }")
    finally:
        gateway.stop()
