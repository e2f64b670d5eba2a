"""Soak test: check that the resources of a gateway do not grow under a steady mixed load.

The state of the gateway is bounded. The bounds are low here, so that the warm-up reaches them: the size of the journal
before a snapshot, and the number of remembered outcomes of delayed updates.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure
from edge.bench.gateway import BenchGateway
from edge.bench.soak_clients import MAPPING, Clients

_SETTINGS: Final = {
    "EDGE__COAP__ENABLED": "true",
    "EDGE__COAP__PORT": "0",
    "EDGE__COAP__FOLLOW_WITHIN": "5",
    "EDGE__COAP__PING_INTERVAL": "5",
    "EDGE__SUBSCRIPTIONS__RESUME_FOR": "5",
    "EDGE__WS__MAX_UNMERGED": "0",
    "EDGE__ENGINE__SNAPSHOT_MIN_BYTES": "262144",
    "EDGE__ENGINE__MAX_TIMER_OUTCOMES": "50",
}
_SAMPLES: Final = 60
"""Samples in a run, at most one per second."""
_WARM: Final = 480.0
"""Warm-up in seconds. CoAP messages stay in the deduplication cache for 247 s, and the state of vanished clients is
collected some hundred at a time. Both allocate memory first, and reuse it after the warm-up."""
_ENOUGH: Final = 180.0
"""Seconds after the warm-up that a verdict requires. In less time, bounded quantities may not have reached their bound.
"""
_ROWS: Final = 12
"""Rows of the table in the text report."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that must not grow."""

    name: str
    meaning: str
    relative: float
    """Allowed growth after the warm-up, as a share of the median ..."""
    absolute: float
    """... or as an absolute value, whichever is greater."""
    peaks: bool = False
    """Whether the quantity grows and is cut back repeatedly; then its peaks are compared."""


QUANTITIES: Final = (
    Quantity("memory_mb", "memory of the gateway, MB", 0.03, 1.0),
    Quantity("fds", "files and sockets that it has open", 0.0, 4.0),
    Quantity("threads", "its threads", 0.0, 2.0),
    Quantity("p50_ms", "from a reading over MQTT to its notification over WebSocket, median of a sample, ms", 0.3, 2.0),
    Quantity("p99_ms", "the same, 99th percentile, ms", 0.5, 30.0),
    Quantity("files_kb", "maximum size of the journal with all its files, KB", 0.1, 100.0, peaks=True),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Sample of all quantities."""

    seconds: float
    """Seconds since the load began."""
    values: tuple[float, ...]
    """Values of the quantities, in their order."""


def run(options: ExperimentOptions) -> ExperimentReport:
    """Run one gateway process with an embedded broker for `options.minutes`. The number of runs has no effect."""
    with TemporaryDirectory(prefix="edge-bench-") as name:
        directory = Path(name)
        (directory / "mappings").mkdir()
        (directory / "mappings" / "soak.toml").write_text(MAPPING)
        with BenchGateway(directory, **_SETTINGS) as gateway:
            samples, clients = asyncio.run(_watched(gateway, directory, 60 * options.minutes))
    return _report(samples, clients, options)


async def _watched(gateway: BenchGateway, directory: Path, seconds: float) -> tuple[list[Sample], Clients]:
    clients = Clients(gateway.endpoints)
    samples: list[Sample] = []
    interval = max(1.0, seconds / _SAMPLES)

    async def sample() -> None:
        began = time.monotonic()
        while True:
            taken, stored = time.monotonic(), 0
            while time.monotonic() < taken + interval:
                await asyncio.sleep(min(interval, 1.0))
                # The greatest size of the interval: a snapshot cuts the journal back between two samples.
                stored = max(stored, _stored(directory))
            latencies, clients.latencies = clients.latencies, []
            cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else [0.0] * 99
            process = gateway.process
            values = (
                gateway.memory_mb,
                process.num_fds(),
                process.num_threads(),
                cuts[49],
                cuts[98],
                stored / 1000,
            )
            samples.append(Sample(time.monotonic() - began, values))

    sampling = asyncio.create_task(sample())
    try:
        await clients.run(seconds)
    finally:
        sampling.cancel()
    return samples, clients


def _stored(directory: Path) -> int:
    """Return the size of the journal with its write-ahead log (bytes)."""
    return sum(file.stat().st_size for file in directory.glob("edge.sqlite3*"))


def growth(points: Sequence[tuple[float, float]]) -> float:
    """Return the growth of a quantity from the first point to the last, by the median slope between points.

    This is the Theil-Sen estimator: single outliers of any size have no effect.
    """
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2)]
    return statistics.median(slopes) * (points[-1][0] - points[0][0])


def higher(points: Sequence[tuple[float, float]]) -> float:
    """Return the difference between the highest peak in the second half and that in the first half."""
    values = [value for _, value in points]
    half = len(values) // 2
    return max(values[half:]) - max(values[:half])


def verdict(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Return the growth of each quantity and the allowed growth. Empty if the run was too short for a verdict."""
    counted = warm(samples)
    if len(counted) < 2 or counted[-1].seconds - counted[0].seconds < _ENOUGH:
        return {}
    found = {}
    for place, quantity in enumerate(QUANTITIES):
        values = [sample.values[place] for sample in counted]
        allowed = max(quantity.relative * statistics.median(values), quantity.absolute)
        points = [(sample.seconds, sample.values[place]) for sample in counted]
        found[quantity.name] = (higher(points) if quantity.peaks else growth(points), allowed)
    return found


def warm(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples after the warm-up, or all samples if the run was shorter than the warm-up."""
    return [sample for sample in samples if sample.seconds > _WARM] or samples


def _report(samples: Sequence[Sample], clients: Clients, options: ExperimentOptions) -> ExperimentReport:
    counted = warm(samples)
    figures = [
        Figure(quantity.name, quantity.meaning, [sample.values[place] for sample in counted])
        for place, quantity in enumerate(QUANTITIES)
    ]
    found = verdict(samples)
    figures += [
        Figure(f"{name}_growth", f"by how much {name} grew; up to {allowed:.3g} is flat", [grown])
        for name, (grown, allowed) in found.items()
    ]
    figures.append(Figure("merged", "notifications merged for clients that read slowly", [clients.merged]))
    figures.append(Figure("resumed", "subscriptions of lost connections that went on", [clients.resumed]))
    grown = [name for name, (by, allowed) in found.items() if by > allowed]
    notes = [*_table(samples), ""]
    if not found:
        notes.append("Too short to tell whether anything grows.")
    elif not grown:
        notes.append(f"Flat: over the last {counted[-1].seconds - counted[0].seconds:.0f} s nothing grew.")
    failure = f"not flat: {', '.join(grown)}" if grown else ""
    return ExperimentReport("soak", options.mode, {}, figures, notes, of="sample", failure=failure)


def _table(samples: Sequence[Sample]) -> list[str]:
    head = f"{'seconds':>8}" + "".join(f"{quantity.name:>11}" for quantity in QUANTITIES)
    chosen = samples[:: max(1, len(samples) // _ROWS)]
    rows = [f"{sample.seconds:8.0f}" + "".join(f"{value:11.2f}" for value in sample.values) for sample in chosen]
    return [head, *rows]
