"""One commit of a round: rows and positions together, once, whatever dies and whoever else is at it.

A commit carries `txnVersion`, the version that it follows. A second one after the same version, by another ingester or
by this one again, is skipped or refused by Delta; so after writing it is looked up whether the commit is ours.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError

from spark_offload.errors import Overtaken, TableBusy, TableRefused
from spark_offload.landing import Outbox, sync
from spark_offload.positions import history, metadata, told
from spark_offload.table import PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APPLICATION: Final = "edge-history"
_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"
_DAYS: Final = 8
"""Of so few a task writes all files at the same time; rows of more are sorted by day first, which takes longer."""


def append(spark: SparkSession, path: str, rows: DataFrame, version: int, positions: Mapping[Outbox, int]) -> int:
    """Add rows to the table as it is at a version. Returns the version with them; they are on the disk then.

    Raises `Overtaken` where another ingester was first.
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
            .option("userMetadata", told(run, positions))
            .save(path)
        )
    except Exception as error:
        if "Concurrent" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
            raise Overtaken(_overtaken(path)) from error
        raise
    finally:
        spark.conf.unset(_WRITERS)
    for commit in history(spark, path):
        if (found := metadata(commit)) and found["run"] == run:
            made = int(commit["version"])
            _flush(path, made)
            return made
    raise Overtaken(_overtaken(path))


@contextlib.contextmanager
def alone(spark: SparkSession, path: str) -> Iterator[None]:
    """Nobody else writes to a table on this machine, or on a mounted disk. Raises `TableBusy`, `TableRefused`.

    Elsewhere the store refuses the second of two commits; a file system does not. The process that writes holds the
    lock, Spark's JVM: it may live a moment longer than Python.
    """
    if not (place := _local(path)):
        yield
        return
    jvm = spark._jvm
    assert jvm is not None  # noqa: S101
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = jvm.java.io.RandomAccessFile(str(place.with_name(f".{place.name}.lock")), "rw")
    except (OSError, Py4JJavaError) as error:
        raise TableRefused(f"nothing can be written beside {path}: make {place.parent} writable") from error
    try:
        if file.getChannel().tryLock() is None:
            raise TableBusy(f"another edge-history ingest or maintain writes to {path}: wait until it has ended")
        yield
    finally:
        with contextlib.suppress(OSError, Py4JError):  # where the JVM has ended, the lock went with it
            file.close()


def _flush(path: str, version: int) -> None:
    """Have a commit on the disk: Spark leaves that to the operating system, and gateways then delete what they have."""
    if not (place := _local(path)):
        return
    log = place / "_delta_log" / f"{version:020d}.json"
    added = [json.loads(action).get("add") for action in log.read_text().splitlines()]
    files = [place / unquote(one["path"]) for one in added if one]
    for file in (*files, *{file.parent for file in files}, log, log.parent, place, place.parent):
        sync(file)


def _local(path: str) -> Path | None:
    """The directory, where it is one."""
    if path.startswith("file:"):
        return Path(unquote(path.removeprefix("file:").replace("///", "/", 1)))
    return None if ":" in path else Path(path).absolute()


def _overtaken(path: str) -> str:
    return f"another ingester wrote to {path} first: it is looked at anew"
