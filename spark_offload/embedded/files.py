"""Files of rows, in a new directory like one that Spark writes."""

from __future__ import annotations

import gzip
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spark_offload.errors import EngineRefused, OutputRefused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.connect.proto import commands_pb2 as proto


def write(operation: proto.WriteOperation, pieces: Iterator[pa.Table]) -> None:
    """Write the rows of a `DataFrameWriter`. Raises `EngineRefused`, `OutputRefused`."""
    writers: dict[str, Callable[[Iterator[pa.Table], Path], None]] = {
        "parquet": _parquet,
        "text": partial(_text, is_gzip=operation.options.get("compression") == "gzip"),
    }
    if operation.source not in writers:
        raise EngineRefused(f"DuckDB does not write {operation.source or 'tables'}: use --engine spark")
    if not operation.path.startswith("/"):
        raise EngineRefused(
            f"DuckDB writes only to directories of this machine, not to {operation.path}: use --engine spark"
        )
    out = Path(operation.path)
    if out.exists():
        raise OutputRefused(f"{out} already exists: remove it, or choose another name")
    part = out.with_name(f".{out.name}.{uuid.uuid4().hex}")
    try:
        part.mkdir()
        writers[operation.source](pieces, part)
        part.rename(out)
    except OSError as error:
        raise OutputRefused(f"{out} cannot be written: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _parquet(pieces: Iterator[pa.Table], folder: Path) -> None:
    import pyarrow.parquet as pq

    first = next(pieces)
    with (folder / "part-00000.parquet").open("wb") as file:
        with pq.ParquetWriter(file, first.schema) as writer:
            for piece in pieces:
                writer.write_table(piece)
        os.fsync(file.fileno())


def _text(pieces: Iterator[pa.Table], folder: Path, *, is_gzip: bool) -> None:
    with (folder / f"part-00000.txt{'.gz' * is_gzip}").open("wb") as file:
        with gzip.open(file, "wb") if is_gzip else nullcontext(file) as lines:
            for piece in pieces:
                lines.writelines(f"{line}\n".encode() for line in piece.column(0).to_pylist())
        file.flush()
        os.fsync(file.fileno())
