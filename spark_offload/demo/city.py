"""Synthetic observations of a city: segments of a gateway that does not exist. Equal seeds give equal files.

Squares have a thermometer and a noise meter each, with a value an hour. Streets have lamps, whose dimming is stored
when it changes. One thermometer is silent for two weeks, and one lamp fails in autumn.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from edge.outbox.observation import XSD, Cells, ObservationContext
from edge.outbox.segment import MANIFEST, ROWS, SegmentManifest, line, packed

CITY: Final = "http://example.org/synthetic-city/"
START: Final = datetime(2025, 1, 1, tzinfo=UTC)
GATEWAY: Final = "synthetic-city"
EPOCH: Final = "00000000c17c17e5"
SQUARES: Final = ("Market", "Station", "Park", "Harbour", "Cathedral", "Theatre", "Mill", "Garden", "Bridge", "School")
STREETS: Final = ("High-Street", "Mill-Lane", "Quay", "Ring-Road", "Church-Street")
LAMPS: Final = 12
"""Lamps of each street."""

_UNIT: Final = "http://qudt.org/1.1/vocab/unit#"
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_ROWS: Final = 10_000
"""Rows of a segment, as in the default settings of a gateway."""
_Reading = tuple[int, ObservationContext, str]
"""Seconds after the start, context, and lexical form of the value."""


def write_segments(landing: Path, days: int, seed: int) -> int:
    """Write the observations of some days into a new landing zone. Returns their number."""
    folder = landing / GATEWAY / EPOCH
    folder.mkdir(parents=True)
    count, waiting = 0, list[_Reading]()
    for reading in _readings(days, random.Random(seed)):  # noqa: S311  repeatable, not secret
        waiting.append(reading)
        if len(waiting) == _ROWS:
            _write(folder, count + 1, waiting)
            count, waiting = count + len(waiting), []
    if waiting:
        _write(folder, count + 1, waiting)
    return count + len(waiting)


def _readings(days: int, chance: random.Random) -> Iterator[_Reading]:
    """Yield the observations in the order of their times."""
    thermometers = [_context(square, "thermometer", "temperature", "DegreeCelsius") for square in SQUARES]
    microphones = [_context(square, "noise-meter", "noise", "Decibel") for square in SQUARES]
    lamps = [[_context(street, f"lamp-{n + 1}", "dimming", "Percent") for n in range(LAMPS)] for street in STREETS]
    for day in range(days):
        season = -math.cos((day - 15) * 2 * math.pi / 365)  # coldest in the middle of January
        weather = chance.gauss(0, 2)
        dawn, dusk = round(6.5 - 1.5 * season), round(18.5 + 2 * season)
        for hour in range(24):
            second = day * _DAY + hour * _HOUR
            warmth = 12 + 9 * season + weather + 4 * math.cos((hour - 15) * math.pi / 12)
            for number, (thermometer, microphone) in enumerate(zip(thermometers, microphones, strict=True)):
                if number != 2 or not 200 <= day < 214:  # the Park is silent for two weeks
                    yield second + number, thermometer, f"{warmth - number * 0.4 + chance.gauss(0, 0.4):.1f}"
                busy = 14 * (7 <= hour < 22) + 6 * (day % 7 in (4, 5) and hour >= 20)
                yield second + number, microphone, f"{42 + busy + number % 5 * 2 + chance.gauss(0, 3):.0f}"
            percent = {0: 50, dawn: 0, dusk: 100, 23: 50}.get(hour)
            if percent is not None:
                for street, of_street in enumerate(lamps):
                    for number, lamp in enumerate(of_street):
                        if (street, number) != (1, 3) or day < 280:  # one lamp fails in autumn
                            yield second + 30 + number, lamp, str(percent)


def _context(place: str, device: str, prop: str, unit: str) -> ObservationContext:
    sensor = f"{place}/{device}"
    return ObservationContext(
        series=f"{CITY}{sensor}/{prop}",
        topic=f"synthetic-city/{sensor}/{prop}",
        feature=CITY + place,
        property=CITY + prop,
        sensor=CITY + sensor,
        unit=_UNIT + unit,
        datatype=XSD + "decimal",
    )


def _write(folder: Path, first: int, readings: list[_Reading]) -> None:
    """Write the file of rows and then its manifest, as a gateway does."""
    contexts = {context: number for number, context in enumerate(dict.fromkeys(reading[1] for reading in readings), 1)}
    begin = int(START.timestamp())
    times = [(begin + second) * 1_000_000 for second, _, _ in readings]
    body = packed(
        line(seq, contexts[context], Cells(time, value))
        for seq, (time, (_, context, value)) in enumerate(zip(times, readings, strict=True), first)
    )
    manifest = SegmentManifest(
        GATEWAY,
        EPOCH,
        first,
        first + len(readings) - 1,
        min(times),
        max(times),
        len(body),
        hashlib.sha256(body).hexdigest(),
        {number: context for context, number in contexts.items()},
    )
    (folder / (manifest.stem + ROWS)).write_bytes(body)
    (folder / (manifest.stem + MANIFEST)).write_bytes(manifest.to_json())
