"""Effect of a demanding client on others: latency of small updates alone, and under each attack.

Each attack has its own gateway process. The victim sends small updates at a steady rate over a WebSocket, and
subscribes to their changes. The latency is the time from the scheduled time of an update to its notification.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from websockets.asyncio.client import ClientConnection, connect

from edge.bench.attacks import seed
from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.experiments import ATTACKS
from edge.bench.gateway import BenchGateway, SparqlConnection

_RATE: Final = 20
"""Updates of the victim per second."""
_SECONDS: Final = 10.0
"""Duration of the measurement without attack, and of that under attack."""
_PATIENCE: Final = 30.0
"""Seconds for which the victim waits at the end. Missing notifications count with this latency."""
_BEGIN: Final = 60.0
"""Timeout in seconds for an attack to begin."""
_GOAL_MS: Final = 250.0
_GOAL_RATIO: Final = 5.0

_SETTINGS: Final = {
    "EDGE__HOST__ENABLED": "false",
    "EDGE__LIMITS__MAX_SUBSCRIPTIONS": "100000",
    "EDGE__WS__MAX_SUBSCRIPTIONS": "100000",
    "EDGE__SHUTDOWN__TIMEOUT": "1",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure each attack once. The number of runs has no effect."""
    report = ExperimentReport("fairness", options.mode)
    for name in steps(options.attacks or tuple(ATTACKS), "fairness"):
        with TemporaryDirectory(prefix="edge-bench-") as directory:
            durability = "commit" if options.commit else "interval"
            settings = {**_SETTINGS, "EDGE__ENGINE__DURABILITY": durability}
            with BenchGateway(Path(directory), **settings) as gateway:
                alone, under = asyncio.run(_measure(options, gateway.endpoints, name))
        report.figures += _figures(name, alone, under)
        p50, p99 = _quantile(under, 0.5), _quantile(under, 0.99)
        ratios = p50 / _quantile(alone, 0.5), p99 / _quantile(alone, 0.99)
        missed = p99 > _GOAL_MS or ratios[1] > _GOAL_RATIO
        report.notes.append(
            f"{name:<14} p50 {p50:8.1f} ms (x {ratios[0]:6.1f})  p99 {p99:8.1f} ms (x {ratios[1]:6.1f})"
            f"{'  misses the goal' if missed else ''}"
        )
    report.notes.append(f"Goal: p99 below {_GOAL_MS:g} ms, and at most {_GOAL_RATIO:g} times as long as without attack")
    return report


async def _measure(options: ExperimentOptions, endpoints: dict[str, str], name: str) -> tuple[list[float], list[float]]:
    """The latencies of the victim alone and under an attack, in milliseconds."""
    seconds = _SECONDS / 10 if options.small else _SECONDS
    async with SparqlConnection(endpoints["http"]) as publisher:
        await publisher.update(seed())
    # Without pings: a gateway that answers them late is a result, and not the end of the measurement.
    async with connect(endpoints["ws"], proxy=None, ping_interval=None) as socket:
        victim = Victim(socket)
        await victim.subscribe()
        await victim.measure(1.0)  # plans compiled, files open
        alone = await victim.measure(seconds)
        async with _attack(name, endpoints, small=options.small):
            under = await victim.measure(seconds)
        victim.reading.cancel()
    return alone, under


class Victim:
    """A client that sends small updates at a steady rate."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self._waiting: dict[int, float] = {}
        """Scheduled times of the values without a notification yet."""
        self._latencies: list[float] = []
        self.reading: asyncio.Task[None]

    async def subscribe(self) -> None:
        """Subscribe to the victim's own updates. Raises `ExperimentError`."""
        await self._socket.send(json.dumps({"subscribe": {"sparql": "SELECT ?v { <urn:victim> <urn:value> ?v }"}}))
        if "notification" not in json.loads(await self._socket.recv()):
            raise ExperimentError("the gateway refused the victim's subscription")
        self.reading = asyncio.create_task(self._read())

    async def measure(self, seconds: float) -> list[float]:
        """Return the milliseconds from the scheduled time of each update to its notification."""
        self._latencies = []
        began = time.perf_counter()
        for number in range(round(seconds * _RATE)):
            wanted = began + number / _RATE
            # The latency counts from the scheduled time: otherwise delays of the sender would hide those of the gateway
            # (coordinated omission).
            await asyncio.sleep(max(0.0, wanted - time.perf_counter()))
            self._number += 1
            self._waiting[self._number] = wanted
            text = (
                "DELETE { <urn:victim> <urn:value> ?v } "
                f"INSERT {{ <urn:victim> <urn:value> {self._number} }} "
                "WHERE { OPTIONAL { <urn:victim> <urn:value> ?v } }"
            )
            await self._socket.send(json.dumps({"update": {"sparql": text}}))
        deadline = time.perf_counter() + _PATIENCE
        while self._waiting and time.perf_counter() < deadline:
            if self.reading.done():
                break
            await asyncio.sleep(0.005)
        # Updates without a notification count with the time waited, instead of disappearing from the figures.
        now = time.perf_counter()
        self._latencies += [1000 * (now - wanted) for wanted in self._waiting.values()]
        self._waiting.clear()
        return self._latencies

    async def _read(self) -> None:
        async for message in self._socket:
            reply = json.loads(message)
            if "error" in reply:
                raise ExperimentError(f"the gateway refused the victim: {reply}")
            if "notification" not in reply:
                continue
            now = time.perf_counter()
            for row in reply["notification"]["addedResults"]["results"]["bindings"]:
                value = int(row["v"]["value"])
                # A merged notification has the newest value only, and answers the earlier updates, too.
                for done in [number for number in self._waiting if number <= value]:
                    self._latencies.append(1000 * (now - self._waiting.pop(done)))


@asynccontextmanager
async def _attack(name: str, endpoints: dict[str, str], *, small: bool) -> AsyncIterator[None]:
    """Run an attack. Enters the context as soon as the attack loads the gateway. Raises `ExperimentError`."""
    arguments = (name, endpoints["http"], endpoints["ws"], "small" if small else "large")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "edge.bench.attacks", *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        try:
            async with asyncio.timeout(_BEGIN):
                begun = await process.stdout.readline()
        except TimeoutError:
            begun = b""
        if not begun:
            raise ExperimentError(f'the attack "{name}" does not begin')
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _figures(name: str, alone: Sequence[float], under: Sequence[float]) -> list[Figure]:
    figures = []
    for part, share in (("p50", 0.5), ("p99", 0.99)):
        before, now = _quantile(alone, share), _quantile(under, share)
        figures += [
            Figure(f"{name}_alone_{part}_ms", f"update to notification without attack, {part}, ms", [before]),
            Figure(f"{name}_{part}_ms", f"the same under attack: {ATTACKS[name]}", [now]),
            Figure(f"{name}_{part}_ratio", "second to first", [now / before]),
        ]
    return figures


def _quantile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[round(100 * share) - 1]
