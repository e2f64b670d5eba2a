"""Spark sessions with Delta Lake, in UTC. With a local master they listen only on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spark_offload import compat, jars
from spark_offload.errors import MissingPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

_STACK = "-Xss8m"
"""Java option for the size of a thread's stack. The system reserves only what is in use."""
_LOG = (Path(__file__).parent / "log4j2.properties").as_uri()


def session(
    master: str = LOCAL, *, name: str = "edge-history", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session on a cluster or on this machine. `settings` are Spark settings, which override `defaults`.

    Raises `MissingPart` if Java, PySpark or the Delta jars are missing.
    """
    if not java():
        raise MissingPart("Spark needs Java 17 or newer. Install it (Debian: apt install openjdk-17-jre-headless)")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingPart(
            "PySpark is not installed. Install the wheel of a release with its extra (pip install "
            "'./sepa_edge-VERSION-py3-none-any.whl[spark]'), or a clone (pip install '.[spark]')"
        ) from error
    if master.startswith("local"):
        # Otherwise workers run `python3` of the PATH, which may have neither this package nor its libraries.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**defaults(local=master.startswith("local")), **(settings or {})}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    compat.remember_classes(made)
    return made


def defaults(*, local: bool) -> dict[str, str]:
    """Return the Spark settings of all sessions. Raises `MissingPart`."""
    settings = {
        "spark.jars": ",".join(map(str, jars.fetch())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        # Spark creates this directory, by default in the working directory. The history does not use it.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "spark-warehouse"),
        "spark.sql.parquet.compression.codec": "zstd",
        # INT96, Spark's default, has no min/max statistics, which queries by time need to skip files.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Regular expressions need stack for each repetition of a group.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG} {_STACK}",
        "spark.executor.extraJavaOptions": _STACK,
        # Otherwise each column that Python creates records its call site, which doubles the calls to the JVM.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Groups in a hash table of object aggregates (MIN and MAX of terms, collect); with more, Spark sorts the rows.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",
        # Tasks that read the Delta log. The log of a history is small.
        "spark.databricks.delta.snapshotPartitions": "2",
        # List the many small files of a landing zone in the driver: tasks would cost more than they save.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        # Tasks in which VACUUM lists files. Nearly all of the 10,000 by default would be empty.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    }
    if local:
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        # As Java by default. Spark's default of 1 GiB is too little for medians of thousands of groups.
        settings["spark.driver.memory"] = f"{max(_memory() // 4, 1 << 30) >> 20}m"
    return settings


def _memory() -> int:
    """Return the memory of this machine or of its control group, in bytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # without a limit, the file contains `max`
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return machine


@contextlib.contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a time."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, former in before.items():
            spark.conf.unset(name) if former is None else spark.conf.set(name, former)


def java() -> Path | None:
    """Return the Java program that Spark will use, or None."""
    home = os.environ.get("JAVA_HOME")
    if home and (program := Path(home) / "bin" / "java").exists():
        return program
    found = shutil.which("java")
    return Path(found) if found else None
