"""The newest observations of a table, kept next to it, so that questions about them need not read the table.

The directory `.NAME.latest` next to the table has *copies*: each contains the newest rows of one version of the table.
A reader adds the rows of the files that the table got after this version. A copy is only a cache. If the table has lost
or changed rows since then (a deletion, a RESTORE, an UPDATE), readers do not use the copy, and the next maintenance
makes a new one. So a kill between the commit of the table and the copy changes no answer.

A copy has, for each combination of `DESCRIPTION`, all rows with the greatest time. This is more than one row for each
series, and lets queries with other keys use it (`sparql/newest_rows.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  conventional name

from spark_offload.errors import TableRefused
from spark_offload.landing import sync
from spark_offload.log_changes import AddedFiles, added_after, commit_digest
from spark_offload.positions import history
from spark_offload.table import SCHEMA, directory, location, open_table, properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION: Final = ("series", "topic", "feature", "property", "sensor", "unit", "graph")
"""Columns that describe an observation, apart from its number, its time and its value."""
KEEP: Final = 7 * 86_400.0
"""Seconds for which a copy stays next to newer ones, for queries that still read it.

This is the time for which `maintain` keeps the files of older versions of the table by default.
"""
IN_MEMORY: Final = 100_000
"""Largest number of rows that a view of the table holds in memory."""
_LEAST_ROWS: Final = 10_000
"""Number of added rows below which readers read them again each time."""
_MOST_FILES: Final = 64
"""Number of added files after which a new copy is made."""
_MOST_ROWS: Final = 1_000_000
"""Number of added rows beyond which only maintenance makes a copy: two million took a tenth of their ingestion."""
_COPY: Final = re.compile(r"([0-9]{20})\.([0-9]+)\.([0-9a-f]{64})")
"""Name of a copy: the version of the table, the number of rows, and the SHA-256 of the commit of the version."""
_SPECIAL: Final = re.compile(r"[][*?{}\\]")
_READER: Final = 1
"""Version of Delta's protocol for readers whose files contain exactly the rows of the table."""


@dataclass(frozen=True, slots=True)
class _Copy:
    version: int
    rows: int
    path: Path | None
    """None for the empty table before its first version."""


def newest(rows: DataFrame) -> DataFrame:
    """Return the observations with the greatest time of each `DESCRIPTION`, with all that have the same time.

    Rows with `lost` or `quads` are not observations of a series.
    """
    whole = rows.where("lost IS NULL AND quads IS NULL")
    greatest = whole.groupBy(*(F.col(name).alias(f"_{name}") for name in DESCRIPTION)).agg(F.max("ts").alias("_ts"))
    same = reduce(Column.__and__, [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in (*DESCRIPTION, "ts")])
    return whole.join(greatest, same, "left_semi")


def newest_of_series(rows: DataFrame) -> DataFrame:
    """Return one row for each series and property: the newest one.

    `rows` are those of the table, or at least those of `newest`. The series is that of the analyses (`numeric_rows`).
    Of observations with the same time the last one counts, as in `last_values`.
    """
    series = F.coalesce("series", "sensor", "topic", "feature", F.lit(""))
    order = [F.col(name).desc_nulls_last() for name in ("ts", "seq", "gateway", "epoch")]
    place = F.row_number().over(Window.partitionBy(series, F.col("property")).orderBy(*order))
    whole = rows.where("lost IS NULL AND quads IS NULL")
    return whole.withColumn("_place", place).where("_place = 1").select(*SCHEMA.names)


def latest(spark: SparkSession, table: str | os.PathLike[str], version: int | None = None) -> DataFrame:
    """Return the newest observation of each series and property, as rows of the table. Raises `TableRefused`."""
    path = location(spark, table)
    open_table(spark, path, version)  # raises `TableRefused` with the remedy
    if version is None:
        version = int(history(spark, path, 1)[0]["version"])
    found = candidates(spark, path, version)
    return newest_of_series(newest(open_table(spark, path, version)) if found is None else found)


def candidates(spark: SparkSession, path: str, version: int) -> DataFrame | None:
    """Return rows of a version, among them all those of `newest`; None if the whole table must be read."""
    place = directory(path)
    if place is None:
        return None
    for copy in _copies(place):
        if copy.version <= version and (added := added_after(place, copy.version, version)) is not None:
            rows = _rows(spark, place, copy, added)
            # A single partition needs no shuffle to be grouped.
            return in_memory(rows).coalesce(1) if copy.rows + added.rows <= IN_MEMORY else rows
    return None


def refresh(spark: SparkSession, path: str, version: int) -> None:
    """Make a copy of a version of the table after an ingestion, from the former copy and the added rows.

    It is not made before the added rows are as many as those of the former copy, so that the effort is proportional to
    the ingested rows. The caller must hold the lock of the table. Raises `TableRefused` and errors of Spark.
    """
    place = directory(path)
    if place is None:
        return
    for copy in (*_copies(place), _Copy(-1, 0, None)):
        if copy.version <= version and (added := added_after(place, copy.version, version)) is not None:
            many = added.rows >= max(copy.rows, _LEAST_ROWS) or len(added.paths) >= _MOST_FILES
            if many and added.rows <= _MOST_ROWS and _readable(spark, path):
                _make(place, version, newest(_rows(spark, place, copy, added)))
            return


def complete(spark: SparkSession, path: str, version: int) -> None:
    """Make a copy of a version of the table, from all its rows if no former copy is of use.

    The caller must hold the lock of the table. Raises `TableRefused` and errors of Spark.
    """
    place = directory(path)
    if place is None:
        return
    _remove_old(_folder(place))
    for copy in _copies(place):
        if copy.version <= version and (added := added_after(place, copy.version, version)) is not None:
            if added.paths and _readable(spark, path):
                _make(place, version, newest(_rows(spark, place, copy, added)))
            return
    if _readable(spark, path):
        _make(place, version, newest(open_table(spark, path, version).select(*SCHEMA.names)))


def forget(path: str) -> None:
    """Remove all copies of a table: rows were deleted from it. Queries that read them fail. Raises `TableRefused`."""
    if (place := directory(path)) is None or not (folder := _folder(place)).exists():
        return
    try:
        shutil.rmtree(folder)
        sync(folder.parent)
    except OSError as error:
        raise TableRefused(f"{folder} cannot be removed ({error}): make it writable, and repeat") from error


def _folder(place: Path) -> Path:
    return place.with_name(f".{place.name}.latest")


def _copies(place: Path) -> Iterator[_Copy]:
    """Yield the copies that belong to the table, newest first."""
    with contextlib.suppress(OSError):  # none, or another process removes them
        for one in sorted(_folder(place).iterdir(), reverse=True):
            found = _COPY.fullmatch(one.name)
            # A kill can interrupt the removal of a copy: then it has lost its rows.
            if found and commit_digest(place, int(found[1])) == found[3] and _count(one) == int(found[2]):
                yield _Copy(int(found[1]), int(found[2]), one)


def _count(copy: Path) -> int | None:
    """Return the number of rows of a copy; None if it is damaged."""
    import pyarrow.parquet as pq

    try:
        return sum(int(pq.read_metadata(one).num_rows) for one in copy.glob("*.parquet"))
    except (OSError, ValueError):
        return None


def _readable(spark: SparkSession, path: str) -> bool:
    """Return whether the files of the table contain exactly its rows, with all columns of the schema."""
    reader = properties(spark, path).get("delta.minReaderVersion", "")
    return reader == str(_READER) and set(SCHEMA.names) <= set(open_table(spark, path).columns)


def _rows(spark: SparkSession, place: Path, copy: _Copy, added: AddedFiles) -> DataFrame:
    """Return the rows of a copy and of added files."""
    parts = []
    if copy.path is not None:
        parts.append(_read(spark, copy.path, copy.path))
    if added.paths:
        parts.append(_read(spark, place, *added.paths))
    return parts[0].unionByName(parts[1]) if len(parts) == 2 else parts[0]


def _read(spark: SparkSession, base: Path, *files: Path) -> DataFrame:
    paths = [_SPECIAL.sub(r"\\\g<0>", f"file:{one}") for one in files]
    rows = spark.read.schema(SCHEMA).option("basePath", f"file:{base}").parquet(*paths)
    return rows.select(*SCHEMA.names)


def in_memory(rows: DataFrame) -> DataFrame:
    """Return rows of `SCHEMA` as a local relation, which needs neither a job nor a file; or unchanged if too many."""
    found = rows.limit(IN_MEMORY + 1).toArrow()
    return rows if found.num_rows > IN_MEMORY else rows.sparkSession.createDataFrame(found, SCHEMA)


def _make(place: Path, version: int, rows: DataFrame) -> None:
    """Write a copy, durably and at once, and remove old ones."""
    digest = commit_digest(place, version)
    folder = _folder(place)
    if digest is None:
        return
    part = folder / f".{uuid.uuid4().hex}"
    try:
        rows.repartition(1).write.parquet(f"file:{part}")
        files = [one for one in part.iterdir() if one.is_file()]
        for one in (*files, part):
            sync(one)
        made = folder / f"{version:020d}.{_count(part)}.{digest}"
        if not made.exists():
            part.rename(made)
        sync(folder)
        _remove_old(folder)
    except OSError as error:
        raise TableRefused(f"{folder} cannot be written ({error}): make its directory writable") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_old(folder: Path) -> None:
    """Remove the copies that no query reads any more, and those that a killed process has not completed."""
    with contextlib.suppress(OSError):
        made = {one: one.stat().st_mtime for one in folder.iterdir()}
        copies = [one for one in made if not one.name.startswith(".")]
        last = max(copies, key=made.__getitem__, default=None)
        for one in made:
            if one not in copies or (one != last and made[one] < time.time() - KEEP):
                shutil.rmtree(one, ignore_errors=True)
