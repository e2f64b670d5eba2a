"""The data source `sepa` of Spark (Python Data Source API of Spark 4.2), for batches and for streams.

A row has the schema of the table. Rows are validated on the driver, as the ingester does before a commit, and are
converted in tasks. The offset of a stream is the last number of each outbox, so that it reads each observation once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from edge.outbox.segment import GATEWAY
from spark_offload.errors import LandingRefused
from spark_offload.landing import QUARANTINE, OutboxEpoch
from spark_offload.landing_source.segment_rows import batches
from spark_offload.landing_source.slices import UNLIMITED, LandingSlices, Slice, content
from spark_offload.table import LOG, SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_MOST_DIGITS: Final = 18
"""Digits of the largest limit of rows, and of the largest number of an observation."""
_PER_TASK: Final = 100_000
"""Rows of a task, except for a single segment with more."""
_SHOWN: Final = 80
"""Characters of an option in an error message."""


def register(spark: SparkSession) -> None:
    """Register the data source `sepa` in a session."""
    spark.dataSource.register(LandingSource)


class LandingSource(DataSource):
    """Observations in a landing zone.

    Options: `path`, the directory; `gateway`: one or more names separated by commas (default: all);
    `startingOffsets`: `acknowledged` (default: the observations after those in the table) or `earliest` (all in the
    landing zone); `failOnDataLoss` (default: true); `maxRowsPerTrigger` for streams.
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
    gateways: Collection[str] | None
    """Names of gateways; None: all."""
    earliest: bool
    fail_on_data_loss: bool
    most: int | None
    """Rows of a batch of a stream; None: without a limit."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> LandingOptions:
        """Parse the options. Raises `LandingRefused`."""
        path = options.get("path", "").removeprefix("file:")
        if not path.strip():
            raise LandingRefused("the landing zone has no path: load(PATH)")
        if _URL.match(path):
            raise LandingRefused(f"{path} is not a directory of this machine: mount it, and give its path")
        folder = Path(path).absolute()
        if (folder / LOG).is_dir():
            raise LandingRefused(f'{folder} is a table, and not a landing zone: spark.read.format("delta").load(PATH)')
        starts = _option(options, "startingOffsets", "acknowledged", "earliest")
        fails = _option(options, "failOnDataLoss", "true", "false")
        return cls(folder, _gateways(options.get("gateway")), starts == "earliest", fails == "true", _most(options))

    def slices(self) -> LandingSlices:
        """Open the landing zone. Raises `LandingRefused`."""
        return LandingSlices(self.folder, self.gateways, fail_on_data_loss=self.fail_on_data_loss)


@dataclass
class SlicePartition(InputPartition):
    """Slices that one task reads."""

    slices: tuple[Slice, ...]
    fail_on_data_loss: bool

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises `LandingRefused`, `SegmentDamaged`, `OSError`."""
        for one in self.slices:
            packed = content(one, fail_on_data_loss=self.fail_on_data_loss)
            if packed is not None:
                yield from batches(one.manifest, packed, one.after, one.upto)


class LandingReader(DataSourceReader):
    """Reader of the observations that are in a landing zone now.

    Filters are not pushed down. Spark shares one reader among all uses of a DataFrame, and a filter that one use pushes
    to it would remove rows from the others.
    """

    def __init__(self, options: LandingOptions) -> None:
        """Open the landing zone. Raises `LandingRefused`."""
        self._options = options
        self._slices = options.slices()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions. Raises `LandingRefused`."""
        acknowledged = self._slices.acknowledged()
        starts = self._slices.earliest() if self._options.earliest else acknowledged
        chosen = (
            one
            for outbox in self._slices.outboxes()
            for one in self._slices.after(outbox, starts.get(outbox, 0), acknowledged.get(outbox, 0), UNLIMITED)[0]
        )
        return _partitions(chosen, self._options)

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
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else UNLIMITED
        after = dict(positions)
        pending = {outbox: end - positions.get(outbox, 0) for outbox, end in ends.items()}
        # The largest backlog first: with fewer rows than outboxes, all of them still get their turn.
        queue = sorted((one for one in pending if pending[one] > 0), key=lambda one: -pending[one])
        while queue and left > 0:
            share = -(-left // len(queue))
            hungry = []
            for outbox in queue:
                most, position = min(share, left), after.get(outbox, 0)
                found = self._slices.after(outbox, position, acknowledged.get(outbox, 0), ends[outbox], most)
                slices, after[outbox] = found
                rows = sum(one.rows for one in slices)
                left -= rows
                if rows == most > 0:
                    hungry.append(outbox)
            # The outboxes that have more rows divide what the others have left.
            queue = hungry
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
        return _partitions(chosen, self._options)

    def commit(self, end: dict[str, int]) -> None:
        """Free the memory of the segments of a batch."""
        self._slices.forget(_positions(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Raises `LandingRefused`, `SegmentDamaged`, `OSError`."""
        assert isinstance(partition, SlicePartition)  # noqa: S101
        return partition.read()


def _partitions(slices: Iterable[Slice], options: LandingOptions) -> list[InputPartition]:
    """Group slices for tasks. Returns at least one partition, which Spark requires."""
    groups: list[list[Slice]] = [[]]
    rows = 0
    for one in slices:
        if groups[-1] and rows + one.rows > _PER_TASK:
            groups.append([])
            rows = 0
        groups[-1].append(one)
        rows += one.rows
    return [SlicePartition(tuple(group), options.fail_on_data_loss) for group in groups]


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


def _gateways(text: str | None) -> Collection[str] | None:
    """Parse names separated by commas; None without the option. Raises `LandingRefused`."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not GATEWAY.fullmatch(name) or name == QUARANTINE:
            raise LandingRefused(f"gateway has the name {name[:_SHOWN]!r}, which no gateway can have: give other names")
    return frozenset(names)


def _most(options: Mapping[str, str]) -> int | None:
    """Return the limit of rows of a batch; None without the option. Raises `LandingRefused`."""
    text = options.get("maxRowsPerTrigger")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) > 0):
        raise LandingRefused(
            f"maxRowsPerTrigger is {text[:_SHOWN]!r}: give a number of rows above 0, with at most {_MOST_DIGITS} digits"
        )
    return int(text)
