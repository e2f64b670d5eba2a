"""Atomic commit of an ingestion round: rows and positions together, exactly once, despite crashes and other ingesters.

A commit carries `txnVersion`, derived from the version that it follows. Delta skips or rejects a second commit after
the same version, whether it comes from another ingester or from a retry. When Delta skips a commit, the write still
appears to succeed. So `append` looks for its own run id in the table's log afterwards.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError

from spark_offload import compat
from spark_offload.errors import Overtaken, TableBusy, TableRefused
from spark_offload.landing import OutboxEpoch, sync
from spark_offload.positions import commit_metadata, history, metadata
from spark_offload.table import LOG, PARTITION, directory, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APPLICATION: Final = "edge-history"
_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"
_DAYS: Final = 8
"""Days for which a task writes all files at the same time. Rows of more days are sorted by day first, which is slower.
"""


def append(
    spark: SparkSession,
    path: str,
    rows: DataFrame,
    version: int,
    positions: Mapping[OutboxEpoch, int],
    note: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Append rows to a version of the table. Returns the new version, which is durable then.

    `positions` are the last numbers of all outboxes after this commit; `note` is stored with them. Raises `Overtaken`
    if another ingester committed first.
    """
    run = uuid.uuid4().hex
    try:
        spark.conf.set(_WRITERS, _DAYS)
        (
            rows.write.format("delta")
            .mode("append")
            .partitionBy(PARTITION)
            .option("txnAppId", _APPLICATION)
            .option("txnVersion", version + 1)
            .option("userMetadata", commit_metadata(run, positions, note))
            .save(path)
        )
    except Exception as error:
        if "Concurrent" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
            raise Overtaken(_overtaken(path)) from error
        raise
    finally:
        # The setting belongs to the session, with which callers may write other tables.
        spark.conf.unset(_WRITERS)
    # Delta skips a commit whose txnVersion is not new, and reports success: only the run id proves that it is ours.
    for commit in history(spark, path):
        if (found := metadata(commit)) and found["run"] == run:
            made = int(commit["version"])
            flush(path, made)
            return made
    raise Overtaken(_overtaken(path))


@contextlib.contextmanager
def alone(spark: SparkSession, path: str) -> Iterator[None]:
    """Hold the exclusive write lock of a table on a local or mounted file system. Raises `TableBusy`, `TableRefused`.

    Object stores reject the second of two concurrent commits; a file system does not. The JVM of Spark holds the lock,
    because it is the process that writes, and it may live slightly longer than Python.
    """
    if not (place := directory(path)):
        yield
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = compat.open_file(spark, str(place.with_name(f".{place.name}.lock")))
    except (OSError, Py4JJavaError) as error:
        raise TableRefused(f"the lock file next to {path} cannot be written: make {place.parent} writable") from error
    try:
        if file.getChannel().tryLock() is None:
            raise TableBusy(f"another edge-history ingest or maintain writes to {path}: wait until it has ended")
        yield
    finally:
        with contextlib.suppress(OSError, Py4JError):  # where the JVM has ended, the lock went with it
            file.close()


def flush_table(spark: SparkSession, path: str) -> None:
    """Sync all files of the newest version, and the log. Raises `TableRefused`.

    After a power cut, the newest version must be complete when the files of older ones were removed.
    """
    if not (place := directory(path)):
        return
    files = [_file(uri) for uri in open_table(spark, path).inputFiles()]
    log = place / LOG
    own = [file for file in log.rglob("*") if file.is_file()]
    folders = {file.parent for file in (*files, *own)}
    for each in (*files, *own, *sorted(folders), log, place, place.parent):
        sync(each)


def _file(uri: str) -> Path:
    """Return the path of a file of the table. Spark's URIs may have escapes."""
    plain = Path("/" + uri.removeprefix("file:").lstrip("/"))
    return plain if plain.exists() else Path(unquote(str(plain)))


def flush(path: str, version: int) -> None:
    """Sync a commit to the disk. Spark does not do so, and gateways delete their data after the acknowledgement."""
    if not (place := directory(path)):
        return
    log = place / LOG / f"{version:020d}.json"
    added = [json.loads(action).get("add") for action in log.read_text().splitlines()]
    files = [place / unquote(one["path"]) for one in added if one]
    for file in (*files, *{file.parent for file in files}, log, log.parent, place, place.parent):
        sync(file)


def _overtaken(path: str) -> str:
    return f"another ingester wrote to {path} first: retrying with the new version"
