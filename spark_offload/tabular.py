"""Solutions as a text table for terminals: short IRIs, aligned columns, no control characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Final
from unicodedata import combining, east_asian_width

import pyoxigraph as ox

from edge.outbox.observation import XSD
from spark_offload.prefixes import short

_PAGE: Final = 1000
"""Rows that are aligned with each other. Later pages keep these column widths, or widen them."""
_PLAIN: Final = {XSD + name for name in ("string", "integer", "decimal", "double", "float", "boolean", "dateTimeStamp")}
"""Datatypes that are omitted, because they are evident from the value."""

Cell = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple | None


def write(names: Sequence[str], solutions: Iterable[ox.QuerySolution], output: IO[bytes]) -> None:
    """Write a header, a rule, a line for each solution, and the number of solutions."""
    rows = ([term(cell) for cell in row] for row in solutions)
    header = [f"?{name}" for name in names]
    page = list(islice(rows, _PAGE))
    widths = _widths([header, *page])
    output.writelines(_lines([header, ["-" * width for width in widths], *page], widths))
    count = len(page)
    while page := list(islice(rows, _PAGE)):
        widths = [*map(max, widths, _widths(page))]
        output.writelines(_lines(page, widths))
        count += len(page)
    output.write(f"({count} result{'' if count == 1 else 's'})\n".encode())


def term(cell: Cell) -> str:
    """Return the short text of a term; empty if it is unbound."""
    if cell is None:
        return ""
    if isinstance(cell, ox.NamedNode):
        return short(printable(cell.value))
    if isinstance(cell, ox.Literal):
        text = printable(cell.value)
        if cell.language:
            return f"{text}@{cell.language}"
        return text if cell.datatype.value in _PLAIN else f"{text}^^{short(cell.datatype.value)}"
    return printable(str(cell))


def printable(text: str) -> str:
    """Escape control characters, so that data cannot send commands to the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _lines(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> Iterator[bytes]:
    for row in rows:
        cells = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        yield f"{'  '.join(cells).rstrip()}\n".encode()


def _widths(rows: Iterable[Sequence[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(*rows, strict=True)]


def _width(text: str) -> int:
    """Return the number of terminal columns of a text: combining characters take 0, wide ones 2."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
