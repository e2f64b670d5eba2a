"""Observations of the measurements: a hundred sensors in the rooms of five buildings, equal on every machine."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Final, NamedTuple

from edge.bench.experiment import steps
from edge.outbox.observation import XSD, Cells, ObservationContext
from edge.outbox.segment import MANIFEST, ROWS, SegmentManifest, line, packed, stem

NS: Final = "http://example.org/campus/"
BUILDINGS: Final = ("arts", "chemistry", "library", "physics", "sports")
"""Buildings, with one gateway each."""
ROOMS: Final = 5
"""Rooms of each building."""
BEGINNING: Final = 1_781_024_400_000_000
"""Time of the first reading: 2026-06-09 17:00 UTC (us since 1970). A million readings end on the next day."""
INTERVAL: Final = 5_000_000
"""Microseconds between two readings of a sensor."""
SEGMENT: Final = 10_000
"""Rows of a segment."""
_UNIT: Final = "http://qudt.org/1.1/vocab/unit#"
_SEED: Final = 18


class Kind(NamedTuple):
    """Kind of sensor. Its value is a random walk between two bounds, by at most `step`."""

    name: str
    unit: str
    digits: int
    least: float
    most: float
    step: float


KINDS: Final = (
    Kind("temperature", "DegreeCelsius", 1, 12, 34, 0.2),
    Kind("humidity", "Percent", 1, 20, 95, 0.5),
    Kind("light", "Lux", 0, 0, 2000, 20),
    Kind("dimming", "Percent", 0, 0, 100, 5),
)


def place(building: str, room: int) -> str:
    """Return the IRI of a room."""
    return f"{NS}{building}/room-{room}"


def observed(kind: Kind) -> str:
    """Return the IRI of a property."""
    return f"{NS}{kind.name}"


def sensor(building: str, room: int, kind: Kind) -> str:
    """Return the IRI of a sensor."""
    return f"{place(building, room)}/{kind.name}-sensor"


def fill(landing: Path, rows: int) -> int:
    """Write segments with `rows` rows in total into a landing zone. Returns their size in bytes."""
    size = 0
    for number in steps(range(len(BUILDINGS)), "segments"):
        share = rows // len(BUILDINGS) + (number < rows % len(BUILDINGS))
        size += _fill(landing, BUILDINGS[number], f"{number + 1:016x}", share)
    return size


def _fill(landing: Path, gateway: str, epoch: str, rows: int) -> int:
    sensors = [(room, kind) for room in range(ROOMS) for kind in KINDS]
    contexts = {number: _context(gateway, room, kind) for number, (room, kind) in enumerate(sensors, 1)}
    folder = landing / gateway / epoch
    folder.mkdir(parents=True, exist_ok=True)
    readings = islice(_readings(gateway), rows)
    size, first = 0, 1
    while found := list(islice(readings, SEGMENT)):
        last = first + len(found) - 1
        content = packed(line(seq, context, cells) for seq, (context, cells) in enumerate(found, first))
        times = [cells.time for _, cells in found]
        sha256 = hashlib.sha256(content).hexdigest()
        manifest = SegmentManifest(gateway, epoch, first, last, min(times), max(times), len(content), sha256, contexts)
        (folder / (stem(first, last) + ROWS)).write_bytes(content)
        (folder / (stem(first, last) + MANIFEST)).write_bytes(manifest.to_json())
        size, first = size + len(content), last + 1
    return size


def _context(building: str, room: int, kind: Kind) -> ObservationContext:
    return ObservationContext(
        series=f"{place(building, room)}/{kind.name}",
        topic=f"{building}/room-{room}/{kind.name}",
        feature=place(building, room),
        property=observed(kind),
        sensor=sensor(building, room, kind),
        unit=_UNIT + kind.unit,
        datatype=XSD + ("decimal" if kind.digits else "integer"),
    )


def _readings(gateway: str) -> Iterator[tuple[int, Cells]]:
    """Yield context numbers and cells without end. Times have milliseconds, with an irregular delay."""
    # A text as seed gives the same numbers in each process, unlike `hash`, which is salted.
    drawn = random.Random(f"{_SEED} {gateway}")
    kinds = KINDS * ROOMS
    values = [drawn.uniform(kind.least, kind.most) for kind in kinds]
    # A fixed delay for each sensor, sorted: the readings of one period are about in the order of their times.
    late = sorted(drawn.randrange(INTERVAL // 1000) for _ in kinds)
    for turn in count():
        for number, kind in enumerate(kinds):
            moved = values[number] + drawn.uniform(-kind.step, kind.step)
            values[number] = min(max(moved, kind.least), kind.most)
            time = BEGINNING + turn * INTERVAL + (late[number] + drawn.randrange(40)) * 1000
            yield number + 1, Cells(time, f"{values[number]:.{kind.digits}f}")
