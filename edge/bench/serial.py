"""Cost of a noisy serial line: a gateway process reads 100 KB of noise and one valid frame a second."""

from __future__ import annotations

import asyncio
import json
import os
import time
import tty
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from websockets.asyncio.client import ClientConnection, connect

from edge.adapters.serial_frames import encoded
from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway
from edge.bench.readings import QUERY
from edge.mapping.pack import load_pack

_NOISE: Final = 100_000
"""Noise in bytes a second."""
_PIECES: Final = 200
"""Writes a second."""
_PATIENCE: Final = 5.0
"""Seconds to wait for frames in transit after the noise ends."""
_FRAMINGS: Final = {
    "lines": "",
    "slip": 'framing = "slip"\ncrc = "crc-16/kermit"',
    "length": 'framing = { kind = "length", sync = "C0 00", at = 4, plus = 7 }\n'
    'crc = { name = "crc-16/ibm-3740", at = 5 }\nskip = 7',
}
_MAPPING: Final = """
[[mapping]]
topic = "serial/bench"
path = "n"
observation = "http://example.org/bench"
"""
_MEANINGS: Final = {
    "idle": "percent of a core that the gateway takes while the line is silent",
    "lines": "the same with noise, the frames being lines of JSON",
    "slip": "the same with noise, SLIP and a CRC",
    "length": "the same with noise, frames that tell their length, and a CRC (as of DASH7 modems)",
    "lost": "good frames that did not become readings, of all these",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure a new process for each framing in each run."""
    seconds = 1 if options.small else 15
    found: dict[str, list[float]] = defaultdict(list)
    for _ in steps(range(options.runs), "serial"):
        lost = 0
        for name, keys in _FRAMINGS.items():
            idle, noisy, missing = _measure(keys, seconds)
            found[f"{name}_percent"].append(noisy)
            lost += missing
            if name == "lines":
                found["idle_percent"].append(idle)
        found["lost"].append(lost)
    names = {"lost": "lost", **{name: f"{name}_percent" for name in _MEANINGS if name != "lost"}}
    figures = [Figure(names[name], meaning, found[names[name]]) for name, meaning in _MEANINGS.items()]
    failure = "good frames were lost" if any(found["lost"]) else ""
    notes = [f"{_NOISE // 1000} KB of random bytes and one good frame a second, {seconds} s each."]
    return ExperimentReport("serial", options.mode, figures=figures, notes=notes, failure=failure)


def _measure(framing: str, seconds: int) -> tuple[float, float, int]:
    """Return the CPU time at rest and with noise (percent of a core), and the number of lost valid frames."""
    with TemporaryDirectory(prefix="edge-bench-") as directory, _line(Path(directory) / "tty") as line:
        data = Path(directory) / "data"
        (data / "mappings").mkdir(parents=True)
        text = f'[[serial]]\nname = "bench"\ndevice = "{directory}/tty"\n{framing}\n{_MAPPING}'
        (data / "mappings" / "bench.toml").write_text(text)
        (port,) = load_pack(text, "bench").ports
        frames = [encoded(port, json.dumps({"n": number}).encode()) for number in range(seconds + 1)]
        with BenchGateway(data, EDGE__HOST__ENABLED="false") as gateway:
            time.sleep(min(2, seconds))  # do not measure the CPU time of the start
            idle = gateway.cpu_percent(seconds / 3)
            arrived, share = asyncio.run(_noise(gateway, line, frames))
        return idle, share, len(frames) - arrived


async def _noise(gateway: BenchGateway, line: int, frames: list[bytes]) -> tuple[int, float]:
    """Send the frames with noise. Return the number of frames that arrived, and the CPU time in percent of a core."""
    async with connect(gateway.endpoints["ws"], proxy=None) as subscriber:
        await subscriber.send(json.dumps({"subscribe": {"sparql": QUERY}}))
        await subscriber.recv()
        counting = asyncio.create_task(_count(subscriber, len(frames)))
        seconds = len(frames) - 1
        sharing = asyncio.create_task(asyncio.to_thread(gateway.cpu_percent, seconds))
        await asyncio.to_thread(_send, line, frames)
        share = await sharing
        return await counting, share


async def _count(subscriber: ClientConnection, wanted: int) -> int:
    """Count the distinct values in notifications, until all have arrived or a timeout passes."""
    values: set[str] = set()
    while len(values) < wanted:
        try:
            message = json.loads(await asyncio.wait_for(subscriber.recv(), _PATIENCE))
        except TimeoutError:
            break
        rows = message["notification"]["addedResults"]["results"]["bindings"]
        values.update(row["value"]["value"] for row in rows)
    return len(values)


def _send(line: int, frames: list[bytes]) -> None:
    """A good frame at the beginning of every second, noise the rest of it."""
    began = time.monotonic()
    for second, frame in enumerate(frames):
        # A line has no beginning of its own: it would be one with the noise before it.
        os.write(line, b"\n" + frame)
        for piece in range(_PIECES if second < len(frames) - 1 else 0):
            os.write(line, os.urandom(_NOISE // _PIECES))
            time.sleep(max(0.0, began + second + (piece + 1) / _PIECES - time.monotonic()))


@contextmanager
def _line(path: Path) -> Iterator[int]:
    """Create a pseudo-terminal at `path`. Yield the file descriptor of the device's end."""
    other, device = os.openpty()
    try:
        tty.setraw(device)  # the kernel must not interpret or change bytes
        path.symlink_to(os.ttyname(device))
        yield other
    finally:
        os.close(device)
        os.close(other)
