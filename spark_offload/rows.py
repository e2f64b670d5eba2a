"""From the files of segments to rows of the table, by Spark: nothing of it passes through Python.

Lines are split by an expression, which takes half the time that Spark's CSV reader does and has no idea of quotes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from edge.outbox.observation import DATE_TIME_STAMP, Cells, Context
from spark_offload.intake import Taken
from spark_offload.table import NUMBERS, PARTITION, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILES: Final = StructType(
    [
        StructField("file", StringType()),
        SCHEMA["gateway"],
        SCHEMA["epoch"],
        StructField("after", LongType()),
        StructField("group", IntegerType()),
        SCHEMA["replayed"],
    ]
)
_CONTEXTS: Final = StructType(
    [
        StructField("of_group", IntegerType()),
        StructField("number", IntegerType()),
        *(StructField(name, StringType()) for name in Context._fields),
    ]
)
_PATTERN: Final = re.compile(r"[][*?{}\\]")
_PER_TASK: Final = 250_000
"""Rows that are worth a task, and with it a file for each day that they are of."""

_EARLIEST: Final = -62_135_596_800_000_000
"""The year 1, microseconds since 1970: what dates of Python, and of most readers of the table, begin with."""
_LATEST: Final = 253_402_300_799_999_999
"""The year 9999, where they end. A time beyond has its text."""


def rows(spark: SparkSession, taken: Sequence[Taken]) -> DataFrame:
    """Rows of `spark_offload.table.SCHEMA`. A row that cannot be read fails the job."""
    whole = [one for one in taken if not one.manifest.tombstone]
    gone = [one for one in taken if one.manifest.tombstone]
    if not gone:
        return _observations(spark, whole)
    tombstones = spark.createDataFrame([_tombstone(one) for one in gone], SCHEMA)
    return _observations(spark, whole).unionByName(tombstones).coalesce(1) if whole else tombstones.coalesce(1)


def _observations(spark: SparkSession, taken: Sequence[Taken]) -> DataFrame:
    files, contexts = _shared(taken)
    known = F.broadcast(spark.createDataFrame(files, _FILES))
    told = F.broadcast(spark.createDataFrame(contexts, _CONTEXTS))
    cells = (
        spark.read.option("lineSep", "\n")
        .text([_address(one) for one in taken])
        .select(F.split("value", "\t").alias("cells"), F.substring_index("_metadata.file_path", "/", -3).alias("path"))
        .select(
            "path",
            F.get("cells", F.lit(0)).cast("long").alias("seq"),
            F.get("cells", F.lit(1)).cast("int").alias("context"),
            F.get("cells", F.lit(2)).cast("long").alias("time"),
            *(_cell(number, name) for number, name in enumerate(Cells._fields[1:], 3)),
        )
    )
    same = (F.col("group") == F.col("of_group")) & (
        F.when(F.col("quads").isNull(), F.col("context")) == F.col("number")
    )
    joined = cells.join(known, F.col("path") == F.col("file")).where("seq > after").join(told, same, "left")
    return joined.select(*(_column(name) for name in SCHEMA.names)).coalesce(_tasks(spark, taken))


def _column(name: str) -> Column:
    """A column of the table, from a row's cells, its context and its file."""
    fits = F.col("quads").isNull()
    match name:
        case "ts":
            return _moment().alias(name)
        case "date":
            return F.to_date(_moment()).alias(name)
        case "value":
            return F.when(_is_number(), F.col("value").try_cast("double")).alias(name)
        case "value_text":
            return F.when(fits, F.coalesce("value", F.lit(""))).alias(name)
        case "datatype":
            stranger = F.concat(F.lit("no context for a row of "), F.col("path"))
            return F.when(fits, F.coalesce(name, F.raise_error(stranger))).alias(name)
        case "time_datatype":
            return F.nullif(F.col(name), F.lit(DATE_TIME_STAMP)).alias(name)
        case "lost":
            return F.lit(None).cast("long").alias(name)
        case _:
            return F.col(name)


def _moment() -> Column:
    return F.timestamp_micros(F.least(F.greatest(F.col("time"), F.lit(_EARLIEST)), F.lit(_LATEST)))


def _is_number() -> Column:
    """Whether it is a numeric literal that is well formed."""
    well_formed = F.lit(False)
    for datatype, pattern in NUMBERS.items():
        well_formed = well_formed | ((F.col("datatype") == datatype) & F.col("value").rlike(rf"^({pattern})\z"))
    return well_formed


def _cell(number: int, name: str) -> Column:
    """What a cell says; null where it says nothing."""
    text = F.nullif(F.get("cells", F.lit(number)), F.lit(""))
    return F.when(F.contains(text, F.lit("\\")), _unescaped(text)).otherwise(text).alias(name)


def _unescaped(text: Column) -> Column:
    """Undo the escapes of `edge.outbox.segment`: between double backslashes a single one begins one of the others."""

    def between(part: Column) -> Column:
        for letter, meaning in (("t", "\t"), ("n", "\n"), ("r", "\r")):
            part = F.replace(part, F.lit(f"\\{letter}"), F.lit(meaning))
        return part

    return F.array_join(F.transform(F.split(text, r"\\\\"), between), "\\")


def _shared(taken: Sequence[Taken]) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Files and contexts. Contexts are told once for all segments of an outbox in which their numbers mean the same."""
    files: list[tuple[object, ...]] = []
    groups: list[dict[int, Context]] = []
    current: dict[tuple[str, str], int] = {}
    for one in taken:
        manifest = one.manifest
        group = current.get(one.segment.outbox)
        if group is None or any(groups[group].get(n, context) != context for n, context in manifest.contexts.items()):
            group = current[one.segment.outbox] = len(groups)
            groups.append({})
        groups[group].update(manifest.contexts)
        path = "/".join(one.segment.rows.parts[-3:])
        files.append((path, *one.segment.outbox, one.after, group, manifest.replayed))
    contexts: list[tuple[object, ...]] = [
        (n, number, *context) for n, group_ in enumerate(groups) for number, context in group_.items()
    ]
    return files, contexts


def _tasks(spark: SparkSession, taken: Sequence[Taken]) -> int:
    count = sum(one.manifest.last - one.after for one in taken)
    return max(1, min(-(-count // _PER_TASK), spark.sparkContext.defaultParallelism))


def _tombstone(one: Taken) -> tuple[object, ...]:
    time = min(max(one.manifest.end, _EARLIEST), _LATEST)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
    told = {
        "gateway": one.manifest.gateway,
        "epoch": one.manifest.epoch,
        "seq": one.manifest.last,
        "ts": moment,
        "replayed": one.manifest.replayed,
        "lost": one.manifest.last - one.after,
        PARTITION: moment.date(),
    }
    return tuple(told.get(name) for name in SCHEMA.names)


def _address(one: Taken) -> str:
    """The path of its rows, of which Spark makes no pattern."""
    return _PATTERN.sub(r"\\\g<0>", str(one.segment.rows.absolute()))
