"""Spark sessions: with Delta Lake, in UTC, on loopback unless the master is elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spark_offload import jars
from spark_offload.errors import MissingPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

_LOG = (Path(__file__).parent / "log4j2.properties").as_uri()


def session(
    master: str = LOCAL, *, name: str = "edge-history", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session on a cluster, or on this machine. `settings` are Spark's own, and go before ours.

    Raises `MissingPart` where Java, PySpark or the Delta jars are missing.
    """
    if not java():
        raise MissingPart("Spark needs Java 17 or newer. Install it (Debian: apt install openjdk-17-jre-headless)")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingPart("PySpark is not installed: pip install 'sepa-edge[spark]'") from error
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**defaults(local=master.startswith("local")), **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def defaults(*, local: bool) -> dict[str, str]:
    """The settings of every session of ours. Raises `MissingPart`."""
    settings = {
        "spark.jars": ",".join(map(str, jars.fetch())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        # Spark makes this directory, in the current one by default; nothing of ours is in it.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "spark-warehouse"),
        "spark.sql.parquet.compression.codec": "zstd",
        # Of what Spark takes by default, INT96, files have no ranges of time.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG}",
        # Else each column that Python makes asks where it is made: as many calls again, and plans of ours are large.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Groups that are kept in such a hash table; beyond, rows are sorted (MIN, MAX, and whatever collects).
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",
        # Delta reads its log in so many tasks; a history's log is small.
        "spark.databricks.delta.snapshotPartitions": "2",
        # A landing zone has many files, and looking at one takes no time: not worth tasks.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        # … and VACUUM lists files in so many; of the 10,000 by default nearly all would find nothing to do.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    }
    if local:
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return settings


def java() -> Path | None:
    """The Java that Spark will take."""
    home = os.environ.get("JAVA_HOME")
    if home and (program := Path(home) / "bin" / "java").exists():
        return program
    found = shutil.which("java")
    return Path(found) if found else None
