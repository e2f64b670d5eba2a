"""Write the icon of the application as PNG for phones: `python -m edge.gates.http.icons edge/web`.

Phones install an application only with such icons. They are drawn from `favicon.svg`, which has a rectangle with round
corners and a path of lines, without a library of graphics.
"""

from __future__ import annotations

import math
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

Point = tuple[float, float]
Colour = tuple[int, int, int]

ICONS: Final = {"icon-192.png": (192, False), "icon-512.png": (512, False), "icon-maskable-512.png": (512, True)}
"""Pixels of each side, and whether the system cuts the icon into its own shape (Web App Manifest, "maskable")."""
_LEVELS: Final = 32
"""Colours between that of the ground and that of the line, and opacities of the ground."""
_SAFE: Final = 0.8
"""Part of a maskable icon that each shape shows."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """The shapes of the SVG, in its units."""

    size: float
    radius: float
    """Of the corners of the ground."""
    ground: Colour
    line: tuple[Point, ...]
    width: float
    """Of the line, whose ends and corners are round."""
    ink: Colour


def read(svg: str) -> Drawing:
    """Return the drawing of an SVG that has the form of `favicon.svg`. Raises `ValueError` for another form."""
    found = re.search(
        r'viewBox="0 0 (\d+) \1"><rect width="\1" height="\1" rx="(\d+)" fill="(#\w+)"/><path d="([^"]+)" fill="none" '
        r'stroke="(#\w+)" stroke-width="([\d.]+)" stroke-linecap="round" stroke-linejoin="round"/>',
        svg,
    )
    if found is None:
        raise ValueError("the SVG is not a rectangle with round corners and a path with round ends")
    size, radius, ground, path, ink, width = found.groups()
    return Drawing(float(size), float(radius), _colour(ground), tuple(_points(path)), float(width), _colour(ink))


def pixels(drawing: Drawing, side: int, *, maskable: bool) -> list[bytes]:
    """Return the rows of the icon: a byte a pixel, which is a colour of `palette`."""
    scale = side / drawing.size
    middle, shrink = side / 2, _SAFE if maskable else 1.0
    line = [((x * scale - middle) * shrink + middle, (y * scale - middle) * shrink + middle) for x, y in drawing.line]
    segments = list(pairwise(line))
    half, radius = drawing.width * scale * shrink / 2, drawing.radius * scale
    rows = []
    for row in range(side):
        cells = bytearray()
        for column in range(side):
            at = (column + 0.5, row + 0.5)
            opacity = 1.0 if maskable else _cover(_to_ground(at, side, radius))
            if opacity < 1:  # the line is far from the edge of the ground
                cells.append(_LEVELS + round(opacity * (_LEVELS - 1)))
            else:
                cells.append(round(_cover(_to_line(at, segments, half + 1) - half) * (_LEVELS - 1)))
        rows.append(bytes(cells))
    return rows


def palette(drawing: Drawing) -> tuple[bytes, bytes]:
    """Return the colours, red, green and blue, and their opacities: from the ground to the line, and of the ground."""
    levels = [level / (_LEVELS - 1) for level in range(_LEVELS)]
    mixed = [
        bytes(round(g + (i - g) * level) for g, i in zip(drawing.ground, drawing.ink, strict=True)) for level in levels
    ]
    opacities = bytes(round(255 * level) for level in levels)
    return b"".join(mixed) + bytes(drawing.ground) * _LEVELS, b"\xff" * _LEVELS + opacities


def png(rows: list[bytes], drawing: Drawing) -> bytes:
    """Return rows of pixels as PNG (ISO/IEC 15948)."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    colours, opacities = palette(drawing)
    content = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", colours), (b"tRNS", opacities), (b"IDAT", content), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _colour(text: str) -> Colour:
    digits = text[1:] if len(text) == 7 else "".join(digit * 2 for digit in text[1:])
    return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)


def _points(path: str) -> Iterator[Point]:
    """Return the points of a path of lines: M, l and h, as `favicon.svg` has them."""
    x = y = 0.0
    for command, text in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", text)]
        if command not in "Mlh":
            raise ValueError(f'the path has the command "{command}"; only M, l and h are drawn')
        steps = [(each, 0.0) for each in numbers] if command == "h" else list(zip(*[iter(numbers)] * 2, strict=True))
        for step_x, step_y in steps:
            x, y = (step_x, step_y) if command == "M" else (x + step_x, y + step_y)
            yield x, y


def _cover(distance: float) -> float:
    """Return how much of a pixel a shape covers, by the signed distance of its centre to the edge."""
    return min(1.0, max(0.0, 0.5 - distance))


def _to_line(at: Point, segments: list[tuple[Point, Point]], most: float) -> float:
    """Return the distance to the nearest segment, up to `most`."""
    nearest = most
    for (x1, y1), (x2, y2) in segments:
        if min(x1, x2) - most < at[0] < max(x1, x2) + most:
            dx, dy = x2 - x1, y2 - y1
            part = min(1.0, max(0.0, ((at[0] - x1) * dx + (at[1] - y1) * dy) / (dx * dx + dy * dy)))
            nearest = min(nearest, math.hypot(at[0] - x1 - part * dx, at[1] - y1 - part * dy))
    return nearest


def _to_ground(at: Point, side: int, radius: float) -> float:
    """Return the signed distance to the edge of the square with round corners; negative inside."""
    x, y = (abs(each - side / 2) - side / 2 + radius for each in at)
    return math.hypot(max(x, 0.0), max(y, 0.0)) + min(max(x, y), 0.0) - radius


def write(directory: Path) -> None:
    """Write the icons next to `favicon.svg`."""
    drawing = read((directory / "favicon.svg").read_text(encoding="utf-8"))
    for name, (side, maskable) in ICONS.items():
        (directory / name).write_bytes(png(pixels(drawing, side, maskable=maskable), drawing))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
