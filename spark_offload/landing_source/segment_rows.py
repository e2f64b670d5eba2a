"""Conversion of segments into rows of the table without a JVM, as Arrow batches.

The rows are those of `spark_offload.rows`, which converts the same files with expressions of Spark.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from edge.outbox.observation import DATE_TIME_STAMP
from edge.outbox.segment import SegmentManifest
from edge.outbox.segment import cells as read_cells
from spark_offload.table import NUMBERS, SCHEMA
from spark_offload.totals import EARLIEST, LATEST

_TYPES: Final = to_arrow_schema(SCHEMA, timezone="UTC")
_BATCH: Final = 10_000
"""Rows of a batch."""
_DAY: Final = 86_400_000_000
_NUMBERS: Final = {datatype: re.compile(form) for datatype, form in NUMBERS.items()}


def batches(manifest: SegmentManifest, packed: bytes, after: int, upto: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment with the numbers `after` + 1 to `upto`, in the schema of the table.

    `packed` is the content of its rows file. Raises `SegmentDamaged` unless it is the file of the manifest.
    """
    if manifest.tombstone:
        yield _batch([_row(manifest, upto, manifest.end, {"lost": upto - after})])
        return
    manifest.check(packed)
    with gzip.open(BytesIO(packed)) as lines:
        chosen = islice(lines, max(0, after + 1 - manifest.first), upto + 1 - manifest.first)
        while some := [_observation(manifest, line.decode().rstrip("\n")) for line in islice(chosen, _BATCH)]:
            yield _batch(some)


def clamped(time: int) -> int:
    """Return the nearest time that the table can have, in microseconds since 1970."""
    return min(max(time, EARLIEST), LATEST)


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_TYPES)


def _row(manifest: SegmentManifest, seq: int, time: int, columns: dict[str, object]) -> tuple[object, ...]:
    moment = clamped(time)
    common = {
        "gateway": manifest.gateway,
        "epoch": manifest.epoch,
        "seq": seq,
        "ts": moment,
        "replayed": manifest.replayed,
        "date": moment // _DAY,
    }
    columns = {**columns, **common}
    return tuple(columns.get(name) for name in SCHEMA.names)


def _observation(manifest: SegmentManifest, line: str) -> tuple[object, ...]:
    seq, number, rest = line.split("\t", 2)
    cells = read_cells(rest)
    own = {name: getattr(cells, name) for name in ("time_text", "observation", "result", "instant", "quads")}
    if cells.quads is not None:
        return _row(manifest, int(seq), cells.time, own)
    context = manifest.contexts[int(number)]
    own |= context._asdict()
    own["value_text"] = cells.value or ""
    own["value"] = _number(cells.value, context.datatype)
    own["time_datatype"] = None if context.time_datatype == DATE_TIME_STAMP else context.time_datatype
    return _row(manifest, int(seq), cells.time, own)


def _number(text: str | None, datatype: str) -> float | None:
    form = _NUMBERS.get(datatype)
    return float(text) if form and text and form.fullmatch(text) else None
