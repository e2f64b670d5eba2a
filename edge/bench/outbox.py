"""Cost of storing and shipping observations: the same readings for a gateway with an outbox and for one without.

The two gateways run one after the other, each with its own Mosquitto. Durability is "commit". The landing zone is a
directory.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from websockets.asyncio.client import connect

from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway
from edge.bench.readings import QUERY, STORED, mosquitto, throughput
from edge.outbox.segment import MANIFEST, SegmentManifest

_SENSORS: Final = 100
_RATE: Final = 50
"""Readings a second during the measurement of the CPU time."""
_SECONDS: Final = 30.0
_LOAD: Final = 20_000
"""Readings of the measurement of the throughput."""
_EVERY: Final = 5.0
"""Seconds between two shipments. The gateway's default is 300."""
_PATIENCE: Final = 60.0

_MEANINGS: Final = {
    "cpu_percent": f"processor at {_RATE} readings a second, % of one core",
    "written_bytes": "bytes written to disk for each of these readings",
    "readings_per_s": "readings a second, as fast as they go, each committed",
    "mb": "memory afterwards, MB",
}


class _Load(NamedTuple):
    seconds: float = _SECONDS
    every: float = _EVERY
    readings: int = _LOAD


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure both gateways with new processes in each run. Every second run starts with the other gateway."""
    load = _Load(2.0, 0.5, _LOAD // 20) if options.small else _Load()
    found: dict[str, list[float]] = defaultdict(list)
    for number in steps(range(options.runs), "outbox"):
        sides: dict[str, dict[str, float]] = {}
        for store in sorted(("all", "none"), reverse=bool(number % 2)):
            with TemporaryDirectory(prefix="edge-bench-") as directory:
                sides[store] = _side(Path(directory), store, load)
        for name in _MEANINGS:
            found[f"stored_{name}"].append(sides["all"][name])
            found[f"plain_{name}"].append(sides["none"][name])
        for name in ("cpu_percent", "mb"):
            found[f"added_{name}"].append(sides["all"][name] - sides["none"][name])
    figures = [
        Figure(f"{side}_{name}", f"{meaning}{note}", found[f"{side}_{name}"])
        for name, meaning in _MEANINGS.items()
        for side, note in (("plain", ", nothing stored"), ("stored", ", all stored and shipped"), ("added", ": added"))
        if f"{side}_{name}" in found
    ]
    return ExperimentReport("outbox", options.mode, {}, figures)


def _side(directory: Path, store: str, load: _Load) -> dict[str, float]:
    data, landing = directory / "data", directory / "landing"
    (data / "mappings").mkdir(parents=True)
    (data / "mappings" / "bench.toml").write_text(STORED.format(store=store))
    landing.mkdir()
    shipping = {"EDGE__OFFLOAD__TO": str(landing), "EDGE__OFFLOAD__EVERY": str(load.every)} if store == "all" else {}
    with mosquitto(directory) as port:
        settings = {"EDGE__MQTT__BROKER": f"mqtt://127.0.0.1:{port}", "EDGE__HOST__ENABLED": "false", **shipping}
        with BenchGateway(data, **settings) as gateway:
            client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="bench")
            # The library's default of 20 unacknowledged messages would limit the rate.
            client.max_inflight_messages_set(200)
            client.connect("127.0.0.1", port)
            client.loop_start()
            try:
                _await_subscribed(gateway, client)
                found, sent = _measure(gateway, client, load)
            finally:
                client.disconnect()
                client.loop_stop()
            if shipping:
                _await_shipped(landing, sent)
            found["mb"] = gateway.memory_mb
    return found


def _measure(gateway: BenchGateway, client: mqtt.Client, load: _Load) -> tuple[dict[str, float], int]:
    """Return the figures, and the number of sent readings."""
    numbers = count()

    def publish(_: object = None) -> None:
        number = next(numbers)
        client.publish(f"bench/s{number % _SENSORS}", str(number), qos=1)

    # The first reading of each sensor inserts more triples than later ones, so it comes before the measurement.
    for _ in range(_SENSORS):
        publish()
    process, readings = gateway.process, int(load.seconds * _RATE)
    before, written, began = process.cpu_times(), process.io_counters().write_bytes, time.perf_counter()
    _paced(publish, readings)
    after, taken = process.cpu_times(), time.perf_counter() - began
    found = {
        "cpu_percent": 100 * (after.user + after.system - before.user - before.system) / taken,
        "written_bytes": (process.io_counters().write_bytes - written) / readings,
        "readings_per_s": asyncio.run(_as_fast_as_they_go(gateway.endpoints["ws"], publish, load.readings)),
    }
    return found, next(numbers)


def _await_subscribed(gateway: BenchGateway, client: mqtt.Client) -> None:
    """Wait until the gateway receives a message. Raises `ExperimentError`."""
    # The broker drops messages that nobody has subscribed to, so repeat the message until the gateway receives one.
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        client.publish("probe")
        with urllib.request.urlopen(f"{gateway.endpoints['http']}/metrics") as answer:
            if re.search(rb"^edge_mqtt_received [1-9]", answer.read(), re.MULTILINE):
                return
        time.sleep(0.05)
    raise ExperimentError("the gateway hears nothing from Mosquitto")


def _paced(publish: Callable[[], None], readings: int) -> None:
    began = time.perf_counter()
    # Absolute times keep the mean rate: a late reading does not shift those after it.
    for number in range(1, readings + 1):
        publish()
        time.sleep(max(0.0, began + number / _RATE - time.perf_counter()))


async def _as_fast_as_they_go(url: str, publish: Callable[[int], None], readings: int) -> float:
    async with connect(url, proxy=None, max_size=None) as subscriber:
        await subscriber.send(json.dumps({"subscribe": {"sparql": QUERY}}))
        await subscriber.recv()
        return await throughput(subscriber, publish, readings)


def _await_shipped(landing: Path, readings: int) -> None:
    """Wait until the landing zone has each reading exactly once. Raises `ExperimentError`."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        manifests = [SegmentManifest.from_json(path.read_bytes()) for path in landing.rglob(f"[!.]*{MANIFEST}")]
        if sum(manifest.rows for manifest in manifests) == readings:
            return
        time.sleep(0.1)
    raise ExperimentError(f"of {readings} readings {sum(manifest.rows for manifest in manifests)} were shipped")
