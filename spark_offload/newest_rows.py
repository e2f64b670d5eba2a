"""The newest rows of a table, kept in files next to it, so that queries for last times and values need not read it.

The directory `.NAME.newest-rows` next to the table has at most two files. Each contains the newest rows of one version
of the table; a reader adds the rows that the table got after this version. The files are only a cache: if the log does
not prove that the table has merely got more rows since then, queries read the whole table. So neither a kill between a
commit and its file nor a change by another program affects an answer.

Files are written and removed with the lock of the table. A table with too many or too large newest rows has a file
without rows, so that maintenance does not look for them each time.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  conventional name
from pyspark.sql.types import StringType

from spark_offload.commit import alone
from spark_offload.errors import HistoryError, TableRefused
from spark_offload.landing import sync
from spark_offload.log_changes import AddedFiles, added_after, commit_digest
from spark_offload.positions import history
from spark_offload.spark_errors import first_line
from spark_offload.table import SCHEMA, directory, open_table, properties

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DESCRIPTION: Final = ("series", "topic", "feature", "property", "sensor", "unit", "graph")
"""Columns that describe an observation, apart from its number, its time and its value."""
MOST_ROWS: Final = 100_000
"""Largest number of newest rows that are kept, and that a query holds in memory."""
_MOST_TEXT: Final = 2_000
"""Largest number of characters of a row. So the rows in memory have about 200 MB at most."""
_FILE: Final = 1_000
"""Number of rows that take as long to read as the opening of a file."""
_FEW: Final = 50_000
"""Cost of reading added files, in rows, below which the newest rows are not renewed."""
_MOST_READ: Final = 250_000
"""Number of added rows beyond which a query reads the whole table."""
_MOST_RENEWED: Final = 20_000_000
"""Number of added rows beyond which only maintenance keeps the newest rows. A round has at most 5 million rows."""
_KEPT: Final = 2
"""Number of files: queries that began before the last one was made use the other."""
_NAME: Final = re.compile(r"([0-9]{20})\.([0-9]+)\.([0-9a-f]{64})\.parquet")
"""Name of a file: the version of the table, the number of rows, and the SHA-256 of the commit of the version."""
_PART: Final = ".part"
_WHOLE: Final = "lost IS NULL AND quads IS NULL"
_SPECIAL: Final = re.compile(r"[][*?{}\\]")
_READER: Final = "1"
"""Version of Delta's protocol for readers whose files contain exactly the rows of the table."""
_FAILURES: Final = (HistoryError, OSError, PySparkException, Py4JError, ValueError)
"""Errors of Spark, of Arrow and of the file system."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A file of newest rows. It is empty if they are too many (`rows`)."""

    version: int
    rows: int
    path: Path


def newest(rows: DataFrame) -> DataFrame:
    """Return the observations with the greatest time of each gateway and `DESCRIPTION`: all that have the same time.

    This is more than one row for each series, and lets queries with other keys use them (`sparql/newest_suffice.py`).
    With the gateway, a deletion removes all rows of a combination before some time. So the newest rows after it are
    those of the newest rows before it that are not deleted. Rows with `lost` or `quads` are not observations of a
    series.
    """
    keys = (*DESCRIPTION, "gateway")
    whole = rows.where(_WHOLE)
    greatest = whole.groupBy(*(F.col(name).alias(f"_{name}") for name in keys)).agg(F.max("ts").alias("_ts"))
    same = reduce(Column.__and__, [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in (*keys, "ts")])
    return whole.join(greatest, same, "left_semi").select(*SCHEMA.names)


def newest_rows(spark: SparkSession, path: str, version: int) -> DataFrame | None:
    """Return rows of a version in memory, among them all those of `newest`; None if the whole table must be read."""
    if (place := directory(path)) is None:
        return None
    try:
        for kept in _files(place):
            if kept.version <= version and (added := added_after(place, kept.version, version, _MOST_READ)) is not None:
                found = _with_added(spark, place, kept, added)
                # A single partition needs no shuffle to be grouped.
                return None if found is None else spark.createDataFrame(found, SCHEMA).coalesce(1)
    except _FAILURES:  # such as a file that was removed meanwhile
        return None
    return None


def renew(spark: SparkSession, path: str, version: int, *, soon: bool = False) -> list[str]:
    """Keep the newest rows of the newest version, if reading the added files costs as much as reading the kept rows.

    So the effort is proportional to the ingested rows. With `soon`, a single added file suffices. The caller must hold
    the lock of the table. Returns the problem: it must end neither ingestion nor maintenance.
    """
    if (place := directory(path)) is None:
        return []
    try:
        # A new table has no kept rows, and all rows are added ones.
        for kept in (*_files(place), None):
            base, count = (-1, 0) if kept is None else (kept.version, kept.rows)
            if base <= version and (added := added_after(place, base, version, _MOST_RENEWED)) is not None:
                cost = added.rows + _FILE * len(added.paths)
                due = added.paths and (soon or cost >= max(count, _FEW))
                if due and count <= MOST_ROWS and _readable(spark, path):
                    _write(place, version, _reduced(spark, _with_added(spark, place, kept, added)))
                break
    except _FAILURES as error:
        return [_problem(path, error)]
    return []


def complete(spark: SparkSession, path: str, wait: float) -> list[str]:
    """Keep the newest rows of a table that has none of use, with a scan of the table. Returns the problem.

    The lock of the table is held only to write the file; `wait` is the time in seconds to wait for it.
    """
    if (place := directory(path)) is None:
        return []
    try:
        version = _newest_version(spark, path)
        if newest_rows(spark, path, version) is not None or _too_many(place, version) or not _readable(spark, path):
            return []
        found = in_memory(newest(open_table(spark, path, version)))
        with alone(spark, path, wait):
            # Otherwise rows were deleted meanwhile: they must not be written.
            if added_after(place, version, _newest_version(spark, path), _MOST_RENEWED) is not None:
                _write(place, version, found)
    except _FAILURES as error:
        return [_problem(path, error)]
    return []


def without(spark: SparkSession, path: str, version: int, condition: str) -> pa.Table | None:
    """Return the newest rows after a deletion of all rows that meet a condition of `deletions.py`; None if unknown."""
    found = newest_rows(spark, path, version)
    try:
        return None if found is None else in_memory(newest(found.where(f"NOT {condition}")))
    except _FAILURES:
        return None


def keep(path: str, version: int, rows: pa.Table) -> None:
    """Keep these newest rows of a version, if possible. The caller must hold the lock of the table."""
    if (place := directory(path)) is not None:
        with contextlib.suppress(*_FAILURES):
            _write(place, version, rows)


def forget(path: str) -> None:
    """Remove the kept rows of a table. The caller must hold the lock of the table. Raises `TableRefused`."""
    if (place := directory(path)) is None or not (folder := _folder(place)).exists():
        return
    try:
        shutil.rmtree(folder)
        sync(folder.parent)
    except OSError as error:
        raise TableRefused(f"{folder} cannot be removed ({error}): make it writable, and repeat") from error


def in_memory(rows: DataFrame) -> pa.Table | None:
    """Return rows of `SCHEMA` as an Arrow table, or None if they are too many or too large."""
    import pyarrow.compute as pc

    texts = [field.name for field in SCHEMA if isinstance(field.dataType, StringType)]
    size = reduce(Column.__add__, [F.coalesce(F.length(name), F.lit(0)) for name in texts])
    fits = size <= _MOST_TEXT
    # Texts of large rows stay in Spark.
    bounded = [F.when(fits, F.col(name)).alias(name) if name in texts else F.col(name) for name in SCHEMA.names]
    found = (
        rows.select(*bounded, F.when(fits, 0).otherwise(1).cast("long").alias("_large")).limit(MOST_ROWS + 1).toArrow()
    )
    if found.num_rows > MOST_ROWS or pc.sum(found["_large"]).as_py():
        return None
    return _typed(found)


def _typed(rows: pa.Table) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    return rows.select(SCHEMA.names).cast(to_arrow_schema(SCHEMA, timezone="UTC"))


def _folder(place: Path) -> Path:
    return place.with_name(f".{place.name}.newest-rows")


def _files(place: Path) -> Iterator[_Kept]:
    """Yield the files that belong to the table, newest first. Another table there has other commits."""
    with contextlib.suppress(FileNotFoundError):
        for one in sorted(_folder(place).iterdir(), reverse=True):
            if (found := _NAME.fullmatch(one.name)) and commit_digest(place, int(found[1])) == found[3]:
                yield _Kept(int(found[1]), int(found[2]), one)


def _too_many(place: Path, version: int) -> bool:
    """Return whether the newest rows were too many, and the table has only got more rows since then."""
    return any(
        kept.rows > MOST_ROWS and added_after(place, kept.version, version, _MOST_RENEWED) is not None
        for kept in _files(place)
    )


def _readable(spark: SparkSession, path: str) -> bool:
    """Return whether the files of the table contain exactly its rows, with all columns of the schema."""
    reader = properties(spark, path).get("delta.minReaderVersion", "")
    return reader == _READER and set(SCHEMA.names) <= set(open_table(spark, path).columns)


def _newest_version(spark: SparkSession, path: str) -> int:
    return int(history(spark, path, 1)[0]["version"])


def _with_added(spark: SparkSession, place: Path, kept: _Kept | None, added: AddedFiles) -> pa.Table | None:
    """Return the kept rows and those of added files, perhaps only the newest; None if too many. Raises `_FAILURES`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    if kept is not None:
        if kept.rows > MOST_ROWS:
            return None
        with pq.ParquetFile(kept.path, page_checksum_verification=True) as file:
            if file.metadata.num_rows != kept.rows:
                raise ValueError(f"{kept.path} is damaged")
            parts.append(_typed(file.read()))
    if added.paths:
        paths = [_SPECIAL.sub(r"\\\g<0>", f"file:{one}") for one in added.paths]
        rows = spark.read.schema(SCHEMA).option("basePath", f"file:{place}").parquet(*paths)
        few = in_memory(rows.where(_WHOLE) if added.rows <= MOST_ROWS else newest(rows))
        if few is None:
            return None
        parts.append(few)
    return pa.concat_tables(parts)


def _reduced(spark: SparkSession, rows: pa.Table | None) -> pa.Table | None:
    return None if rows is None else in_memory(newest(spark.createDataFrame(rows, SCHEMA).coalesce(1)))


def _write(place: Path, version: int, rows: pa.Table | None) -> None:
    """Write a file durably and at once, and remove others. Without `rows`, they are too many. Raises `OSError`."""
    import pyarrow.parquet as pq

    if (digest := commit_digest(place, version)) is None:
        return
    folder = _folder(place)
    folder.mkdir(exist_ok=True)
    # The rows are those of the table, so the same users may read them.
    if folder.stat().st_mode != (mode := place.stat().st_mode):
        folder.chmod(mode & 0o7777)
    part = folder / _PART
    if rows is None:
        part.write_bytes(b"")
    else:
        pq.write_table(rows, part, compression="zstd", write_page_checksum=True)
    sync(part)
    count = MOST_ROWS + 1 if rows is None else rows.num_rows
    part.replace(folder / f"{version:020d}.{count}.{digest}.parquet")
    sync(folder)
    used = [one.path for one in _files(place)][:_KEPT]
    for one in folder.iterdir():
        if one not in used:
            one.unlink(missing_ok=True)


def _problem(path: str, error: Exception) -> str:
    return f"the newest rows of {path} cannot be kept, so queries for them are slow: {first_line(error)}"
