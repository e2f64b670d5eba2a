"""The newest rows of a table, kept in files next to it, so that queries for last times and values need not read it.

The directory `.NAME.newest-rows` next to the table has a few small files. Each contains the newest rows of one version
of the table; a reader adds the rows that the table got after this version. The files are only a cache: if the log does
not prove that the table has merely got more rows since then, queries read the whole table. So neither a kill between a
commit and its file nor a change by another program affects an answer.

Files are published and removed with the lock of the table. Spark reads and writes them like the table, so no process
holds their rows in memory. A table with too many newest rows has a file without rows, so that maintenance does not look
for them each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  conventional name

from spark_offload.commit import alone
from spark_offload.errors import HistoryError, TableRefused
from spark_offload.landing import sync
from spark_offload.log_changes import MOST_COMMITS, AddedFiles, added_after, commit_digest
from spark_offload.positions import logged_commits
from spark_offload.spark_errors import first_line
from spark_offload.table import SCHEMA, directory, open_table, properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION: Final = ("series", "topic", "feature", "property", "sensor", "unit", "graph")
"""Columns that describe an observation, apart from its number, its time and its value."""
_MOST_ROWS: Final = 1_000_000
"""Largest number of newest rows that are kept."""
_MOST_BYTES: Final = 64 << 20
"""Largest size of a file."""
_FILE: Final = 1_000
"""Number of rows that take as long to read as the opening of a file."""
_FEW: Final = 50_000
"""Cost of reading added files, in rows, below which the newest rows are not renewed."""
_PAUSE: Final = 600
"""Least number of seconds between two renewals, which limits the number of files. Near a limit, there is no pause."""
_MOST_ADDED: Final = 20_000_000
"""Number of added rows beyond which only maintenance keeps the newest rows. A round has at most 5 million rows."""
_READABLE: Final = 6 * 3_600
"""Seconds for which a file stays readable for queries that have begun before the next one was made."""
_LEAST: Final = 2
"""Number of files that stay in any case."""
_MOST_KEPT: Final = 256 << 20
"""Size of all files beyond which older ones are removed earlier."""
_LOOK_AGAIN: Final = 7 * 86_400
"""Seconds after which maintenance looks again at a table with too many newest rows."""
_NAME: Final = re.compile(r"([0-9]{20})\.([0-9]+)\.([0-9a-f]{32})\.([0-9a-f]{32})\.parquet")
"""Name of a file: the version of the table, the number of rows, and the halves of two SHA-256 digests, of the commit of
the version and of the file.
"""
_PART: Final = "part-"
"""Begin of the names of directories into which Spark writes files."""
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
    digest: str
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
    """Return rows of a version, among them all those of `newest`; None if the whole table must be read.

    They are in files that are readable for hours (`_READABLE`).
    """
    if (place := directory(path)) is None:
        return None
    for kept in _files(place):
        if kept.version > version or (added := added_after(place, kept.version, version, _MOST_ADDED)) is None:
            continue
        with contextlib.suppress(*_FAILURES):  # such as a damaged file
            return None if kept.rows > _MOST_ROWS else _with_added(spark, place, kept, added)
    return None


def renew(spark: SparkSession, path: str, version: int, *, soon: bool = False) -> list[str]:
    """Keep the newest rows of the newest version, if reading the added files costs as much as reading the kept rows.

    So the effort is proportional to the ingested rows. With `soon`, a single added file suffices, as it does at half of
    the limits `_MOST_ADDED` and `MOST_COMMITS`. The caller must hold the lock of the table. Returns the problem: it
    must end neither ingestion nor maintenance.
    """
    if (place := directory(path)) is None:
        return []
    try:
        # A new table has no kept rows, and all rows are added ones.
        for kept in (*_files(place), None):
            base, count = (-1, 0) if kept is None else (kept.version, kept.rows)
            if base <= version and (added := added_after(place, base, version, _MOST_ADDED)) is not None:
                cost = added.rows + _FILE * len(added.paths)
                due = cost >= max(count, _FEW) and (kept is None or not _is_recent(kept, _PAUSE))
                # Beyond these limits, only maintenance could renew them.
                due = due or soon or added.rows > _MOST_ADDED // 2 or version - base > MOST_COMMITS // 2
                if added.paths and due and count <= _MOST_ROWS and _readable(spark, path):
                    _publish(place, version, _written(place, newest(_with_added(spark, place, kept, added))))
                break
    except _FAILURES as error:
        return [_problem(path, error)]
    return []


def complete(spark: SparkSession, path: str, wait: float) -> list[str]:
    """Keep the newest rows of a table that has none of use, with a scan of the table. Returns the problem.

    The lock of the table is held only to publish the file; `wait` is the time in seconds to wait for it.
    """
    if (place := directory(path)) is None:
        return []
    try:
        version = _newest_version(spark, path)
        if newest_rows(spark, path, version) is not None or _too_many(place) or not _readable(spark, path):
            return []
        found = _written(place, newest(open_table(spark, path, version)))
        try:
            with alone(spark, path, wait):
                # Otherwise rows were deleted meanwhile: they must not be kept.
                if added_after(place, version, _newest_version(spark, path), _MOST_ADDED) is not None:
                    _publish(place, version, found)
        finally:
            found.discard()
    except _FAILURES as error:
        return [_problem(path, error)]
    return []


def without(spark: SparkSession, path: str, version: int, condition: str) -> Written | None:
    """Write the newest rows after a deletion of all rows that meet a condition of `deletions.py`; None if unknown."""
    place, found = directory(path), newest_rows(spark, path, version)
    if place is None or found is None:
        return None
    try:
        return _written(place, newest(found.where(f"NOT {condition}")))
    except _FAILURES:
        return None


def keep(path: str, version: int, written: Written) -> None:
    """Keep the newest rows of a version, if possible. The caller must hold the lock of the table."""
    if (place := directory(path)) is not None:
        with contextlib.suppress(*_FAILURES):
            _publish(place, version, written)


def forget(path: str, spared: Written | None = None) -> None:
    """Remove the kept rows of a table. The caller must hold the lock of the table. Raises `TableRefused`."""
    if (place := directory(path)) is None or not (folder := _folder(place)).is_dir():
        return
    try:
        for one in folder.iterdir():
            if spared is None or one != spared.part:
                _remove(one)
        sync(folder)
        if spared is None and not folder.is_symlink():
            folder.rmdir()
    except OSError as error:
        raise TableRefused(f"{folder} cannot be emptied ({error}): make it writable, and repeat") from error


@dataclass(frozen=True, slots=True)
class Written:
    """Newest rows that are not yet published."""

    part: Path
    """Directory with the file."""
    rows: int

    def discard(self) -> None:
        """Remove the file, unless it was published."""
        shutil.rmtree(self.part, ignore_errors=True)


def _written(place: Path, rows: DataFrame) -> Written:
    """Write rows into a new directory. Raises `_FAILURES`."""
    import pyarrow.parquet as pq

    folder = _folder(place)
    folder.mkdir(exist_ok=True)
    # The rows are those of the table, so the same users may read them.
    if folder.stat().st_mode != (mode := place.stat().st_mode):
        folder.chmod(mode & 0o7777)
    part = folder / f"{_PART}{uuid.uuid4().hex}"
    try:
        limited = rows.select(*SCHEMA.names).limit(_MOST_ROWS + 1)
        limited.coalesce(1).write.option("compression", "zstd").parquet(f"file:{part}")
        return Written(part, pq.read_metadata(_only(part)).num_rows)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _only(part: Path) -> Path:
    (found,) = part.glob("*.parquet")
    return found


def _publish(place: Path, version: int, written: Written) -> None:
    """Make a file durably one of the table, and remove those that are not used any more. Raises `OSError`."""
    digest, file, rows = commit_digest(place, version), _only(written.part), written.rows
    former = [kept.path for kept in _files(place) if kept.version == version]  # perhaps damaged
    if rows > _MOST_ROWS or file.stat().st_size > _MOST_BYTES:
        file.write_bytes(b"")
        rows = _MOST_ROWS + 1
    if digest is not None:
        sync(file)
        for one in former:
            one.unlink(missing_ok=True)
        file.replace(_folder(place) / f"{version:020d}.{rows}.{digest[:32]}.{_digest(file)[:32]}.parquet")
    written.discard()
    sync(_folder(place))
    _clean(place)


def _clean(place: Path) -> None:
    """Remove files that no query uses any more, and the remains of interrupted writes."""
    now, size = time.time(), 0
    for number, kept in enumerate(_files(place)):
        size += kept.path.stat().st_size
        if number >= _LEAST and (size > _MOST_KEPT or now - kept.path.stat().st_mtime > _READABLE):
            kept.path.unlink()
    used = {kept.path for kept in _files(place)}
    for one in _folder(place).iterdir():
        if one not in used and not (one.name.startswith(_PART) and now - one.stat().st_mtime < _READABLE):
            _remove(one)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _folder(place: Path) -> Path:
    real = place.resolve()  # also of a table behind a symbolic link
    return real.with_name(f".{real.name}.newest-rows")


def _files(place: Path) -> Iterator[_Kept]:
    """Yield the files that belong to the table, newest first. Another table there has other commits."""
    with contextlib.suppress(FileNotFoundError):
        for one in sorted(_folder(place).iterdir(), reverse=True):
            if (found := _NAME.fullmatch(one.name)) and (commit_digest(place, int(found[1])) or "")[:32] == found[3]:
                yield _Kept(int(found[1]), int(found[2]), found[4], one)


def _is_recent(kept: _Kept, seconds: float) -> bool:
    # A file of the future is from before the clock was set back.
    return 0 <= time.time() - kept.path.stat().st_mtime < seconds


def _too_many(place: Path) -> bool:
    """Return whether the newest rows were too many not long ago."""
    return any(kept.rows > _MOST_ROWS and _is_recent(kept, _LOOK_AGAIN) for kept in _files(place))


def _readable(spark: SparkSession, path: str) -> bool:
    """Return whether the files of the table contain exactly its rows, with all columns of the schema."""
    reader = properties(spark, path).get("delta.minReaderVersion", "")
    return reader == _READER and set(SCHEMA.names) <= set(open_table(spark, path).columns)


def _newest_version(spark: SparkSession, path: str) -> int:
    return int(logged_commits(spark, path, 1)[0]["version"])


def _with_added(spark: SparkSession, place: Path, kept: _Kept | None, added: AddedFiles) -> DataFrame:
    """Return the kept rows and those of added files. Raises `_FAILURES`."""
    parts = []
    if kept is not None:
        if _digest(kept.path)[:32] != kept.digest:
            raise ValueError(f"{kept.path} is damaged")
        parts.append(spark.read.schema(SCHEMA).parquet(_pattern(kept.path)))
    if added.paths:
        reader = spark.read.schema(SCHEMA).option("basePath", f"file:{place}")
        parts.append(reader.parquet(*map(_pattern, added.paths)).where(_WHOLE))
    return reduce(DataFrame.unionAll, parts)


def _pattern(path: Path) -> str:
    return _SPECIAL.sub(r"\\\g<0>", f"file:{path}")


def _problem(path: str, error: Exception) -> str:
    return f"the newest rows of {path} cannot be kept, so queries for them are slow: {first_line(error)}"
