"""How fast readings get from Mosquitto to a WebSocket subscriber, and what a gateway costs at rest.

Run it from a checkout: `.venv/bin/python -m benchmarks.readings [--runs N]`. Everything is on loopback, durability is
"commit". Figures are medians of the runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as mqtt
import psutil
from websockets.asyncio.client import connect

from tests.support.processes import GatewayProcess, Mosquitto

SENSORS = 1_000
LOAD = 20_000
RATE = 200
TIMED = 2_000

MAPPING = """
[[mapping]]
topic = "bench/{sensor}"
observation = "http://example.org/{sensor}"
label = "{sensor}"
unit = "unit:DegreeCelsius"
"""
QUERY = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?observation ?value { ?observation sosa:hasResult ?quantity . ?quantity qudt:numericValue ?value }"""


async def run(directory: Path) -> dict[str, float]:
    """One run on fresh processes."""
    broker = Mosquitto(directory / "mosquitto")
    broker.start()
    data = directory / "data"
    (data / "mappings").mkdir(parents=True)
    (data / "mappings" / "bench.toml").write_text(MAPPING)
    gateway = GatewayProcess(data, {"EDGE__MQTT__BROKER": broker.url, "EDGE__HOST__ENABLED": "false"})
    began = time.perf_counter()
    endpoints = gateway.start()
    figures = {"start_s": time.perf_counter() - began}
    await asyncio.sleep(2)
    process = psutil.Process(gateway.pid)
    before = process.cpu_times()
    await asyncio.sleep(3)
    after = process.cpu_times()
    figures["rest_cpu_percent"] = 100 * (after.user + after.system - before.user - before.system) / 3
    figures["rest_mb"] = process.memory_info().rss / 1e6
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="bench")
    client.max_inflight_messages_set(200)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        async with connect(endpoints["ws"], max_size=None) as socket:
            await socket.send(json.dumps({"subscribe": {"sparql": QUERY}}))
            await socket.recv()
            publish: Callable[[int], object] = lambda i: client.publish(f"bench/s{i % SENSORS}", str(i), qos=1)  # noqa: E731
            figures["readings_per_s"] = await _throughput(socket, publish)
            figures["latency_median_ms"], figures["latency_p99_ms"] = await _latency(socket, publish)
    finally:
        client.disconnect()
        client.loop_stop()
        figures["loaded_mb"] = process.memory_info().rss / 1e6
        gateway.stop()
        broker.stop()
    return figures


async def _throughput(socket: object, publish: Callable[[int], object]) -> float:
    def send() -> None:
        for number in range(LOAD):
            publish(number)

    began = time.perf_counter()
    sending = asyncio.create_task(asyncio.to_thread(send))
    for _ in range(LOAD):
        await socket.recv()  # type: ignore[attr-defined]
    await sending
    return LOAD / (time.perf_counter() - began)


async def _latency(socket: object, publish: Callable[[int], object]) -> tuple[float, float]:
    sent: dict[str, float] = {}

    async def send() -> None:
        began = time.perf_counter()
        for step in range(TIMED):
            number = LOAD + step
            await asyncio.sleep(max(0.0, began + step / RATE - time.perf_counter()))
            sent[str(number)] = time.perf_counter()
            publish(number)

    sending = asyncio.create_task(send())
    latencies = []
    for _ in range(TIMED):
        notification = json.loads(await socket.recv())["notification"]  # type: ignore[attr-defined]
        value = notification["addedResults"]["results"]["bindings"][0]["value"]["value"]
        latencies.append(1000 * (time.perf_counter() - sent[value]))
    await sending
    return statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    results = []
    for _ in range(parser.parse_args().runs):
        with tempfile.TemporaryDirectory() as directory:
            results.append(asyncio.run(run(Path(directory))))
    for name in results[0]:
        values = [result[name] for result in results]
        print(f"{name:20} {statistics.median(values):10.2f}   ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
