"""The table of the history: one Delta table with one row for each observation.

Rows are *wide*: they have the cells of a segment's row and of its context. Queries generate the triples of a row on
demand (`edge.outbox.observation`). There are four kinds of rows:

- an observation that the mapping stored: `series` is set, and the IRIs of its resources are derived from it;
- an observation whose IRIs a client chose: `observation`, `result` and `instant` are set, `series` is null;
- an observation with other triples: only `quads` is set;
- a tombstone: `lost` is the number of observations up to `seq` that the gateway dropped, or that were deleted
  (`delete.py`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from edge.outbox.observation import XSD
from spark_offload import compat
from spark_offload.errors import TableRefused
from spark_offload.spark_errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType(), nullable=True),
        StructField("epoch", StringType()),
        StructField("seq", LongType()),
        StructField("ts", TimestampType()),  # time of the observation, or else of its storage
        StructField("time_text", StringType()),  # only if it differs from `edge.outbox.observation.time_text(ts)`
        StructField("series", StringType()),
        StructField("observation", StringType()),
        StructField("result", StringType()),
        StructField("instant", StringType()),
        StructField("topic", StringType()),
        StructField("feature", StringType()),
        StructField("property", StringType()),
        StructField("sensor", StringType()),
        StructField("unit", StringType()),
        StructField("value", DoubleType()),  # only for well-formed numeric literals
        StructField("value_text", StringType()),  # lexical form of the value
        StructField("datatype", StringType()),
        StructField("time_datatype", StringType()),  # null: xsd:dateTimeStamp
        StructField("graph", StringType()),  # null: the default graph
        StructField("quads", StringType()),
        StructField("replayed", BooleanType()),
        StructField("lost", LongType()),
        StructField("date", DateType()),  # date of `ts` in UTC: the partition
    ]
)

PARTITION: Final = "date"
LOG: Final = "_delta_log"
"""Directory of the table's log."""

VERSION: Final = 1
"""Version of the schema. New versions add columns; they never change or remove columns."""
_VERSION: Final = "edge.history.schema"

_DECIMAL: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_DOUBLE: Final = rf"{_DECIMAL}([eE][+-]?[0-9]+)?"
NUMBERS: Final = {
    XSD + "integer": "[+-]?[0-9]+",
    XSD + "decimal": _DECIMAL,
    XSD + "double": _DOUBLE,
    XSD + "float": _DOUBLE,
}
"""Datatypes whose literals have a `value`, with the pattern of well-formed ones (XML Schema 1.1 part 2).

INF and NaN have no `value`.
"""

_NAME: Final = re.compile(r"\w+(\.\w+){1,2}")
"""Name of a table in a catalog of Spark: with its schema, and optionally its catalog."""

_PROPERTIES: Final = {
    _VERSION: str(VERSION),
    # Columns with min/max statistics for data skipping. Others do not help: each file has values of nearly all sensors.
    "delta.dataSkippingStatsColumns": "gateway,epoch,seq,ts,observation,quads,lost",
    # Without these features all readers of Delta tables can read the table.
    "delta.enableDeletionVectors": "false",
    "delta.enableChangeDataFeed": "false",
}


def location(spark: SparkSession, table: str | os.PathLike[str]) -> str:
    """Return the path or URI of a table. A text such as `catalog.schema.observations` may be its name in a catalog.

    It is a path if there is such a file or directory, or no such table in the catalog. Raises `TableRefused`.
    """
    path = os.fspath(table)
    if not isinstance(table, str):
        return path if ":" in path else str(Path(path).absolute())
    if not _NAME.fullmatch(path) or Path(path).exists():
        return path
    try:
        if not spark.catalog.tableExists(path):
            return path
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {_quoted(path)}").collect()
    except AnalysisException:  # the catalog does not exist
        return path
    except Py4JJavaError as error:
        raise TableRefused(f"the catalog of {path} does not answer ({first_line(error)}): give the path") from error
    found = {row["col_name"]: row["data_type"] for row in described}
    if found.get("Provider", "").lower() != "delta" or not found.get("Location"):
        raise TableRefused(f"{path} is not a Delta table with a location: give the path of a table")
    place = directory(found["Location"])
    return found["Location"] if place is None else str(place)


def open_table(spark: SparkSession, table: str | os.PathLike[str], version: int | None = None) -> DataFrame:
    """Open the newest or a given version of a table: a path, a URI, or a name in a catalog. Raises `TableRefused`."""
    path = location(spark, table)
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    try:
        rows = reader.load(path)
    except AnalysisException as error:
        if version is not None:
            raise TableRefused(
                f"the table {path} has no version {version}: edge-history status shows the newest"
            ) from error
        raise TableRefused(why_none(path)) from error
    if not {"gateway", "epoch", "seq"} <= set(rows.columns):
        raise TableRefused(f"the table at {path} is not a history: it has other columns")
    return rows


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def why_none(path: str) -> str:
    """Return why there is no table at a path."""
    place = Path(path)
    if place.is_file():
        return f"{path} is a file: give the directory of a table"
    if place.is_dir() and not (place / LOG).exists() and any(place.iterdir()):
        return f"{path} is not a Delta table, and has other files: give another directory"
    return f"table {path} does not exist; `edge-history ingest` creates it"


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether there is a Delta table at a path."""
    return _empty_log(path) is None and compat.is_delta_table(spark, path)


def directory(path: str) -> Path | None:
    """Return the directory of a table on a file system, or None for other URIs."""
    if path.startswith("file:"):
        return Path(unquote(path.removeprefix("file:").replace("///", "/", 1)))
    return None if ":" in path else Path(path).absolute()


def _empty_log(path: str) -> Path | None:
    """Return the log directory if it has no commit: a full disk or a kill ended the creation of the table.

    Delta takes such a directory for a table, and does not create one there. Its first commit may be an empty file, or a
    temporary one. Any other file, such as a checkpoint, belongs to a table.
    """
    place = directory(path)
    log = None if place is None else place / LOG
    if log is None or not log.is_dir():
        return None
    return None if any(_is_commit(file) for file in log.rglob("*") if not file.is_dir()) else log


def _is_commit(file: Path) -> bool:
    temporary = file.name.startswith(".") or file.suffix in (".tmp", ".crc")
    return not temporary and (file.name != f"{0:020d}.json" or file.stat().st_size > 0)


def _remove_empty_log(path: str) -> None:
    if (log := _empty_log(path)) is not None:
        # Not with everything below it: a file that appears meanwhile must not be deleted.
        for file in sorted(log.rglob("*"), reverse=True):
            if file.is_dir():
                file.rmdir()
            elif not _is_commit(file):
                file.unlink()
        log.rmdir()


def make_table(spark: SparkSession, path: str) -> None:
    """Create the table if it does not exist. Raises `TableRefused` if it exists with another schema version."""
    _remove_empty_log(path)
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in SCHEMA)
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {named(path)} ({columns}) USING delta PARTITIONED BY ({PARTITION})"
            f" TBLPROPERTIES ({_properties()})"
        )
    except AnalysisException as error:
        raise TableRefused(f"the table at {path} cannot be created: {first_line(error)}") from error
    schema = schema_version(spark, path)
    if schema < VERSION:
        raise TableRefused(
            f"the table at {path} has the old schema {schema}: migrate it with edge-history maintain --table {path}"
        )


def schema_version(spark: SparkSession, path: str) -> int:
    """Return the schema version of a table. Raises `TableRefused` if it is newer than this program supports."""
    open_table(spark, path)
    schema = int(properties(spark, path).get(_VERSION, 0))
    if schema > VERSION:
        raise TableRefused(
            f"the table at {path} has schema {schema}, and this program supports {VERSION}: update the program"
        )
    return schema


def properties(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the properties of a table."""
    # DESCRIBE DETAIL would count the files of the table with a Spark job over its log.
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {named(path)}").collect()}


def _properties() -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())


def evolve(spark: SparkSession, path: str) -> list[str]:
    """Migrate a table to the current schema. Returns the names of the added columns. Raises `TableRefused`."""
    schema = schema_version(spark, path)
    there = set(open_table(spark, path).columns)
    lacking = [field for field in SCHEMA if field.name not in there]
    if lacking:
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in lacking)
        spark.sql(f"ALTER TABLE {named(path)} ADD COLUMNS ({columns})")
    if lacking or schema < VERSION:
        spark.sql(f"ALTER TABLE {named(path)} SET TBLPROPERTIES ({_properties()})")
    return [field.name for field in lacking]


def named(path: str) -> str:
    """Return the SQL name of the table at a path or URI."""
    whole = path if ":" in path else str(Path(path).absolute())
    return f"delta.`{whole.replace('`', '``')}`"
