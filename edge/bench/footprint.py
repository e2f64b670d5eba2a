"""Resources of an idle gateway: memory, processor time and startup time, empty and with the whole city."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway

_SETTLED: Final = 2.0
"""Seconds from the start of a gateway until it counts as idle."""
_WATCHED: Final = 15.0
"""Duration of the CPU time measurement (s): more than one period of the host's own sensors."""

_MEANINGS: Final = {
    "start_s": "from the start of the process to ready, seconds",
    "rest_mb": "memory at rest, MB",
    "rest_cpu_percent": "processor at rest, % of one core, its own sensors included",
    "loaded_mb": "memory after the city was loaded over HTTP, MB",
    "loaded_start_s": "from the start to ready with the city in the journal, seconds",
    "loaded_rest_mb": "memory after that start, MB",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure a new gateway with its default settings in each run."""
    found: dict[str, list[float]] = defaultdict(list)
    quads = list(options.city.quads())
    settled, watched = (0.2, 1.0) if options.small else (_SETTLED, _WATCHED)
    for _ in steps(range(options.runs), "footprint"):
        with TemporaryDirectory(prefix="edge-bench-") as directory:
            with BenchGateway(Path(directory)) as gateway:
                found["start_s"].append(gateway.start_s)
                time.sleep(settled)
                found["rest_cpu_percent"].append(gateway.cpu_percent(watched))
                found["rest_mb"].append(gateway.memory_mb)
                # The same process as at rest, so that the difference is the memory of the city.
                gateway.load(quads)
                time.sleep(settled)
                found["loaded_mb"].append(gateway.memory_mb)
            with BenchGateway(Path(directory)) as gateway:
                found["loaded_start_s"].append(gateway.start_s)
                time.sleep(settled)
                found["loaded_rest_mb"].append(gateway.memory_mb)
    figures = [Figure(name, meaning, found[name]) for name, meaning in _MEANINGS.items()]
    return ExperimentReport("footprint", options.mode, {}, figures)
