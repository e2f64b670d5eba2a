"""A gateway process as an operator starts it, on free ports, and a client that sends requests to it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import IO, Final, Self
from urllib.parse import urlsplit

import psutil
import pyoxigraph as ox

from edge.bench.experiment import ExperimentError

_FREE_PORTS: Final = {"EDGE__HTTP__PORT": "0", "EDGE__WS__PORT": "0", "EDGE__MQTT__PORT": "0"}
_PATIENCE: Final = 60.0
"""Time limit for the start of a gateway, and for its stop (s)."""
_CHUNK: Final = 5_000
"""Triples of one INSERT DATA."""


class BenchGateway:
    """`edge run` in its own process. A context manager that stops the process at the exit."""

    def __init__(self, directory: Path, module: str = "edge", **settings: str) -> None:
        """Prepare a gateway with the data directory `directory`; `settings` are environment variables.

        `module`: the Python module that takes the arguments of the command `edge`.
        """
        self._directory = directory
        self._module = module
        # The measurement must not depend on settings in the environment of the benchmark.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGE__")}
        self._environment = {**kept, **_FREE_PORTS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoints: dict[str, str] = {}
        self.start_s = 0.0
        """Seconds from the start of the process until the gateway was ready."""

    def __enter__(self) -> Self:
        """Start the gateway and wait until it is ready. Raises `ExperimentError` if it does not start."""
        file = self._directory / "endpoints.json"
        began = time.perf_counter()
        with (self._directory / "gateway.log").open("ab") as log:
            process = self._process = self._start(log)
        # The gateway writes this file when all its servers listen.
        while not file.exists():
            if process.poll() is not None or time.perf_counter() - began > _PATIENCE:
                # Python does not call it when `__enter__` raises.
                self.__exit__()
                text = (self._directory / "gateway.log").read_text(errors="replace")
                raise ExperimentError(f"the gateway does not start:\n{text}")
            time.sleep(0.005)
        self.start_s = time.perf_counter() - began
        self.endpoints = json.loads(file.read_text())
        return self

    def _start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process, which writes its output to `log`."""
        command = [sys.executable, "-m", self._module, "run", "--data-dir", str(self._directory)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment)

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def memory_mb(self) -> float:
        """Resident memory of the process (MB)."""
        return self.process.memory_info().rss / 1e6

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the process since its start (s)."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def cpu_percent(self, seconds: float) -> float:
        """Return the CPU time of the process during the next `seconds`, in percent of one core."""
        before = self.cpu_seconds
        time.sleep(seconds)
        return round(100 * (self.cpu_seconds - before) / seconds, 3)

    def load(self, quads: Iterable[ox.Quad]) -> None:
        """Insert triples over HTTP, as a client does."""
        asyncio.run(self._load(quads))

    async def _load(self, quads: Iterable[ox.Quad]) -> None:
        rest = iter(quads)
        async with SparqlConnection(self.endpoints["http"]) as publisher:
            while chunk := list(islice(rest, _CHUNK)):
                await publisher.update("INSERT DATA {" + " . ".join(str(quad.triple) for quad in chunk) + "}")

    @property
    def process(self) -> psutil.Process:
        """The operating system's statistics of the process."""
        assert self._process is not None
        return psutil.Process(self._process.pid)


class SparqlConnection:
    """Minimal SPARQL client over one HTTP connection.

    It uses no HTTP library, because its own time counts as latency of the gateway.
    """

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)

    async def __aenter__(self) -> Self:
        host, port = self._address.hostname, self._address.port
        self._reader, self._writer = await asyncio.open_connection(host, port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def update(self, text: str) -> None:
        """Send an update and wait for the answer. Raises `ExperimentError` if the gateway refuses it."""
        await self._post(text, "update")

    async def query(self, text: str) -> bytes:
        """Send a query and return its result as JSON. Raises `ExperimentError` if the gateway refuses it."""
        return await self._post(text, "query")

    async def _post(self, text: str, primitive: str) -> bytes:
        body = text.encode()
        head = (
            f"POST /sparql HTTP/1.1\r\nHost: {self._address.netloc}\r\n"
            f"Content-Type: application/sparql-{primitive}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        # Only answers with a Content-Length are supported.
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        content = await self._reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 2"):
            raise ExperimentError(f"the gateway refused: {content.decode(errors='replace')}")
        return content
