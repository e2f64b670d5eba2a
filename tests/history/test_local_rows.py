"""Rows of this process as a DataFrame."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import DateType, DoubleType, IntegerType, LongType, StringType, StructType, TimestampType

from spark_offload.local_rows import local_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    StructType()
    .add("text", StringType())
    .add("count", IntegerType())
    .add("seq", LongType())
    .add("value", DoubleType())
    .add("ts", TimestampType())
    .add("day", DateType())
)
ROWS = [
    ("é\t\\\0", 1, 1 << 62, 0.5, datetime(2026, 1, 1, 12, 0, 0, 1, UTC), date(9999, 12, 31)),
    (None, None, None, None, None, None),
    ("", -1, -(1 << 63), float("inf"), datetime(1, 1, 1, tzinfo=UTC), date(1, 1, 1)),
]


def micros(time: datetime | None) -> int | None:
    return None if time is None else (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize("rows", [ROWS, ROWS[1:2], []])
def test_rows_keep_types_values_and_order_without_a_python_worker(spark: SparkSession, monkeypatch, rows) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python")
    frame = local_frame(spark, rows, SCHEMA)
    assert frame.schema == SCHEMA
    found = frame.selectExpr("text", "count", "seq", "value", "unix_micros(ts) ts", "day").collect()
    assert [tuple(one) for one in found] == [(*row[:4], micros(row[4]), row[5]) for row in rows]
