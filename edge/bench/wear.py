"""Bytes that a gateway writes to its card: for 1,000 observations, by durability, batch size and use of the outbox, and
for a recent value.

Each side is a gateway that receives readings over MQTT at its embedded broker. A single reading follows the
notification of the previous one, so it has its own commit. The readings of a batch share commits. The experiment counts
the bytes that the kernel sent to the disk for the process (`/proc/PID/io`), after all observations are written.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from websockets.asyncio.client import ClientConnection, connect

from edge.bench import recent_wear
from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway
from edge.bench.readings import QUERY, STORED
from edge.bench.recent_wear import SENSORS

_SENSORS: Final = 100
_READINGS: Final = 3_000
"""Observations of each side and run: enough to include checkpoints of the write-ahead log."""
_TOGETHER: Final = 100
"""Readings in a batch."""
_UNIT: Final = 1_000
_YEAR: Final = 365.25 * 86_400
_PATIENCE: Final = 20.0
"""Time limit for expected notifications and observations (s)."""


@dataclass(frozen=True, slots=True)
class _Side:
    name: str
    meaning: str
    durability: str
    together: int
    stored: bool


_SIDES: Final = tuple(
    _Side(
        f"{durability}_{'single' if together == 1 else 'burst'}_{'stored' if stored else 'plain'}",
        f'durability "{durability}", {"one at a time" if together == 1 else f"{together} at once"}'
        f"{', stored for the history' if stored else ''}",
        durability,
        together,
        stored,
    )
    for durability in ("commit", "interval")
    for together in (1, _TOGETHER)
    for stored in (False, True)
)


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure a new process for each side in each run."""
    readings = _READINGS // 10 if options.small else _READINGS
    found: dict[str, list[float]] = defaultdict(list)
    for _ in steps(range(options.runs), "wear"):
        for side in _SIDES:
            with TemporaryDirectory(prefix="edge-bench-") as directory:
                found[side.name].append(_written(Path(directory), side, readings) / readings * _UNIT)
        for sensors in SENSORS:
            with TemporaryDirectory(prefix="edge-bench-") as directory:
                found[sensors.name].append(recent_wear.written(Path(directory), sensors, small=options.small))
    figures = [
        Figure(side.name, f"bytes for {_UNIT:,} observations, {side.meaning}", found[side.name]) for side in _SIDES
    ]
    figures += [Figure(sensors.name, sensors.meaning, found[sensors.name]) for sensors in SENSORS]
    return ExperimentReport("wear", options.mode, {}, figures, notes=_notes(found))


def _notes(found: dict[str, list[float]]) -> list[str]:
    worst = max(max(values) for values in found.values()) / _UNIT
    return [
        f"The dearest observation writes {worst / 1e3:.1f} KB: with one a second {worst * _YEAR / 1e9:,.0f} GB a year.",
        'With "interval" one that comes alone within engine.flush_interval costs what it does with "commit".',
        "docs/operations.md says how many years of a card that is.",
    ]


def _written(directory: Path, side: _Side, readings: int) -> float:
    """Return the bytes that the gateway wrote. Raises `ExperimentError`."""
    (directory / "mappings").mkdir()
    (directory / "mappings" / "bench.toml").write_text(STORED.format(store="all" if side.stored else "none"))
    settings = {"EDGE__ENGINE__DURABILITY": side.durability, "EDGE__HOST__ENABLED": "false"}
    with BenchGateway(directory, **settings) as gateway:
        written = asyncio.run(_measure(gateway, side, readings))
        if side.stored:
            _check(gateway, readings + _SENSORS)
    if not written:
        raise ExperimentError(f"{directory} is not on a disk: set TMPDIR to a directory on the one to be measured")
    return written


async def _measure(gateway: BenchGateway, side: _Side, readings: int) -> float:
    broker = urlsplit(gateway.endpoints["mqtt"])
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="bench")
    client.max_inflight_messages_set(side.together)
    client.connect(broker.hostname or "", broker.port or 0)
    client.loop_start()
    try:
        async with connect(gateway.endpoints["ws"], proxy=None, max_size=None) as subscriber:
            await subscriber.send(json.dumps({"subscribe": {"sparql": QUERY}}))
            await subscriber.recv()
            await _send(client, subscriber, range(_SENSORS), _SENSORS)
            # Write cached pages to the disk first, so that the counter does not include bytes of earlier readings.
            os.sync()
            before = _bytes(gateway)
            await _send(client, subscriber, range(_SENSORS, _SENSORS + readings), side.together)
            os.sync()
            return _bytes(gateway) - before
    finally:
        client.disconnect()
        client.loop_stop()


async def _send(client: mqtt.Client, subscriber: ClientConnection, numbers: range, together: int) -> None:
    """Publish readings in batches, and wait for the notifications of each batch. Raises `ExperimentError`."""
    for first in range(0, len(numbers), together):
        some = numbers[first : first + together]
        for number in some:
            client.publish(f"bench/s{number % _SENSORS}", str(number), qos=1)
        notified = 0
        try:
            async with asyncio.timeout(_PATIENCE):
                while notified < len(some):
                    notified += json.loads(await subscriber.recv())["notification"].get("merged", 1)
        except TimeoutError:
            raise ExperimentError(f"of {len(some)} readings {notified} reached a subscriber") from None


def _bytes(gateway: BenchGateway) -> int:
    try:
        return int(gateway.process.io_counters().write_bytes)
    except AttributeError:  # psutil has `io_counters` on some systems only
        raise ExperimentError("this system does not tell what a process writes") from None


def _check(gateway: BenchGateway, readings: int) -> None:
    """Wait until the outbox has all observations. With durability "interval", it counts them after the next commit.

    Raises `ExperimentError`.
    """
    last, deadline = 0, time.monotonic() + _PATIENCE
    while last != readings and time.monotonic() < deadline:
        with urllib.request.urlopen(f"{gateway.endpoints['http']}/api/outbox") as answer:
            last = json.load(answer)["last"]
        time.sleep(0.05)
    if last != readings:
        raise ExperimentError(f"of {readings} observations {last} were stored")
