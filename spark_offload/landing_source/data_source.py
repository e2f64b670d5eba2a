"""The data source `sepa` of Spark (Python Data Source API of Spark 4.2), for batches and for streams.

A row has the schema of the table. Rows are validated on the driver, as the ingester does before a commit, and are
converted in tasks. The offset of a stream is the last number of each outbox, so that it reads each observation once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_offload.errors import LandingRefused
from spark_offload.landing import OutboxEpoch
from spark_offload.landing_source.pushdown import SliceConditions
from spark_offload.landing_source.segment_rows import batches
from spark_offload.landing_source.slices import LandingSlices, Slice, content
from spark_offload.table import LOG, SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_PER_TASK: Final = 100_000
"""Rows of a task, except for a single segment with more."""
_ALL: Final = 10**18
"""Above all numbers of observations."""


def register(spark: SparkSession) -> None:
    """Register the data source `sepa` in a session, and enable the push-down of filters that it uses."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(LandingSource)


class LandingSource(DataSource):
    """Observations in a landing zone.

    Options: `path`, the directory; `startingOffsets`: `acknowledged` (default: the observations after those in the
    table) or `earliest` (all in the landing zone); `failOnDataLoss` (default: true); `maxRowsPerTrigger` for streams.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sepa"

    def schema(self) -> StructType:
        """Return the schema of the table."""
        return SCHEMA

    def reader(self, schema: StructType) -> LandingReader:
        """Return a reader. Raises `LandingRefused`."""
        return LandingReader(LandingOptions.of(self.options))

    def streamReader(self, schema: StructType) -> LandingStreamReader:  # noqa: N802
        """Return a reader of a stream. Raises `LandingRefused`."""
        return LandingStreamReader(LandingOptions.of(self.options))


@dataclass(frozen=True)
class LandingOptions:
    """Options of the data source."""

    folder: Path
    earliest: bool
    fail_on_data_loss: bool
    most: int | None
    """Rows of a batch of a stream; None: without a limit."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> LandingOptions:
        """Parse the options. Raises `LandingRefused`."""
        folder = Path(options.get("path", "").removeprefix("file:")).absolute()
        if "path" not in options:
            raise LandingRefused("the landing zone has no path: load(PATH)")
        if (folder / LOG).is_dir():
            raise LandingRefused(f'{folder} is a table, and not a landing zone: spark.read.format("delta").load(PATH)')
        starts = _option(options, "startingOffsets", "acknowledged", "earliest")
        fails = _option(options, "failOnDataLoss", "true", "false")
        most = options.get("maxRowsPerTrigger")
        if most is not None and not (most.isascii() and most.isdigit() and int(most) > 0):
            raise LandingRefused(f"maxRowsPerTrigger is {most!r}: give a number of rows above 0")
        return cls(folder, starts == "earliest", fails == "true", None if most is None else int(most))

    def slices(self) -> LandingSlices:
        """Open the landing zone. Raises `LandingRefused`."""
        return LandingSlices(self.folder, fail_on_data_loss=self.fail_on_data_loss)


@dataclass
class SlicePartition(InputPartition):
    """Slices that one task reads."""

    slices: tuple[Slice, ...]

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises `LandingRefused`, `SegmentDamaged`, `OSError`."""
        for one in self.slices:
            yield from batches(one.manifest, content(one), one.after, one.upto)


class LandingReader(DataSourceReader):
    """Reader of the observations that are in a landing zone now."""

    def __init__(self, options: LandingOptions) -> None:
        """Open the landing zone. Raises `LandingRefused`."""
        self._options = options
        self._slices = options.slices()
        self._conditions = SliceConditions()

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Skip segments by their gateway and times. Yields all filters: Spark evaluates them on the rows."""
        for one in filters:
            self._conditions.add(one)
            yield one

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions. Raises `LandingRefused`."""
        acknowledged = self._slices.acknowledged()
        starts = self._slices.earliest() if self._options.earliest else acknowledged
        return _partitions(
            one
            for outbox in self._slices.outboxes()
            if self._conditions.allow_outbox(outbox)
            for one in self._slices.after(outbox, starts.get(outbox, 0), acknowledged.get(outbox, 0), _ALL)[0]
            if self._conditions.allow(one)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Raises `LandingRefused`, `SegmentDamaged`, `OSError`."""
        assert isinstance(partition, SlicePartition)  # noqa: S101
        return partition.read()


class LandingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of the observations that arrive in a landing zone. An offset has the last number of each outbox."""

    def __init__(self, options: LandingOptions) -> None:
        """Open the landing zone. Raises `LandingRefused`."""
        self._options = options
        self._slices = options.slices()
        self._ends: dict[OutboxEpoch, int] | None = None
        """Last numbers that a query with the trigger `availableNow` reads."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the position at which a query without a checkpoint begins."""
        return _offset(self._slices.earliest() if self._options.earliest else self._slices.acknowledged())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit for a batch."""
        return ReadAllAvailable() if self._options.most is None else ReadMaxRows(self._options.most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what is in the landing zone now."""
        self._ends = self._slices.ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the position after the next batch. Raises `LandingRefused`."""
        positions = _positions(start)
        acknowledged = self._slices.acknowledged()
        ends = self._slices.ends() if self._ends is None else self._ends
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else _ALL
        after = dict(positions)
        pending = {outbox: end - positions.get(outbox, 0) for outbox, end in ends.items()}
        # The largest backlog first: with fewer rows than outboxes, all of them still get their turn.
        queue = sorted((one for one in pending if pending[one] > 0), key=lambda one: -pending[one])
        share = -(-left // max(1, len(queue)))
        for outbox in queue:
            position = positions.get(outbox, 0)
            upto = min(ends[outbox], position + min(share, left))
            slices, after[outbox] = self._slices.after(outbox, position, acknowledged.get(outbox, 0), upto)
            left -= sum(one.rows for one in slices)
        return _offset(after)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the partitions of a batch. Raises `LandingRefused`."""
        before = _positions(start)
        acknowledged = self._slices.acknowledged()
        chosen: list[Slice] = []
        for outbox, upto in _positions(end).items():
            position = before.get(outbox, 0)
            if position < upto:
                slices, reached = self._slices.after(outbox, position, acknowledged.get(outbox, 0), upto)
                if reached < upto:
                    raise LandingRefused(
                        f"observations {reached + 1:,} to {upto:,} of {outbox} have left the landing zone"
                        f" {self._options.folder}: start the query again when their gateway has sent them again"
                    )
                chosen += slices
        return _partitions(chosen)

    def commit(self, end: dict[str, int]) -> None:
        """Free the memory of the segments of a batch."""
        self._slices.forget(_positions(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Raises `LandingRefused`, `SegmentDamaged`, `OSError`."""
        assert isinstance(partition, SlicePartition)  # noqa: S101
        return partition.read()


def _partitions(slices: Iterable[Slice]) -> list[InputPartition]:
    """Group slices for tasks. Returns at least one partition, which Spark requires."""
    groups: list[list[Slice]] = [[]]
    rows = 0
    for one in slices:
        if groups[-1] and rows + one.rows > _PER_TASK:
            groups.append([])
            rows = 0
        groups[-1].append(one)
        rows += one.rows
    return [SlicePartition(tuple(group)) for group in groups]


def _offset(positions: Mapping[OutboxEpoch, int]) -> dict[str, int]:
    return {str(outbox): last for outbox, last in sorted(positions.items())}


def _positions(offset: Mapping[str, int]) -> dict[OutboxEpoch, int]:
    return {OutboxEpoch(*name.split("/")): last for name, last in offset.items()}


def _option(options: Mapping[str, str], name: str, *values: str) -> str:
    """Return the value of an option, by default the first. Raises `LandingRefused`."""
    value = options.get(name, values[0])
    if value.lower() not in values:
        raise LandingRefused(f"{name} is {value!r}: give {' or '.join(values)}")
    return value.lower()
