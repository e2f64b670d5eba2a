"""Search for the segments that make a Spark job fail although their rows were found to be valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spark_offload.rows import rows
from spark_offload.segment_selection import SelectedSegment
from spark_offload.spark_errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def bad_segments(spark: SparkSession, taken: Sequence[SelectedSegment]) -> list[tuple[SelectedSegment, str]]:
    """Return the segments that Spark cannot read, with the first line of its error, by bisection.

    Empty if the cause is another one: a full disk of the table, or Spark that fails at whatever it is given.
    """
    found: list[tuple[SelectedSegment, str]] = []
    parts = [list(taken)]
    while parts:
        part = parts.pop()
        reason = _failure(partial(rows, spark, part))
        if reason and len(part) > 1:
            parts += [part[len(part) // 2 :], part[: len(part) // 2]]
        elif reason:
            found.append((part[0], f"Spark cannot read it: {reason}"))
    return [] if _failure(lambda: spark.range(1)) else found


def _failure(frame: Callable[[], DataFrame]) -> str:
    """Compute a DataFrame without storing it. Return the reason of a failure, or an empty text."""
    try:
        frame().write.format("noop").mode("overwrite").save()
    except Exception as error:  # noqa: BLE001 - Spark's errors have no common class
        return first_line(error)
    return ""
