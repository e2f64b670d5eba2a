"""The table of the history: one Delta table, a row an observation.

Rows are *wide*: the cells of a segment's row and of its context. The triples that they stand for are made when they
are asked for (`edge.outbox.observation`). There are three kinds of rows:

- an observation that the mapping stored: `series` is set, and the IRIs of its resources follow from it;
- one whose IRIs a client chose: `observation`, `result` and `instant` are set, `series` is not;
- one that does not fit: `quads` alone;

and tombstones, of which `lost` says how many observations up to `seq` the gateway dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from spark_offload.errors import TableRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType(), nullable=True),
        StructField("epoch", StringType()),
        StructField("seq", LongType()),
        StructField("ts", TimestampType()),  # when it was made, or else stored
        StructField("time_text", StringType()),  # where it is not `edge.outbox.observation.time_text(ts)`
        StructField("series", StringType()),
        StructField("observation", StringType()),
        StructField("result", StringType()),
        StructField("instant", StringType()),
        StructField("topic", StringType()),
        StructField("feature", StringType()),
        StructField("property", StringType()),
        StructField("sensor", StringType()),
        StructField("unit", StringType()),
        StructField("value", DoubleType()),  # of a numeric literal that is well formed
        StructField("value_text", StringType()),  # its lexical form
        StructField("datatype", StringType()),
        StructField("time_datatype", StringType()),  # null: xsd:dateTimeStamp
        StructField("graph", StringType()),  # null: the default graph
        StructField("quads", StringType()),
        StructField("replayed", BooleanType()),
        StructField("lost", LongType()),
        StructField("date", DateType()),  # of `ts`, UTC: the partition
    ]
)

PARTITION: Final = "date"

VERSION: Final = 1
"""Of the schema. Columns are added, never changed or taken away."""
_VERSION: Final = "edge.history.schema"

_DECIMAL: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_DOUBLE: Final = rf"{_DECIMAL}([eE][+-]?[0-9]+)?"
NUMBERS: Final = {
    XSD + "integer": "[+-]?[0-9]+",
    XSD + "decimal": _DECIMAL,
    XSD + "double": _DOUBLE,
    XSD + "float": _DOUBLE,
}
"""Datatypes whose literals have a `value`, and what these look like (XML Schema 1.1 part 2). INF and NaN have none."""

_PROPERTIES: Final = {
    _VERSION: str(VERSION),
    # Columns by whose ranges files are left out; each has something of nearly every sensor.
    "delta.dataSkippingStatsColumns": "gateway,epoch,seq,ts,observation,quads,lost",
    # Any reader of Delta tables can read it.
    "delta.enableDeletionVectors": "false",
    "delta.enableChangeDataFeed": "false",
}


def open_table(spark: SparkSession, path: str, version: int | None = None) -> DataFrame:
    """The table at a path (or URI that Spark knows), as it is or as it was at a version. Raises `TableRefused`."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    try:
        table = reader.load(path)
    except AnalysisException as error:
        if version is not None:
            raise TableRefused(f"there is no version {version} of the table {path}: edge-history status") from error
        raise TableRefused(_why_none(path)) from error
    if not {"gateway", "epoch", "seq"} <= set(table.columns):
        raise TableRefused(f"the table at {path} is no history: it has other columns")
    return table


def _why_none(path: str) -> str:
    place = Path(path)
    if place.is_file():
        return f"{path} is a file, and a table is a directory: name another one"
    if place.is_dir() and not (place / "_delta_log").exists() and any(place.iterdir()):
        return f"{path} has other files in it and is no Delta table: name another directory"
    return f"there is no table at {path}: edge-history ingest makes it"


def make_table(spark: SparkSession, path: str) -> None:
    """Make the table where there is none. Raises `TableRefused` where there is one of another schema."""
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in SCHEMA)
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {named(path)} ({columns}) USING delta PARTITIONED BY ({PARTITION})"
            f" TBLPROPERTIES ({properties})"
        )
    except AnalysisException as error:
        raise TableRefused(f"no table can be made at {path}: {str(error).splitlines()[0]}") from error
    schema = schema_version(spark, path)
    if schema < VERSION:
        raise TableRefused(f"the table at {path} has schema {schema}, an old one: edge-history maintain --table {path}")


def schema_version(spark: SparkSession, path: str) -> int:
    """Of the table. Raises `TableRefused` where it is newer than this program."""
    open_table(spark, path)
    properties = spark.sql(f"DESCRIBE DETAIL {named(path)}").collect()[0]["properties"]
    schema = int(properties.get(_VERSION, 0))
    if schema > VERSION:
        raise TableRefused(f"the table at {path} has schema {schema}, and this program knows {VERSION}: update it")
    return schema


def evolve(spark: SparkSession, path: str) -> list[str]:
    """Give an old table the columns and properties that it lacks. Returns the columns. Raises `TableRefused`."""
    schema = schema_version(spark, path)
    there = set(open_table(spark, path).columns)
    lacking = [field for field in SCHEMA if field.name not in there]
    if lacking:
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in lacking)
        spark.sql(f"ALTER TABLE {named(path)} ADD COLUMNS ({columns})")
    if lacking or schema < VERSION:
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
        spark.sql(f"ALTER TABLE {named(path)} SET TBLPROPERTIES ({properties})")
    return [field.name for field in lacking]


def named(path: str) -> str:
    """The table's name in SQL."""
    whole = path if ":" in path else str(Path(path).absolute())
    return f"delta.`{whole.replace('`', '``')}`"
