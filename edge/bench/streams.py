"""Load of a gateway process with streams: 10,000 registered queries, 1,000 observers, 5,000 elements a second.

A source sends elements over a WebSocket. Each query selects the values of one sensor in windows of ten seconds. The
observers are paths of one HTTP server in this process.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx
from websockets.asyncio.client import connect

from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure
from edge.bench.gateway import BenchGateway

_STREAM: Final = "urn:bench:stream"
_MESSAGE: Final = 100
"""Elements of one message."""
_RATE: Final = 5_000
"""Elements per second."""

_SETTINGS: Final = {
    "EDGE__HOST__ENABLED": "false",
    # One client may have as much as it leaves to others.
    "EDGE__STREAMS__MAX_QUERIES": "40000",
    "EDGE__STREAMS__MAX_OBSERVERS": "4000",
    "EDGE__STREAMS__MAX_BYTES": str(256 * 1024 * 1024),
    "EDGE__LIMITS__RATE": "0",
}

_MEANINGS: Final = {
    "registration_ms": "registration of a query, ms",
    "query_kb": "memory of a query, KB",
    "sent_per_s": f"elements a second that were acknowledged; {_RATE:,} are wanted",
    "acknowledged_p50_ms": f"message of {_MESSAGE} elements to its acknowledgement, p50, ms",
    "acknowledged_p99_ms": "the same, p99",
    "acknowledged_most_ms": "the same, the longest",
    "change_p50_ms": "change of a query or an observer meanwhile, p50, ms",
    "change_p99_ms": "the same, p99",
    "change_most_ms": "the same, the longest",
    "element_cpu_us": "processor time of an element, us",
    "element_bytes": "bytes written to the disk for an element",
    "report_p50_ms": "end of a window to the report at an observer, p50, ms",
    "report_p99_ms": "the same, p99",
    "reports": "reports that arrived",
    "memory_mb": "memory of the process at the end, MB",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure once. The number of runs has no effect."""
    with (
        TemporaryDirectory(prefix="edge-bench-") as directory,
        BenchGateway(Path(directory), **_SETTINGS) as gateway,
    ):
        figures = asyncio.run(_Load(gateway, options.small, 1 if options.small else 10).measure())
    return ExperimentReport(
        "streams", options.mode, figures=[Figure(name, _MEANINGS[name], [figures[name]]) for name in _MEANINGS]
    )


@dataclass(slots=True)
class _Load:
    gateway: BenchGateway
    small: bool
    window: int = 10
    """Seconds of a window."""
    latencies: list[float] = field(default_factory=list)
    """Milliseconds from the time of each report to its arrival."""
    changes: list[float] = field(default_factory=list)
    """Milliseconds of each change of a query or an observer."""

    async def measure(self) -> dict[str, float]:
        queries, observers = (200, 20) if self.small else (10_000, 1_000)
        async with (
            self._observer_server() as callbacks,
            httpx.AsyncClient(base_url=self.gateway.endpoints["http"], timeout=60, trust_env=False) as http,
        ):
            _check(await http.put(f"/streams/{_STREAM.replace(':', '%3A')}"))
            memory, began = self.gateway.memory_mb, time.perf_counter()
            for number in range(queries):
                _check(await http.put(f"/queries/q{number}", content=self._query(number)))
            registered = time.perf_counter() - began
            grown = self.gateway.memory_mb - memory
            for number in range(observers):
                _check(await http.post(f"/queries/q{number}", content=f"{callbacks}/{number}"))
            changes = asyncio.create_task(self._change(http, f"{callbacks}/changed"))
            found = await self._send(queries)
            changes.cancel()
            await asyncio.wait([changes])
            await asyncio.sleep(1.5 * self.window)  # the last window ends, too
        if not self.latencies:
            raise ExperimentError("no report arrived")
        return {
            "registration_ms": 1000 * registered / queries,
            "query_kb": 1000 * grown / queries,
            **found,
            "change_p50_ms": _quantile(self.changes, 50),
            "change_p99_ms": _quantile(self.changes, 99),
            "change_most_ms": max(self.changes),
            "report_p50_ms": _quantile(self.latencies, 50),
            "report_p99_ms": _quantile(self.latencies, 99),
            "reports": len(self.latencies),
            "memory_mb": self.gateway.memory_mb,
        }

    async def _change(self, http: httpx.AsyncClient, callback: str) -> None:
        """Register, observe, pause, restart and end a query, again and again."""
        name = "/queries/changed"
        text = self._query(0).replace("stream:q0>", "stream:changed>")
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        while True:
            for method, content, headers in (
                ("PUT", text, None),
                ("POST", callback, None),
                ("POST", "action=pause", form),
                ("POST", "action=restart", form),
                ("DELETE", "", None),
            ):
                began = time.perf_counter()
                _check(await http.request(method, name, content=content, headers=headers))
                self.changes.append(1000 * (time.perf_counter() - began))
                await asyncio.sleep(0.02)

    async def _send(self, sensors: int) -> dict[str, float]:
        """Send elements at the rate, and wait for all acknowledgements."""
        messages = 3 * self.window * _RATE // _MESSAGE
        cpu, written = self.gateway.cpu_seconds, self._written()
        wanted: asyncio.Queue[float] = asyncio.Queue()
        url = f"{self.gateway.endpoints['ws'].removesuffix('/subscribe')}/streams/{_STREAM.replace(':', '%3A')}"
        async with connect(url, proxy=None, ping_interval=None) as socket:

            async def receive() -> list[float]:
                waits = []
                for _ in range(messages):
                    answer = json.loads(await socket.recv())
                    if answer.get("elements", {}).get("accepted") != _MESSAGE:
                        raise ExperimentError(f"the gateway refused elements: {answer}")
                    waits.append(1000 * (time.perf_counter() - await wanted.get()))
                return waits

            receiver = asyncio.create_task(receive())
            began = time.perf_counter()
            for number in range(messages):
                at = began + number * _MESSAGE / _RATE
                await asyncio.sleep(max(0.0, at - time.perf_counter()))
                wanted.put_nowait(at)
                await socket.send(_elements(number, sensors))
            waits = await receiver
            duration = time.perf_counter() - began
        elements = messages * _MESSAGE
        return {
            "sent_per_s": elements / duration,
            "acknowledged_p50_ms": _quantile(waits, 50),
            "acknowledged_p99_ms": _quantile(waits, 99),
            "acknowledged_most_ms": max(waits),
            "element_cpu_us": 1e6 * (self.gateway.cpu_seconds - cpu) / elements,
            "element_bytes": (self._written() - written) / elements,
        }

    def _query(self, number: int) -> str:
        window = f"FROM NAMED WINDOW <urn:w> ON <{_STREAM}> [RANGE PT{self.window}S STEP PT{self.window}S]"
        where = (
            f"WINDOW <urn:w> {{ <urn:bench:sensor{number}> <urn:bench:value> ?value FILTER(?value >= {number % 7}) }}"
        )
        return f"REGISTER RSTREAM <urn:edge:stream:q{number}> AS SELECT ?value {window} WHERE {{ {where} }}"

    def _written(self) -> int:
        return int(self.gateway.process.io_counters().write_bytes)

    @asynccontextmanager
    async def _observer_server(self) -> AsyncIterator[str]:
        """Serve all observers. Yields the URL."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                await reader.readexactly(int(headers.get("content-length", "0")))
                due = datetime.fromisoformat(headers["report-time"].upper()).timestamp()
                self.latencies.append(1000 * (time.time() - due))
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def _elements(number: int, sensors: int) -> str:
    """Return a message with elements of one triple each."""
    lines = []
    for index in range(number * _MESSAGE, (number + 1) * _MESSAGE):
        at = time.time_ns() // 1000
        value = f'"{index % 997}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        lines.append(f"@{at}\n<urn:bench:sensor{index % sensors}> <urn:bench:value> {value} .\n")
    return "".join(lines)


def _check(answer: httpx.Response) -> None:
    if not answer.is_success:
        raise ExperimentError(f"the gateway refused {answer.request.method} {answer.request.url}: {answer.text}")


def _quantile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
