"""Atomic commit of an ingestion round: rows and positions together, exactly once, despite crashes and other ingesters.

A commit carries `txnVersion`, derived from the version that it follows. Delta skips or rejects a second commit after
the same version, whether it comes from another ingester or from a retry. When Delta skips a commit, the write still
appears to succeed. So `append` looks for its own run id in the table's log afterwards.
"""

from __future__ import annotations

import contextlib
import json
import time
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
from spark_offload.positions import commit_metadata, logged_commits, metadata
from spark_offload.table import LOG, PARTITION, directory, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APPLICATION: Final = "edge-history"
_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"
WAIT: Final = 600.0
"""Seconds for which maintenance, deletions and accepted gaps wait for a round of an ingester."""
_POLL: Final = 0.1
"""Seconds between two attempts to get a lock."""
_DAYS: Final = 8
"""Days for which a task writes all files at the same time. Rows of more days are sorted by day first, which is slower.
"""


def append(
    spark: SparkSession,
    path: str,
    rows: DataFrame,
    version: int,
    positions: Mapping[OutboxEpoch, int],
    note: Mapping[str, object] = MappingProxyType({}),
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
    for commit in logged_commits(spark, path):
        if (found := metadata(commit)) and found["run"] == run:
            made = int(commit["version"])
            flush(path, made)
            return made
    raise Overtaken(_overtaken(path))


@contextlib.contextmanager
def alone(spark: SparkSession, path: str, wait: float = 0.0) -> Iterator[None]:
    """Hold the exclusive write lock of a table on a local or mounted file system. Raises `TableBusy`, `TableRefused`.

    It waits up to `wait` seconds for the lock. A second lock makes waiting processes take turns: a process that needs
    the table again and again cannot keep the others out.

    Object stores reject the second of two concurrent commits; a file system does not.
    """
    busy = f"another edge-history ingest, maintain or delete writes to {path}: wait until it has ended"
    deadline = time.monotonic() + wait
    with contextlib.ExitStack() as held:
        with _locked(spark, path, "queue", deadline, busy):
            held.enter_context(_locked(spark, path, "lock", deadline, busy))
        yield


@contextlib.contextmanager
def maintaining(spark: SparkSession, path: str) -> Iterator[None]:
    """Hold the lock of maintenance and deletion, which ingesters do not need. Raises `TableBusy`, `TableRefused`."""
    busy = f"another edge-history maintain or delete works on {path}: wait until it has ended"
    with _locked(spark, path, "maintenance", 0.0, busy):
        yield


@contextlib.contextmanager
def _locked(spark: SparkSession, path: str, name: str, deadline: float, busy: str) -> Iterator[None]:
    """Hold the lock of a file next to the table, until a time of the monotonic clock. Raises `TableBusy`.

    The JVM of Spark holds the lock, because it is the process that writes, and it may live slightly longer than Python.
    """
    if not (place := directory(path)):
        yield
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = compat.open_file(spark, str(place.with_name(f".{place.name}.{name}")))
    except (OSError, Py4JJavaError) as error:
        raise TableRefused(f"the lock file next to {path} cannot be written: make {place.parent} writable") from error
    try:
        while not compat.try_lock(file):
            if time.monotonic() >= deadline:
                raise TableBusy(busy)
            time.sleep(_POLL)
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
