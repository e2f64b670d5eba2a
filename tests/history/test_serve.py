"""`edge-history serve` with a client in a separate process, and the requests that it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge.outbox.observation import XSD
from tests.history.history_data import EX, numbered, readings, write
from tests.history.receiving import COMMAND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(600)
def test_notebook_queries_the_history(spark: SparkSession, tmp_path: Path) -> None:
    table = write(spark, tmp_path / "it's a table", numbered(readings("k1", range(5))))
    log = tmp_path / "log"
    # This process must not pass the options of its own Spark session to others.
    own = [key for key in os.environ if key.startswith(("SPARK_", "PYSPARK_"))]
    environment = {key: value for key, value in os.environ.items() if key not in own}
    with log.open("w") as errors:
        server = subprocess.Popen(
            [*COMMAND, "serve", f"--table={table}", "--listen=127.0.0.1:0", "--master=local[1]"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        assert line.startswith(f"serving {table} on sc://localhost:"), log.read_text()
        url = line.split()[-1]
        token = url.rpartition("token=")[2]
        assert token not in _arguments(), "others on this machine can read these"
        client = [sys.executable, "-m", "tests.history.connect_client", url, table]
        answer = subprocess.run(client, capture_output=True, text=True, env=environment, check=False)
        assert answer.returncode == 0, answer.stderr
        reported = json.loads(answer.stdout)
        assert reported["sql"] == [[f"{EX}sensor/k1", 5]]
        assert reported["path"] == 5
        assert sorted(reported["sparql"]) == [[f'"{value}"^^<{XSD}decimal>'] for value in range(5)]
        assert reported["zone"] == "UTC"
        assert "UNAUTHENTICATED" in reported["wrong"]
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
        server.stdout.close()
    assert code == 0, log.read_text()
    assert "Traceback" not in log.read_text()


def _arguments() -> str:
    """Return the arguments of all processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_bytes())
        except OSError:  # it has ended
            continue
    return b"\n".join(found).decode(errors="replace")


@pytest.mark.parametrize("listen", ["0.0.0.0:15002", "192.0.2.1:15002"])
def test_unauthenticated_clients_are_not_served(tmp_path: Path, listen: str) -> None:
    ended = subprocess.run(
        [*COMMAND, "serve", f"--table={tmp_path}", f"--listen={listen}"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "ssh -L 15002:localhost:15002" in ended.stderr


def test_a_port_in_use_is_reported_before_spark_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        command = [*COMMAND, "serve", f"--table={tmp_path}", f"--listen={listen}"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"edge-history: {listen} cannot be listened on")
