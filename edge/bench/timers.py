"""Many delayed updates: startup time of a gateway that has them, and lateness of their execution."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from websockets.asyncio.client import ClientConnection, connect

from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway

_PENDING: Final = 100_000
_RATE: Final = 1_000
"""Delayed updates that become due in a second."""
_SECONDS: Final = 10
"""Duration of that rate."""
_AHEAD: Final = 90
"""Requests that the client sends before it waits for the first answer."""
_ROOM: Final = 0.002
_ROOM_SMALL: Final = 0.02
"""Seconds allowed for sending one delayed update; a small run may be on a busy machine. The first one becomes due after
the last one was sent.
"""

_MEANINGS: Final = {
    "scheduled_per_s": "delayed updates taken a second, each committed",
    "start_empty_s": "from the start of the process to ready, none pending, seconds",
    "start_s": f"the same with {_PENDING:,} pending, seconds",
    "pending_mb": "memory that they take, MB",
    "late_p50_ms": f"from the time to the notification over WebSocket, {_RATE:,} due a second, median, ms",
    "late_p99_ms": "the same, 99th percentile, ms",
    "late_max_ms": "the same, the latest, ms",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure a new gateway in each run. The gateway commits each delayed update."""
    pending, rate = (_PENDING // 50, _RATE // 10) if options.small else (_PENDING, _RATE)
    count = rate * (1 if options.small else _SECONDS)
    room = _ROOM_SMALL if options.small else _ROOM
    found: dict[str, list[float]] = defaultdict(list)
    for _ in steps(range(options.runs), "timers"):
        with TemporaryDirectory(prefix="edge-bench-") as directory:
            with BenchGateway(Path(directory), EDGE__HOST__ENABLED="false") as gateway:
                found["start_empty_s"].append(gateway.start_s)
                memory = gateway.memory_mb
                found["scheduled_per_s"].append(asyncio.run(_fill(gateway.endpoints["ws"], pending)))
            with BenchGateway(Path(directory), EDGE__HOST__ENABLED="false") as gateway:
                found["start_s"].append(gateway.start_s)
                found["pending_mb"].append(gateway.memory_mb - memory)
                late = asyncio.run(_late(gateway.endpoints["ws"], count, rate, room))
        hundredths = statistics.quantiles(late, n=100)
        found["late_p50_ms"].append(hundredths[49])
        found["late_p99_ms"].append(hundredths[98])
        found["late_max_ms"].append(max(late))
    figures = [Figure(name, meaning, found[name]) for name, meaning in _MEANINGS.items()]
    indicators = {"updates": [count] * options.runs, "notifications": [count] * options.runs}
    return ExperimentReport("timers", options.mode, indicators, figures)


async def _fill(url: str, count: int) -> float:
    """Schedule delayed updates for tomorrow, worded as aggregators send them. Return the accepted updates a second."""
    text = (
        "PREFIX ex: <http://example.org/> DELETE {{ ex:lamp{0} ex:state ?old }} INSERT {{ ex:lamp{0} ex:state 'OFF' }} "
        "WHERE {{ ex:sensor{0} ex:presence false ; ex:since {1} OPTIONAL {{ ex:lamp{0} ex:state ?old }} }}"
    )
    since = time.time_ns() // 1000
    began = time.perf_counter()
    async with connect(url, proxy=None) as socket:
        await _schedule(socket, [{"sparql": text.format(n, since + n), "delay": "P1D"} for n in range(count)])
    return count / (time.perf_counter() - began)


async def _late(url: str, count: int, rate: int, room: float) -> list[float]:
    """Return the delay of each notification after the due time of its update (ms)."""
    async with connect(url, proxy=None) as subscriber, connect(url, proxy=None) as socket:
        await subscriber.send(json.dumps({"subscribe": {"sparql": "SELECT ?due { ?s <urn:due> ?due }"}}))
        await subscriber.recv()
        begin = time.time_ns() // 1000 + int(count * room * 1e6)
        times = [begin + number * 1_000_000 // rate for number in range(count)]
        updates = [
            {"sparql": f"INSERT DATA {{ <urn:{number}> <urn:due> {at} }}", "at": at} for number, at in enumerate(times)
        ]
        await _schedule(socket, updates)
        if time.time_ns() // 1000 > begin:
            raise ExperimentError("this machine is too slow: they were due before all were sent")
        late: list[float] = []
        while len(late) < count:
            message = json.loads(await subscriber.recv())
            now = time.time_ns() / 1000
            rows = message["notification"]["addedResults"]["results"]["bindings"]
            late += [(now - int(row["due"]["value"])) / 1000 for row in rows]
    return late


async def _schedule(socket: ClientConnection, updates: list[dict[str, object]]) -> None:
    for number, update in enumerate(updates):
        await socket.send(json.dumps({"update": update}))
        if number >= _AHEAD:
            await _scheduled(socket)
    for _ in updates[-_AHEAD:]:
        await _scheduled(socket)


async def _scheduled(socket: ClientConnection) -> None:
    if "scheduled" not in (answer := await socket.recv()):
        raise ExperimentError(f"the gateway refused a delayed update: {answer!r}")
