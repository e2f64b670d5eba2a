"""Backtests: the stored observations of gateways are played through a gateway's engine, in Spark tasks.

A task takes the rows of one gateway after the other, sorted by Spark (on disk if they are many), and holds one batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyoxigraph as ox
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from edge.backtest.change import Change
from edge.backtest.program import Program
from edge.backtest.replay import replay, variables
from edge.backtest.stored_value import StoredValue
from edge.outbox.observation import DATE_TIME_STAMP, STRING, XSD
from edge.protocol.errors import EdgeError
from spark_offload.errors import BacktestRefused, GatewayRefused
from spark_offload.table import open_table
from spark_offload.totals import EARLIEST
from spark_offload.triples import literal, time_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OWN: Final = ("_gateway", "_time", "_number", "_change")
"""Columns of the result in front of those of the variables: see `edge.backtest.change.Change`."""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ORDER: Final = ("ts", "epoch", "seq")
_VALUE: Final = ("series", "value_text", "datatype", "unit", "feature", "property", "sensor", "topic")
"""Columns of a stored value after its time, in the order of `StoredValue`."""
_NAMED: Final = 10
"""Gateways of the table that an error names."""
_BATCH: Final = 10_000
"""Rows of the result that a task gives to Spark at once."""


def backtest(
    spark: SparkSession,
    table: str | os.PathLike[str] | DataFrame,
    program: Program,
    begin: datetime,
    end: datetime,
    *,
    gateways: Sequence[str] = (),
    context: Sequence[ox.Quad] = (),
) -> DataFrame:
    """Return what gateways would have reported from `begin` until before `end` (aware).

    The columns are `OWN`, then one of terms in N-Triples for each variable. The rows of a gateway are in order.
    `gateways`: their names; empty for all. `context`: see `edge.backtest.replay.replay`.
    Raises `BacktestRefused` if the engine refuses the program, `GatewayRefused` for names that are not in the table,
    and `TableRefused`.
    """
    names = result_variables(program)
    rows = open_table(spark, table) if isinstance(table, (str, os.PathLike)) else table
    if gateways:
        rows = _of_gateways(rows, gateways)
    # A number, because Spark may merge partitions that it counts itself, and then one task plays all gateways.
    tasks = 1 if len(set(gateways)) == 1 else int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    values = _values(rows, program, begin, end, tasks)
    schema = StructType(
        [
            StructField("_gateway", StringType()),
            StructField("_time", TimestampType()),
            StructField("_number", LongType()),
            StructField("_change", StringType()),
            *(StructField(name, StringType()) for name in names),
        ]
    )
    lines = [str(quad) for quad in context]
    play = _played(program, _micros(begin), _micros(end), lines, names)
    return values.mapInArrow(play, schema)


def result_variables(program: Program) -> tuple[str, ...]:
    """Return the variables of a program. Raises `BacktestRefused`, also for names that the result needs itself."""
    try:
        names = tuple(variables(program))
    except EdgeError as error:
        raise BacktestRefused(error.description) from error
    if reserved := [name for name in names if name in OWN]:
        raise BacktestRefused(f"the result has a column {reserved[0]} of its own: rename the variable ?{reserved[0]}")
    # Spark does not tell columns apart by upper and lower case.
    folded = [name.casefold() for name in names]
    if same := [name for name in names if folded.count(name.casefold()) > 1]:
        raise BacktestRefused(
            f"the names of {' and '.join(f'?{name}' for name in same)} differ only in case: rename one"
        )
    return names


def _of_gateways(rows: DataFrame, gateways: Sequence[str]) -> DataFrame:
    """Return the rows of gateways. Raises `GatewayRefused` if one has none."""
    chosen = rows.where(F.col("gateway").isin(*gateways))
    absent = sorted(set(gateways) - {row["gateway"] for row in chosen.select("gateway").distinct().collect()})
    if absent:
        known = rows.where(F.col("gateway").isNotNull()).select("gateway").distinct().orderBy("gateway")
        names = [row["gateway"] for row in known.limit(_NAMED + 1).collect()]
        more = ", ..." if len(names) > _NAMED else ""
        has = f"it has {', '.join(names[:_NAMED])}{more}" if names else "it has none"
        raise GatewayRefused(f"the table has no gateway {absent[0]}; {has}")
    return chosen


def _values(rows: DataFrame, program: Program, begin: datetime, end: datetime, tasks: int) -> DataFrame:
    """Return the values to play: those of the period and of the windows before it, and the last ones before these.

    Sorted by gateway and time; all those of a gateway are in one of the partitions, of which there is one for a task.
    """
    wanted = ("gateway", *_ORDER, *_VALUE)
    lead = _BEGINNING + max(_micros(begin) - program.lead, EARLIEST) * _MICROSECOND
    # Only values of mappings were in the live graph: client data of the history and tombstones were not.
    mapped = rows.where(F.col("series").isNotNull() & F.col("quads").isNull() & F.col("lost").isNull())
    period = mapped.where(_between(lead, end)).select(*wanted)
    newest = F.max_by(F.struct(*wanted), F.struct(*_ORDER)).alias("newest")
    before = mapped.where(_between(None, lead)).groupBy("gateway", "series").agg(newest).select("newest.*")
    together = period.unionByName(before).repartition(tasks, "gateway").sortWithinPartitions("gateway", *_ORDER)
    return together.select("gateway", F.unix_micros("ts").alias("time"), *_VALUE)


def _between(begin: datetime | None, end: datetime) -> Any:  # noqa: ANN401  a Column, which PySpark has twice
    # The condition on `date` lets Spark skip whole partitions.
    condition = (F.col("ts") < F.lit(end)) & (F.col("date") <= F.lit(end.astimezone(UTC).date()))
    if begin is None:
        return condition
    return condition & (F.col("ts") >= F.lit(begin)) & (F.col("date") >= F.lit(begin.astimezone(UTC).date()))


def _micros(time: datetime) -> int:
    return (time - _BEGINNING) // _MICROSECOND


def _played(
    program: Program, begin: int, end: int, context: Sequence[str], names: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task. It runs in another process, so it holds only texts and numbers."""

    def play(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        quads: list[ox.Quad] | None = None  # parsed only if the task has a gateway: many tasks have none
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        for gateway, of_gateway in groupby(rows, itemgetter(0)):
            values = (StoredValue(*row[1:]) for row in of_gateway)
            if quads is None:
                lines = "".join(f"{line} .\n" for line in context)
                quads = list(ox.parse(lines, ox.RdfFormat.N_QUADS, lenient=True))
            try:
                yield from _batches(gateway, replay(program, values, begin, end, quads), names)
            except EdgeError as error:
                # The command prints the last line of a worker's traceback.
                reason = " ".join(error.description.split())
                raise BacktestRefused(f"the backtest of the gateway {gateway} failed: {reason}") from None
            except Exception as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                raise BacktestRefused(f"the backtest of the gateway {gateway} failed: {reason}") from error

    return play


def _batches(gateway: str, changes: Iterable[Change], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Convert the changes of a gateway to batches of the result, of bounded size."""
    import pyarrow as pa

    texts = [pa.field(name, pa.string()) for name in names]
    schema = pa.schema(
        [
            pa.field("_gateway", pa.string()),
            pa.field("_time", pa.timestamp("us", tz="UTC")),
            pa.field("_number", pa.int64()),
            pa.field("_change", pa.string()),
            *texts,
        ]
    )
    for some in _grouped(changes, _BATCH):
        columns: list[list[object]] = [
            [gateway] * len(some),
            [each.time for each in some],
            [each.number for each in some],
            [each.kind for each in some],
        ]
        for place in range(len(names)):
            terms = (each.row[place] if each.row else None for each in some)
            columns.append([None if term is None else str(term) for term in terms])
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _grouped(changes: Iterable[Change], size: int) -> Iterator[list[Change]]:
    """Divide changes into lists. (`itertools.batched` is new in Python 3.12.)"""
    changes = iter(changes)
    while some := list(islice(changes, size)):
        yield some


def as_terms(found: DataFrame) -> DataFrame:
    """Return the result with terms of RDF in all columns, as solutions of a query have them."""
    own = [
        literal(F.col("_gateway"), F.lit(STRING)),
        literal(time_text(F.col("_time")), F.lit(DATE_TIME_STAMP)),
        literal(F.col("_number").cast("string"), F.lit(XSD + "integer")),
        literal(F.col("_change"), F.lit(STRING)),
    ]
    named = [term.alias(name) for term, name in zip(own, OWN, strict=True)]
    return found.select(*named, *(F.col(f"`{name}`") for name in found.columns[len(OWN) :]))
