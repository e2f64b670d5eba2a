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

from edge.outbox.segment import EPOCH, GATEWAY, SegmentDamaged, SegmentNewer
from spark_offload.delete import checked
from spark_offload.deletions import Deletions, Filter, condition
from spark_offload.errors import TableRefused
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.local_rows import local_frame
from spark_offload.positions import HARMLESS, history, metadata, state_after
from spark_offload.provenance import Provenance
from spark_offload.rows import rows
from spark_offload.segment_selection import SelectedSegment
from spark_offload.spark_errors import error_text, first_line
from spark_offload.table import SCHEMA, location, open_table
from spark_offload.totals import Totals, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST: Final = 1000
"""Most faults of one kind in the result."""
_BOUNDS: Final = StructType(
    [SCHEMA["gateway"], SCHEMA["epoch"], StructField("after", LongType()), StructField("until", LongType())]
)
_OF_GATEWAYS: Final = (
    rf"seq IS NOT NULL AND coalesce(gateway RLIKE r'^({GATEWAY.pattern})\z', false)"
    rf" AND coalesce(epoch RLIKE r'^({EPOCH.pattern})\z', false)"
)
"""SQL condition: a gateway may have sent the row."""
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
    deletions = checked(spark, path)
    foreign = list(_foreign(commits, deletions))
    try:
        return _verified(spark, path, commits, foreign, deletions.filters, landing)
    except Exception as error:
        if not error_text(error):
            raise
        return Verified(commits[0]["version"], faults=[f"the table cannot be read: {first_line(error)}", *foreign])


def _verified(
    spark: SparkSession,
    path: str,
    commits: Sequence[Any],
    foreign: Sequence[str],
    filters: Sequence[Filter],
    landing: LandingZone | None,
) -> Verified:
    # All from the same commits: an ingester may add others meanwhile.
    version, positions, recorded = state_after(spark, path, commits)
    provenance = Provenance(commits)
    done = Verified(version, segments=len(provenance), faults=[*foreign])
    content = open_table(spark, path, version)
    if lacking := [name for name in SCHEMA.names if name not in content.columns]:
        raise TableRefused(f"{path} has no columns {', '.join(lacking)}: migrate it with edge-history maintain")
    done.rows, unnumbered = _read(content)
    if unnumbered:
        done.faults.append(f"rows of another program, without a valid gateway, epoch or number: {unnumbered:,}")
    content = content.where(_OF_GATEWAYS)
    done.faults += _numbering(content, positions, done.notes, deleted=bool(filters))
    if recorded is not None:
        done.faults += _totals(recorded, counted(content))
    if filters and (back := content.where(condition(filters)).count()):
        done.faults.append(f"{back:,} deleted observations are in the table: run edge-history maintain")
    if landing is not None:
        _compare(spark, content, landing, positions, provenance, filters, done)
    for outbox, last in sorted(positions.items()):
        for first, end in provenance.unknown(outbox, last):
            done.notes.append(f"{outbox}: the log names no segment for the numbers {first:,} to {end:,}")
    return done


def _foreign(commits: Sequence[Any], deletions: Deletions) -> Iterator[str]:
    """Yield the commits of other programs that changed rows. `commits`: newest first."""
    from_versions = deletions.deleted_from
    deletion = False
    for commit in commits:
        if body := metadata(commit):
            # In old records the version may be missing.
            deletion = "deleted" in body and -1 in from_versions
            continue
        operation = commit["operation"]
        own = operation in HARMLESS - {"DELETE"} or (
            operation == "DELETE" and (deletion or commit["version"] - 1 in from_versions)
        )
        if not own and operation != "RESTORE":
            yield f"version {commit['version']}: another program has changed the rows ({operation})"


def _read(content: DataFrame) -> tuple[int, int]:
    """Read all columns of all rows. Returns their number, and that of the rows that no gateway can have sent."""
    others = F.count_if(F.expr(f"NOT ({_OF_GATEWAYS})"))
    (found,) = content.agg(F.count("*"), others, F.bit_xor(F.xxhash64(*SCHEMA.names))).collect()
    return int(found[0]), int(found[1])


def _totals(recorded: Mapping[OutboxEpoch, Totals], found: Mapping[OutboxEpoch, Totals]) -> Iterator[str]:
    """Yield the outboxes whose totals in the log are not those of the rows."""
    for outbox in sorted({*recorded, *found}):
        one, other = recorded.get(outbox, Totals()), found.get(outbox, Totals())
        wrong = [name for name, stated, counted in zip(Totals._fields, one, other, strict=True) if stated != counted]
        if wrong:
            yield (
                f"{outbox}: the totals in the log are not those of the rows ({', '.join(wrong)}): edge-history"
                " status reports wrong ones"
            )


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
    taken = list(_sound(landing, positions, provenance, done.faults))
    gone = 0
    while taken:
        try:
            done.faults += _differences(spark, content, taken, provenance, filters)
            done.compared = len(taken)
            break
        except Exception as error:
            if not (text := error_text(error)):
                raise
            left = [one for one in taken if one.segment.rows.exists()]
            if len(left) == len(taken):
                done.faults.append(f"the segments of {landing.folder} cannot be compared: {text}")
                break
            gone, taken = gone + len(taken) - len(left), left
    if gone:
        done.notes.append(f"{gone:,} segments were removed from {landing.folder} meanwhile, and are not compared")


def _sound(
    landing: LandingZone, positions: Mapping[OutboxEpoch, int], provenance: Provenance, faults: list[str]
) -> Iterator[SelectedSegment]:
    """Yield the ingested segments whose files are those of the record. Adds the faults of the others."""
    for outbox in landing.outboxes():
        for segment in landing.segments(outbox):
            recorded = provenance.of(outbox, segment.last)
            if segment.last > positions.get(outbox, 0) or recorded is None or recorded.stem != segment.stem:
                continue  # it waits, or another segment with the same numbers was ingested
            try:
                manifest = landing.manifest(segment)
                if manifest.sha256 != recorded.sha256:
                    faults.append(f"{segment}: its SHA-256 is not that of version {recorded.version}")
                elif not manifest.tombstone:
                    manifest.check(landing.rows(segment, manifest))
                    yield SelectedSegment(segment, manifest, recorded.after)
            except FileNotFoundError:  # the ingester has removed it
                continue
            except (SegmentDamaged, SegmentNewer, OSError) as fault:
                faults.append(f"{segment}: {fault}")


def _differences(
    spark: SparkSession,
    content: DataFrame,
    taken: Sequence[SelectedSegment],
    provenance: Provenance,
    filters: Sequence[Filter],
) -> list[str]:
    """Return the differences between the rows of segments and those of the table."""
    sent = rows(spark, taken)
    if filters:
        sent = sent.where(f"NOT {condition(filters)}")
    bounds = [(*one.segment.outbox, one.after, one.segment.last) for one in taken]
    ranges = local_frame(spark, bounds, _BOUNDS)
    within = F.expr("seq > after AND seq <= until")
    there = content.where("lost IS NULL").join(F.broadcast(ranges), ["gateway", "epoch"]).where(within)
    columns = [F.col(name) for name in _COMPARED]
    faults = []
    for left, right, what in ((sent, there, "are not in the table"), (there, sent, "are in the table, but not in it")):
        lacking = left.select(*columns).exceptAll(right.select(*columns)).select("gateway", "epoch", "seq")
        numbers: dict[tuple[OutboxEpoch, int], list[int]] = {}
        for row in lacking.limit(MOST).collect():
            found = provenance.of(OutboxEpoch(row["gateway"], row["epoch"]), row["seq"])
            assert found is not None  # noqa: S101  the ranges are those of recorded segments
            numbers.setdefault((OutboxEpoch(row["gateway"], row["epoch"]), found.first), []).append(row["seq"])
        for (outbox, first), some in sorted(numbers.items()):
            faults.append(f"{outbox}: rows of the segment from {first:,} on {what}: {_listed(some)}")
    return faults


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(f"{number:,}" for number in sorted(numbers)[:5])
    return f"{shown}, and {len(numbers) - 5:,} more" if len(numbers) > 5 else shown
