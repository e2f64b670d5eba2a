"""Synthetic history of a small city: one week of a gateway's observations, as segments in a landing zone.

    python city.py LANDING [--days 7]

Two streets have lamps that are dimmed at night; three squares have a thermometer and a noise meter each. There are
faults: one thermometer is silent for an afternoon, another has a loose contact, and one lamp falls silent. The data is
computed without random numbers, so every run gives the same observations.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from edge.outbox.observation import XSD, Cells, ObservationContext
from edge.outbox.segment import MANIFEST, ROWS, SegmentManifest, line, packed

CITY: Final = "http://example.org/city/"
UNIT: Final = "http://qudt.org/1.1/vocab/unit#"
START: Final = datetime(2026, 1, 5, tzinfo=UTC)
"""Time of the first observation, a Monday."""
EPOCH: Final = "00000000c17c17e5"

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

SQUARES: Final = {"Market": 0.0, "Station": 1.5, "Park": -1.0}
"""Temperature difference of each square in degrees Celsius."""
STREETS: Final = {"High-Street": 6, "Mill-Lane": 3}
"""Number of lamps of each street."""

Reading = tuple[int, ObservationContext, str]
"""Seconds after the start, context of the observation, and lexical form of the value."""


def context(place: str, sensor: str, prop: str, unit: str) -> ObservationContext:
    """Return the context of a sensor's observations. Their live observation is `CITY/observation/SENSOR/PROPERTY`."""
    return ObservationContext(
        series=f"{CITY}observation/{sensor}/{prop}",
        topic=f"city/{sensor}/{prop}",
        feature=CITY + place,
        property=CITY + prop,
        sensor=CITY + sensor,
        unit=UNIT + unit,
        datatype=XSD + "decimal",
    )


def temperatures(days: int) -> Iterator[Reading]:
    """Yield a temperature of each square every ten minutes, with the maximum at 15:00."""
    for square, warmer in SQUARES.items():
        meter = context(square, f"thermometer-{square}", "temperature", "DegreeCelsius")
        for number, second in enumerate(range(0, days * DAY, 10 * MINUTE)):
            if square == "Park" and 2 * DAY + 12 * HOUR <= second < 2 * DAY + 17 * HOUR:
                continue  # its battery was changed
            wave = math.cos((second % DAY / HOUR - 15) * math.pi / 12)
            value = 4 + warmer + 3 * wave + (number * 7 % 5 - 2) / 10
            if square == "Station" and number % 331 == 200:
                value += 25  # a loose contact
            yield second, meter, f"{value:.1f}"


def noises(days: int) -> Iterator[Reading]:
    """Yield a noise level of each square every ten minutes, louder from 7:00 to 22:00."""
    for square, louder in SQUARES.items():
        meter = context(square, f"microphone-{square}", "noise", "Decibel")
        for number, second in enumerate(range(0, days * DAY, 10 * MINUTE)):
            by_day = 7 <= second % DAY / HOUR < 22
            yield second, meter, str(round(40 + 4 * louder + 15 * by_day + number * 11 % 7))


def dimmings(days: int) -> Iterator[Reading]:
    """Yield the dimming of each lamp when it changes: on at dusk, off at dawn, half power from 23:00 to 05:00."""
    for street, lamps in STREETS.items():
        for number in range(lamps):
            lamp = context(street, f"lamp-{street}-{number + 1}", "dimming", "Percent")
            for day in range(days):
                if street == "Mill-Lane" and number == 2 and day > 3:
                    break  # this lamp falls silent
                for hour, percent in ((0, 50), (5, 100), (8, 0), (16, 100), (23, 50)):
                    yield day * DAY + hour * HOUR + number, lamp, str(percent)


def write(landing: Path, days: int = 7, gateway: str = "city-box", rows: int = 10_000) -> int:
    """Write the segments of the gateway's outbox. Returns the number of observations."""
    readings = sorted([*temperatures(days), *noises(days), *dimmings(days)], key=lambda reading: reading[0])
    folder = landing / gateway / EPOCH
    folder.mkdir(parents=True, exist_ok=True)
    for begin in range(0, len(readings), rows):
        _segment(folder, gateway, begin + 1, readings[begin : begin + rows])
    return len(readings)


def _segment(folder: Path, gateway: str, first: int, readings: list[Reading]) -> None:
    """Write the file of rows and then its manifest, in the order of the gateway: the manifest completes a segment."""
    contexts = {context: number for number, context in enumerate(dict.fromkeys(reading[1] for reading in readings), 1)}
    times = [int(START.timestamp() + second) * 1_000_000 for second, _, _ in readings]
    body = packed(
        line(seq, contexts[context], Cells(time, value))
        for seq, (time, (_, context, value)) in enumerate(zip(times, readings, strict=True), first)
    )
    manifest = SegmentManifest(
        gateway=gateway,
        epoch=EPOCH,
        first=first,
        last=first + len(readings) - 1,
        start=min(times),
        end=max(times),
        size=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        contexts={number: context for context, number in contexts.items()},
    )
    (folder / (manifest.stem + ROWS)).write_bytes(body)
    (folder / (manifest.stem + MANIFEST)).write_bytes(manifest.to_json())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("landing", type=Path)
    parser.add_argument("--days", type=int, default=7, help="(%(default)s)")
    arguments = parser.parse_args()
    print(f"{write(arguments.landing, arguments.days)} observations in {arguments.landing}")
