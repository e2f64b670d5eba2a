"""Deletion of observations from the table, its old versions and its log, and of rows that arrive later.

Each step can be repeated: a deletion that was interrupted continues when its command runs again. The filter is in
force from its first step on (`deletions.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_offload import compat, newest_rows
from spark_offload.commit import WAIT, alone, append, flush, flush_table, maintaining
from spark_offload.deletions import Counted, Deletions, Filter, LastNumber, condition
from spark_offload.errors import LandingRefused, TableRefused
from spark_offload.gaps import acknowledged_but_missing
from spark_offload.landing import LandingZone, OutboxEpoch, sync
from spark_offload.local_rows import local_frame
from spark_offload.positions import changed_by_others, logged_commits, metadata, place, state, totals_note
from spark_offload.segment_deletion import remove_segments
from spark_offload.session import changed_settings
from spark_offload.table import LOG, PARTITION, SCHEMA, directory, location, named, open_table, properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APPLIED: Final = "edge.history.deletions"
"""Property of the table: SHA-256 of the line of the record up to which its filters were applied to the rows."""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VACUUM: Final = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Two commits, which record the beginning and the end in the log. They would be forgotten at once.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
}
"""Settings of Spark while the files of all older versions are removed."""
_VERSION: Final = re.compile(r"\.?(\d{20})\.")
"""Beginning of the names of the files of a version in the log."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Result of a deletion."""

    rows: int
    """Number of deleted observations."""
    files: int
    """Number of files that were removed from the landing zone and its quarantine."""
    version: int
    """Version of the table without them."""


def found(spark: SparkSession, path: str | os.PathLike[str], one: Filter) -> int:
    """Return the number of observations in the table that a filter would delete. Raises `TableRefused`."""
    return open_table(spark, path).where(condition([one])).count()


def begin(
    spark: SparkSession, table: str | os.PathLike[str], one: Filter, by: str, reason: str, wait: float = WAIT
) -> None:
    """Put a filter in force. The next round of the ingester applies it. Raises `TableRefused`, `TableBusy`.

    `by` and `reason` are stored in the record. `wait` is the time in seconds to wait for a round of an ingester.
    """
    path = location(spark, table)
    with alone(spark, path, wait):
        open_table(spark, path)
        checked(spark, path).begin(one, by, reason)


def delete(
    spark: SparkSession,
    landing: LandingZone,
    table: str | os.PathLike[str],
    one: Filter,
    by: str,
    reason: str,
    wait: float = WAIT,
) -> Deleted:
    """Delete the observations of a filter, and finish deletions that were interrupted.

    `by` and `reason` are stored in the record. `wait` is the time in seconds to wait for a round of an ingester.
    Raises `LandingRefused`, `TableRefused`, `TableBusy`, `Overtaken`.
    """
    path = location(spark, table)
    with maintaining(spark, path), alone(spark, path, wait):
        open_table(spark, path)
        deletions = checked(spark, path)
        refuse_missing(landing, path, place(spark, path).positions)
        deletions.begin(one, by, reason)
        files = _remove_segments(landing, deletions)
        rows = _apply(spark, path, deletions)
        version = forget_versions(spark, path, deletions)
        # Again: segments may have been quarantined or sent meanwhile, when the ingester did not know the filter yet.
        files += _remove_segments(landing, deletions)
        deletions.done(rows, files, version)
    return Deleted(rows, files, version)


def refuse_missing(landing: LandingZone, path: str, positions: Mapping[OutboxEpoch, int]) -> None:
    """Raise `LandingRefused` if the table lacks acknowledged observations. `positions` are its last numbers.

    The segments after them wait for a newer table, and no gateway can send them again.
    """
    if missing := acknowledged_but_missing(landing, positions):
        names = " ".join(dict.fromkeys(one.outbox.gateway for one in missing))
        raise LandingRefused(
            f"{path} lacks acknowledged observations ({missing[0]}), and no gateway can send the segments after them"
            " again: restore the newer table, or accept the gaps first:"
            f" edge-history gaps accept {names} --landing {landing.folder} --table {path}"
        )


def _remove_segments(landing: LandingZone, deletions: Deletions) -> int:
    try:
        return sum(remove_segments(landing, each) for each in deletions.unfinished if any(each.selector))
    except OSError as error:
        raise LandingRefused(f"{landing.folder} cannot be cleaned ({error}): make it writable, and repeat") from error


def checked(spark: SparkSession, path: str) -> Deletions:
    """Read the record of a table. Raises `TableRefused` if the filters that were applied to the table are not in it."""
    deletions = Deletions(path)
    applied = properties(spark, path).get(APPLIED, "")
    if applied and not deletions.contains(applied):
        raise TableRefused(
            f"observations were deleted from {path}, but {deletions.path} is missing or does not belong to it: restore"
            " this file. Without it, deleted observations could come back"
        )
    return deletions


def apply_again(spark: SparkSession, path: str, deletions: Deletions) -> int:
    """Delete observations that came back: with an older version of the table, or from another program.

    Returns their number. The caller must hold the lock of the table.
    """
    if not deletions.filters:
        return 0
    if properties(spark, path).get(APPLIED) == deletions.applied and not changed_by_others(spark, path):
        return 0
    return _apply_thoroughly(spark, path, deletions)


def apply_deletions(spark: SparkSession, path: str, drop: datetime | None, by: str) -> int:
    """Apply all filters to the table, and with `drop` a new one: all observations before this time.

    Returns the number of deleted observations. The caller must hold the lock of the table. Raises `TableRefused`.
    """
    deletions = checked(spark, path)
    if drop is not None:
        one = Filter((drop - _BEGINNING) // timedelta(microseconds=1))
        if not any(one.selector == other.selector and one.before <= other.before for other in deletions.filters):
            deletions.begin(one, by, "retention period")
    if not deletions.filters:
        return 0
    return _apply_thoroughly(spark, path, deletions)


def keep_out(frame: DataFrame, filters: Sequence[Filter]) -> tuple[DataFrame, int]:
    """Return the rows of segments without deleted observations, and the number of these.

    A row with `lost` is added for each outbox whose last observation is deleted: the table must have its last number.
    """
    last = _last_numbers(frame, frame, condition(filters))
    if not last:
        return frame, 0
    kept = frame.where(f"NOT {condition(filters)}")
    rows = [_row(one) for one in last if one.seq > 0]
    spark = frame.sparkSession
    return kept.unionByName(local_frame(spark, rows, SCHEMA).coalesce(1)), sum(one.deleted for one in last)


def _apply_thoroughly(spark: SparkSession, path: str, deletions: Deletions) -> int:
    """Apply all filters. If observations of a gateway, sensor or feature came back, forget their versions, too.

    This also ends an interrupted retention period. Other interrupted deletions end when their command runs again.
    """
    interrupted = deletions.interrupted
    chosen = [one for one in deletions.filters if any(one.selector)]
    # After an interruption, the rows may be deleted already.
    back = (interrupted and _counted(spark, path, deletions)[0] > 0) or (
        bool(chosen) and not open_table(spark, path).where(condition(chosen)).isEmpty()
    )
    rows = _apply(spark, path, deletions)
    if back:
        forget_versions(spark, path, deletions)
    if (rows or deletions.unfinished) and not interrupted:
        deletions.done(rows, 0, place(spark, path).version)
    return rows


def _counted(spark: SparkSession, path: str, deletions: Deletions) -> tuple[int, list[LastNumber]]:
    """Return the rows that an interrupted deletion removed from this table, and the last numbers of their outboxes."""
    if not (counted := deletions.counted()):
        return 0, []
    found = belonging(counted, logged_commits(spark, path, None))
    return sum(one.rows for one in found), merged(last for one in found for last in one.last)


def belonging(counted: Iterable[Counted], commits: Sequence[Any]) -> list[Counted]:
    """Return those counts whose rows were deleted from the table with these commits, newest first.

    An older copy of the table has no DELETE after the version of the count. It is not there either after
    `forget_versions`, whose commit is the first one then.
    """
    operations = {commit["version"]: commit["operation"] for commit in commits}
    first = commits[-1]
    forgotten = "deleted" in (metadata(first) or {})
    return [
        one
        for one in counted
        if operations.get(one.version + 1) == "DELETE" or (forgotten and one.version + 1 < first["version"])
    ]


def merged(last: Iterable[LastNumber]) -> list[LastNumber]:
    """Return the last number of each outbox: the highest one, with the number of all its deleted observations."""
    found: dict[OutboxEpoch, LastNumber] = {}
    for one in last:
        outbox = OutboxEpoch(one.gateway, one.epoch)
        other = found.get(outbox, LastNumber(*outbox, 0, 0))
        found[outbox] = LastNumber(*outbox, max(one.seq, other.seq), one.deleted + other.deleted)
    return list(found.values())


def _apply(spark: SparkSession, path: str, deletions: Deletions) -> int:
    """Delete the rows of all filters from the newest version. Returns their number, also after an interruption."""
    version, positions, totals = state(spark, path)
    rows, last = _counted(spark, path, deletions)
    left, more = None, 0
    table, matches = open_table(spark, path, version), condition(deletions.filters)
    if there := _last_numbers(table.where(matches), table, matches):
        more, highest = sum(one.deleted for one in there), [one for one in there if one.seq]
        deletions.count(more, highest, version)
        rows, last = rows + more, merged([*last, *highest])
        left = newest_rows.without(spark, path, version, matches)
        # First: after a kill, the deleted rows are not there. Files that cannot be removed must not stop the ingester;
        # no query uses them any more, and `forget_versions` and maintenance report them.
        with contextlib.suppress(TableRefused):
            newest_rows.forget(path, left)
        spark.sql(f"DELETE FROM {named(path)} WHERE {matches}")  # noqa: S608  contains no text of a user
    elif not rows and properties(spark, path).get(APPLIED) == deletions.applied and not changed_by_others(spark, path):
        return 0
    spark.sql(f"ALTER TABLE {named(path)} SET TBLPROPERTIES ('{APPLIED}' = '{deletions.applied}')")
    before, version = version, place(spark, path).version
    for number in range(before + 1, version + 1):
        flush(path, number)
    if left is not None:
        if _only_deleted(spark, path, version - before, more):
            newest_rows.keep(path, version, left)
        left.discard()
    # Rows with `lost` in place of the last numbers, unless an interrupted run has added them.
    reached = {row[:2]: row["seq"] for row in _maximum(open_table(spark, path, version)).collect()} if last else {}
    lacking = [one for one in last if one.seq > reached.get((one.gateway, one.epoch), 0)]
    after = dict(positions)
    for one in lacking:
        outbox = OutboxEpoch(one.gateway, one.epoch)
        after[outbox] = max(one.seq, positions.get(outbox, 0))
    frame = local_frame(spark, [_row(one) for one in lacking], SCHEMA).coalesce(1)
    # The log does not tell the totals after a deletion.
    kept = totals_note(before, None if rows or lacking else totals)
    append(spark, path, frame, version, after, {**kept, "deleted": deletions.applied})
    return rows


def _only_deleted(spark: SparkSession, path: str, commits: int, rows: int) -> bool:
    """Return whether the newest commits deleted this number of rows and made a note of it, and nothing else."""
    made = logged_commits(spark, path, commits)
    return [one["operation"] for one in made] == ["SET TBLPROPERTIES", "DELETE"] and made[1]["operationMetrics"].get(
        "numDeletedRows"
    ) == str(rows)


def forget_versions(spark: SparkSession, path: str, deletions: Deletions) -> int:
    """Remove the files of all older versions and their log, which has statistics of deleted values.

    Returns the version that remains. The caller must hold the lock of the table. Queries of older versions fail.
    """
    folder = directory(path)
    assert folder is not None  # noqa: S101  the record of deletions requires a file system
    newest_rows.forget(path)
    flush_table(spark, path)
    with changed_settings(spark, _VACUUM):
        spark.sql(f"VACUUM {named(path)} RETAIN 0 HOURS").collect()
    version = _version_with_positions(spark, path, deletions)
    compat.checkpoint_delta(spark, path)
    log = folder / LOG
    if not list(log.glob(f"{version:020d}.checkpoint*")):
        raise TableRefused(f"{path} has no checkpoint of version {version}: run the deletion again")
    for file in (*log.glob(f"{version:020d}*"), log / "_last_checkpoint", log):
        sync(file)
    # In order: after a kill, the remaining versions are still the last ones without a gap.
    for file in sorted(log.iterdir(), key=lambda one: one.name.removeprefix(".")):
        found = _VERSION.match(file.name)
        if found and int(found[1]) < version and file.is_file():
            file.unlink()
    sync(log)
    return version


def _version_with_positions(spark: SparkSession, path: str, deletions: Deletions) -> int:
    """Return the newest version if its commit has the positions after all deletions, or else append such a commit."""
    (newest,) = logged_commits(spark, path, 1)
    if (metadata(newest) or {}).get("deleted") == deletions.applied:
        return int(newest["version"])
    version, positions, totals = state(spark, path)
    empty = local_frame(spark, [], SCHEMA).coalesce(1)
    return append(
        spark, path, empty, version, positions, {**totals_note(version, totals), "deleted": deletions.applied}
    )


def _maximum(rows: DataFrame) -> DataFrame:
    return rows.groupBy("gateway", "epoch").agg(F.max("seq").alias("seq"))


def _last_numbers(rows: DataFrame, table: DataFrame, matches: str) -> list[LastNumber]:
    """Return the last deleted number of each outbox in `rows`, with the number of its deleted observations.

    The number is 0 if `table` keeps a higher one.
    """
    deleted = rows.where(matches).groupBy("gateway", "epoch").agg(F.max("seq").alias("seq"), F.count("*").alias("n"))
    found = deleted.collect()
    if not found:
        return []
    outboxes = local_frame(table.sparkSession, [row[:2] for row in found], _OUTBOX)
    kept = _maximum(table.where(f"NOT {matches}").join(F.broadcast(outboxes), ["gateway", "epoch"], "left_semi"))
    highest = {row[:2]: row["seq"] for row in kept.collect()}
    last = []
    for row in found:
        outbox, seq = OutboxEpoch(row["gateway"], row["epoch"]), row["seq"]
        # Rows of other programs may have no number, or no name of a gateway.
        ends = outbox.valid and seq is not None and seq > (highest.get(row[:2]) or 0)
        last.append(LastNumber(*outbox, seq if ends else 0, row["n"]))
    return last


_OUTBOX: Final = StructType([SCHEMA["gateway"], SCHEMA["epoch"]])


def _row(one: LastNumber) -> tuple[object, ...]:
    now = datetime.now(UTC)
    cells = {
        "gateway": one.gateway,
        "epoch": one.epoch,
        "seq": one.seq,
        "ts": now,
        "replayed": False,
        "lost": one.deleted,
        PARTITION: now.date(),
    }
    return tuple(cells.get(name) for name in SCHEMA.names)
