"""Verification of the table against its record of segments, and against the segments in the landing zone.

It reads all files of the table once, which also detects damaged ones, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from edge.outbox.segment import SegmentDamaged, SegmentNewer
from spark_offload.delete import checked
from spark_offload.deletions import Filter, condition
from spark_offload.errors import TableRefused
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.local_rows import local_frame
from spark_offload.positions import HARMLESS, history, metadata, state
from spark_offload.provenance import Provenance
from spark_offload.rows import rows
from spark_offload.segment_selection import SelectedSegment
from spark_offload.spark_errors import error_text, first_line
from spark_offload.table import SCHEMA, location, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST: Final = 1000
"""Most faults of one kind in the result."""
_BOUNDS: Final = StructType(
    [SCHEMA["gateway"], SCHEMA["epoch"], StructField("after", LongType()), StructField("until", LongType())]
)
# `replayed` is not in the rows of a segment, and differs if its gateway sends it again.
_COMPARED: Final = [name for name in SCHEMA.names if name not in ("replayed", "lost")]


@dataclass(slots=True)
class Verified:
    """Result of a verification."""

    version: int
    rows: int = 0
    segments: int = 0
    """Number of segments in the log."""
    compared: int = 0
    """Number of segments in the landing zone whose rows were compared with those of the table."""
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Numbers that could not be verified, or are missing for a known reason."""


def verify(spark: SparkSession, table: str | os.PathLike[str], landing: LandingZone | None = None) -> Verified:
    """Check that each row comes from a segment of the record, exactly once. Raises `TableRefused`."""
    path = location(spark, table)
    open_table(spark, path)
    commits = history(spark, path, None)
    version = commits[0]["version"]
    try:
        return _verified(spark, path, version, commits, landing)
    except Exception as error:
        if not error_text(error):
            raise
        return Verified(version, faults=[f"the table cannot be read: {first_line(error)}", *_foreign(commits)])


def _verified(
    spark: SparkSession, path: str, version: int, commits: Sequence[Any], landing: LandingZone | None
) -> Verified:
    positions = state(spark, path).positions
    filters = checked(spark, path).filters
    provenance = Provenance(commits)
    done = Verified(version, segments=len(provenance))
    done.faults += _foreign(commits)
    content = open_table(spark, path, version)
    if lacking := [name for name in SCHEMA.names if name not in content.columns]:
        raise TableRefused(f"{path} has no columns {', '.join(lacking)}: migrate it with edge-history maintain")
    done.rows = _read(content)
    done.faults += _numbering(content, positions, done.notes, deleted=bool(filters))
    if filters and (back := content.where(condition(filters)).count()):
        done.faults.append(f"{back:,} deleted observations are in the table: run edge-history maintain")
    if landing is not None:
        _compare(spark, content, landing, positions, provenance, filters, done)
    for outbox, last in sorted(positions.items()):
        for first, end in provenance.unknown(outbox, last):
            done.notes.append(f"{outbox}: the log names no segment for the numbers {first:,} to {end:,}")
    return done


def _foreign(commits: Sequence[Any]) -> Iterator[str]:
    """Yield the commits of other programs that changed rows. `commits`: newest first."""
    deletion = False
    for commit in commits:
        if body := metadata(commit):
            deletion = "deleted" in body
            continue
        operation = commit["operation"]
        own = operation in HARMLESS - {"DELETE"} or (operation == "DELETE" and deletion)
        if not own and operation != "RESTORE":
            yield f"version {commit['version']}: another program has changed the rows ({operation})"


def _read(content: DataFrame) -> int:
    """Read all columns of all rows. Returns their number."""
    (found,) = content.agg(F.count("*"), F.bit_xor(F.xxhash64(*SCHEMA.names))).collect()
    return int(found[0])


def _numbering(
    content: DataFrame, positions: Mapping[OutboxEpoch, int], notes: list[str], *, deleted: bool
) -> Iterator[str]:
    """Yield repeated and missing numbers. If observations were `deleted`, missing ones are notes."""
    outbox = Window.partitionBy("gateway", "epoch").orderBy("seq")
    numbered = content.select("gateway", "epoch", "seq", "lost", F.lag("seq", 1, 0).over(outbox).alias("before"))
    # A row with `lost` stands for this many numbers up to its own.
    missing = F.col("seq") - F.col("before") - F.coalesce("lost", F.lit(1))
    for row in numbered.where(missing != 0).orderBy("gateway", "epoch", "seq").limit(MOST).collect():
        name, before, seq = OutboxEpoch(row["gateway"], row["epoch"]), row["before"], row["seq"]
        if seq == before:
            yield f"{name}: number {seq:,} is in the table more than once"
        elif row["lost"] is None or row["lost"] < seq - before:
            last = seq - (row["lost"] or 1)
            text = f"{name}: the numbers {before + 1:,} to {last:,} are not in the table"
            if deleted:
                notes.append(f"{text}; observations were deleted")
            else:
                yield text
        elif not deleted:
            yield f"{name}: number {seq:,} stands for {row['lost']:,} lost ones, and some of them are in the table"
    for row in content.groupBy("gateway", "epoch").agg(F.max("seq").alias("seq")).collect():
        name = OutboxEpoch(row["gateway"], row["epoch"])
        position = positions.get(name, 0)
        if row["seq"] > position:
            yield f"{name}: the table has number {row['seq']:,}, and its log states {position:,} as the last"
        elif row["seq"] < position and not deleted:
            yield f"{name}: the table ends at number {row['seq']:,}, and its log states {position:,} as the last"
    known = {OutboxEpoch(*row) for row in content.select("gateway", "epoch").distinct().collect()}
    for name in sorted(set(positions) - known):
        if not deleted and positions[name]:
            yield f"{name}: no row is in the table, and its log states {positions[name]:,} as the last number"


def _compare(
    spark: SparkSession,
    content: DataFrame,
    landing: LandingZone,
    positions: Mapping[OutboxEpoch, int],
    provenance: Provenance,
    filters: Sequence[Filter],
    done: Verified,
) -> None:
    """Compare the ingested segments of the landing zone with the record and with the rows of the table."""
    taken = []
    for outbox in landing.outboxes():
        for segment in landing.segments(outbox):
            recorded = provenance.of(outbox, segment.last)
            if segment.last > positions.get(outbox, 0) or recorded is None or recorded.stem != segment.stem:
                continue  # it waits, or another segment with the same numbers was ingested
            try:
                manifest = landing.manifest(segment)
                if manifest.sha256 != recorded.sha256:
                    done.faults.append(f"{segment}: its SHA-256 is not that of version {recorded.version}")
                elif not manifest.tombstone:
                    manifest.check(landing.rows(segment, manifest))
                    taken.append(SelectedSegment(segment, manifest, recorded.after))
            except FileNotFoundError:  # the ingester has removed it
                continue
            except (SegmentDamaged, SegmentNewer, OSError) as fault:
                done.faults.append(f"{segment}: {fault}")
    if not taken:
        return
    sent = rows(spark, taken)
    if filters:
        sent = sent.where(f"NOT {condition(filters)}")
    bounds = [(*one.segment.outbox, one.after, one.segment.last) for one in taken]
    ranges = local_frame(spark, bounds, _BOUNDS)
    within = F.expr("seq > after AND seq <= until")
    there = content.where("lost IS NULL").join(F.broadcast(ranges), ["gateway", "epoch"]).where(within)
    columns = [F.col(name) for name in _COMPARED]
    done.compared = len(taken)
    for left, right, what in ((sent, there, "are not in the table"), (there, sent, "are in the table, but not in it")):
        lacking = left.select(*columns).exceptAll(right.select(*columns)).select("gateway", "epoch", "seq")
        numbers: dict[tuple[OutboxEpoch, int], list[int]] = {}
        for row in lacking.limit(MOST).collect():
            found = provenance.of(OutboxEpoch(row["gateway"], row["epoch"]), row["seq"])
            assert found is not None  # noqa: S101  the ranges are those of recorded segments
            numbers.setdefault((OutboxEpoch(row["gateway"], row["epoch"]), found.first), []).append(row["seq"])
        for (outbox, first), some in sorted(numbers.items()):
            done.faults.append(f"{outbox}: rows of the segment from {first:,} on {what}: {_listed(some)}")


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(f"{number:,}" for number in sorted(numbers)[:5])
    return f"{shown}, and {len(numbers) - 5:,} more" if len(numbers) > 5 else shown
