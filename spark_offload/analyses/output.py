"""Results of analyses as text: a table for terminals, CSV or JSON. CSV and JSON are streamed row by row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from typing import IO, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812  conventional name

from spark_offload.analyses.names import short_names
from spark_offload.analyses.numeric_rows import utc
from spark_offload.tabular import printable

MOST_ROWS: Final = 1000
"""Maximum rows of a table for terminals."""
NAMES: Final = {"series": 2, "property": 1, "unit": 1, "feature": 1, "street": 1}
"""Columns of IRIs, with the number of parts that `short_names` keeps of a single IRI."""

Write = Callable[[DataFrame, IO[str]], None]


def as_table(found: DataFrame, output: IO[str]) -> None:
    """Write aligned columns with short IRIs, of the first `MOST_ROWS` rows. The last line has the number of rows."""
    # One row more than is shown tells whether there are more, without a count of all.
    numbers, times = _numbers(found)
    rows = [_cells(row, times) for row in numbers.take(MOST_ROWS + 1)]
    cells = zip(*rows[:MOST_ROWS], strict=True) if rows else ((),) * len(found.columns)
    columns = [_column(name, column) for name, column in zip(found.columns, cells, strict=True)]
    lines = [found.columns, *zip(*columns, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numeric = [kind in {"double", "bigint", "int"} for _, kind in found.dtypes]
    for line in lines:
        padded = (
            f"{cell:>{width}}" if right else f"{cell:<{width}}"
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        output.write("  ".join(padded).rstrip() + "\n")
    more = len(rows) > MOST_ROWS
    count = f"first {MOST_ROWS} rows; --format csv has all" if more else f"{len(rows)} row{'s' * (len(rows) != 1)}"
    output.write(f"({count})\n")


def as_csv(found: DataFrame, output: IO[str]) -> None:
    """Write comma-separated values (RFC 4180) with a header. Times are in ISO 8601, null is empty."""
    writer = csv.writer(output)
    writer.writerow(found.columns)
    writer.writerows([_plain(cell) for cell in row] for row in _rows(found))


def as_json(found: DataFrame, output: IO[str]) -> None:
    """Write one JSON array of objects. Times are in ISO 8601."""
    columns = found.columns  # not while rows are read: DuckDB answers one query at a time
    separator = "[\n"
    for row in _rows(found):
        values = {name: _plain(cell) for name, cell in zip(columns, row, strict=True)}
        output.write(separator + json.dumps(values, ensure_ascii=False))
        separator = ",\n"
    output.write("[]\n" if separator == "[\n" else "\n]\n")


def _rows(found: DataFrame) -> Iterator[Sequence[object]]:
    """Yield the cells of each row, with times in UTC."""
    numbers, times = _numbers(found)
    # Holds at most two partitions in memory: the one that is written and the next.
    for row in numbers.toLocalIterator(prefetchPartitions=True):
        yield _cells(row, times)


def _numbers(found: DataFrame) -> tuple[DataFrame, list[int]]:
    """Return the rows with numbers in place of times (see `utc`), and the places of these."""
    kinds = found.dtypes
    times = [place for place, (_, kind) in enumerate(kinds) if kind == "timestamp"]
    if not times:
        return found, times
    return found.withColumns({kinds[place][0]: F.unix_micros(kinds[place][0]) for place in times}), times


def _cells(row: Row, times: Sequence[int]) -> Sequence[object]:
    cells = list(row)
    for place in times:
        cells[place] = None if cells[place] is None else utc(cells[place])
    return cells


def _column(name: str, cells: Sequence[object]) -> list[str]:
    short = short_names((str(cell) for cell in cells if cell is not None), NAMES[name]) if name in NAMES else {}
    return ["" if cell is None else printable(short.get(str(cell)) or _text(cell)) for cell in cells]


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return str(_plain(cell))


def _plain(cell: object) -> object:
    """Convert a cell for CSV and JSON."""
    if isinstance(cell, datetime):
        return cell.isoformat().replace("+00:00", "Z")
    return cell.isoformat() if isinstance(cell, date) else cell


WRITERS: Final[dict[str, Write]] = {"table": as_table, "csv": as_csv, "json": as_json}
