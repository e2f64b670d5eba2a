"""Throughput and latency of readings from Mosquitto to a WebSocket subscriber. Loopback only, durability "commit"."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import shutil
import socket
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from websockets.asyncio.client import ClientConnection, connect

from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway

_SENSORS: Final = 1_000
_LOAD: Final = 20_000
_RATE: Final = 200
_TIMED: Final = 2_000
_PATIENCE: Final = 20.0
"""Time limit for the first answer of Mosquitto (s)."""

STORED: Final = """
[[mapping]]
topic = "bench/{{sensor}}"
observation = "http://example.org/{{sensor}}"
location = "http://example.org/street"
label = "{{sensor}}"
unit = "unit:DegreeCelsius"
store = "{store}"
"""
"""Template of a mapping that stores readings."""
_MAPPING: Final = """
[[mapping]]
topic = "bench/{sensor}"
observation = "http://example.org/{sensor}"
label = "{sensor}"
unit = "unit:DegreeCelsius"
"""
QUERY: Final = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?observation ?value { ?observation sosa:hasResult ?quantity . ?quantity qudt:numericValue ?value }"""

_MEANINGS: Final = {
    "readings_per_s": "readings a second, QoS 1 publisher to subscriber, each committed",
    "cpu_us": "CPU time of the gateway for such a reading, us",
    "p50_ms": f"from publish to notification at {_RATE} readings a second, median, ms",
    "p99_ms": "the same, 99th percentile, ms",
    "loaded_mb": "memory of the gateway afterwards, MB",
    "recent_rate": "readings a second with the recent history / without it",
    "recent_cpu": "CPU time for a reading with it / without it",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure new processes in each run: a gateway as it is, and one without the recent history, each first in turn."""
    load, timed = (_LOAD // 20, _TIMED // 20) if options.small else (_LOAD, _TIMED)
    found: dict[str, list[float]] = defaultdict(list)
    for number in steps(range(options.runs), "readings"):
        sides = {recent: _side(load, timed, recent=recent) for recent in ((True, False), (False, True))[number % 2]}
        for name, value in sides[True].items():
            found[name].append(value)
        for name, figure in (("recent_rate", "readings_per_s"), ("recent_cpu", "cpu_us")):
            found[name].append(sides[True][figure] / sides[False][figure])
    figures = [Figure(name, meaning, found[name]) for name, meaning in _MEANINGS.items()]
    return ExperimentReport("readings", options.mode, {"subscriptions": [1] * options.runs}, figures)


def _side(load: int, timed: int, *, recent: bool) -> dict[str, float]:
    with TemporaryDirectory(prefix="edge-bench-") as directory, mosquitto(Path(directory)) as port:
        data = Path(directory) / "data"
        (data / "mappings").mkdir(parents=True)
        (data / "mappings" / "bench.toml").write_text(_MAPPING)
        settings = {"EDGE__MQTT__BROKER": f"mqtt://127.0.0.1:{port}", "EDGE__HOST__ENABLED": "false"}
        with BenchGateway(data, EDGE__RECENT__ENABLED=str(recent).lower(), **settings) as gateway:
            found = asyncio.run(_measure(gateway, port, load, timed))
            return {**found, "loaded_mb": gateway.memory_mb}


async def _measure(gateway: BenchGateway, port: int, load: int, timed: int) -> dict[str, float]:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="bench")
    # The library's default of 20 unacknowledged messages would limit the rate.
    client.max_inflight_messages_set(200)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        async with connect(gateway.endpoints["ws"], proxy=None, max_size=None) as subscriber:
            await subscriber.send(json.dumps({"subscribe": {"sparql": QUERY}}))
            await subscriber.recv()

            def publish(number: int) -> None:
                client.publish(f"bench/s{number % _SENSORS}", str(number), qos=1)

            before = gateway.cpu_seconds
            fast = await throughput(subscriber, publish, load)
            cpu = gateway.cpu_seconds - before
            latencies = await _latencies(subscriber, publish, range(load, load + timed))
    finally:
        client.disconnect()
        client.loop_stop()
    cuts = statistics.quantiles(latencies, n=100)
    return {"readings_per_s": fast, "cpu_us": 1e6 * cpu / load, "p50_ms": cuts[49], "p99_ms": cuts[98]}


async def throughput(subscriber: ClientConnection, publish: Callable[[int], None], count: int) -> float:
    """Return the readings a second, from `publish` to the notification of a subscriber to `QUERY`."""

    def send() -> None:
        for number in range(count):
            publish(number)

    began = time.perf_counter()
    # On a thread, because `publish` may block, and the loop has to receive meanwhile.
    sending = asyncio.create_task(asyncio.to_thread(send))
    for _ in range(count):
        await subscriber.recv()
    await sending
    return count / (time.perf_counter() - began)


async def _latencies(subscriber: ClientConnection, publish: Callable[[int], None], numbers: range) -> list[float]:
    sent: dict[str, float] = {}

    async def send() -> None:
        began = time.perf_counter()
        for step, number in enumerate(numbers):
            await asyncio.sleep(max(0.0, began + step / _RATE - time.perf_counter()))
            # Before `publish`, because the notification may arrive before it returns.
            sent[str(number)] = time.perf_counter()
            publish(number)

    sending = asyncio.create_task(send())
    latencies = []
    for _ in numbers:
        notification = json.loads(await subscriber.recv())["notification"]
        value = notification["addedResults"]["results"]["bindings"][0]["value"]["value"]
        latencies.append(1000 * (time.perf_counter() - sent[value]))
    await sending
    return latencies


@contextmanager
def mosquitto(directory: Path, *settings: str) -> Iterator[int]:
    """Run a Mosquitto process and yield its port. Raises `ExperimentError` if Mosquitto is not installed.

    `settings` are further lines of its configuration.
    """
    program = mosquitto_program()
    # Mosquitto needs a port number in its configuration, so find a free one.
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    lines = (
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        # Mosquitto started by root changes to another user by default, which cannot read the directory.
        f"user {getpass.getuser()}",
        "max_queued_messages 0",  # no limit: Mosquitto must not drop readings of a fast publisher
        *settings,
    )
    config = directory / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n")
    with subprocess.Popen([program, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(process, port)
            yield port
        finally:
            process.terminate()


def mosquitto_program() -> str:
    """Return the path of Mosquitto. Raises `ExperimentError` if it is not installed."""
    program = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if program is None:
        raise ExperimentError("this experiment needs Mosquitto (Debian package mosquitto)")
    return program


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise ExperimentError("Mosquitto does not answer")
