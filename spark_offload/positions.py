"""Positions: for each outbox, the last number up to which the table has all observations.

The log of the table is the only source. Each ingestion commit stores the positions of all outboxes in its
`userMetadata`, so the newest such commit is authoritative. If another program has changed the rows since then, the
positions are computed from the rows. Totals (`totals.py`) are stored next to them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_offload import compat
from spark_offload.commit_files import read_commits
from spark_offload.landing import OutboxEpoch
from spark_offload.table import directory, location, named, open_table
from spark_offload.totals import Totals, from_json, to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT: Final = 1
"""Format of the metadata."""
_NEAR: Final = 20
"""Number of newest commits that are searched before the whole log is read."""
HARMLESS: Final = frozenset(
    {
        "ADD COLUMNS",
        "CREATE TABLE",
        "DELETE",  # deleted observations must not be ingested again
        "OPTIMIZE",
        "SET TBLPROPERTIES",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Delta operations that leave the positions unchanged."""


class TablePlace(NamedTuple):
    """Version of a table, and its positions."""

    version: int
    positions: dict[OutboxEpoch, int]


class TableState(NamedTuple):
    """Version of a table, its positions, and its totals if the log has them."""

    version: int
    positions: dict[OutboxEpoch, int]
    totals: dict[OutboxEpoch, Totals] | None


def totals_note(base: int, totals: Mapping[OutboxEpoch, Totals] | None) -> dict[str, object]:
    """Return the note with the totals after a commit that follows version `base`."""
    return {} if totals is None else {"base": base, "totals": to_json(totals)}


def commit_metadata(run: str, positions: Mapping[OutboxEpoch, int], note: Mapping[str, object]) -> str:
    """Return the `userMetadata` of a commit: its run id, the positions after it, and a note, as JSON."""
    numbers = {str(outbox): last for outbox, last in positions.items()}
    body = {**note, "edge_history": FORMAT, "run": run, "positions": numbers}
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def place(spark: SparkSession, table: str | os.PathLike[str]) -> TablePlace:
    """Return the newest version of a table and its positions. Raises `TableRefused`."""
    found = state(spark, table)
    return TablePlace(found.version, found.positions)


def state(spark: SparkSession, table: str | os.PathLike[str]) -> TableState:
    """Return the newest version of a table, its positions and its totals. Raises `TableRefused`."""
    path = location(spark, table)
    # Raises `TableRefused` with the remedy. DESCRIBE HISTORY would raise an error of Spark.
    open_table(spark, path)
    near = logged_commits(spark, path)
    return _recorded(spark, path, near) or state_after(spark, path, logged_commits(spark, path, None))


def state_after(spark: SparkSession, path: str, commits: Sequence[Any]) -> TableState:
    """Return the state after the newest of all commits of a table, which are given newest first."""
    if found := _recorded(spark, path, commits):
        return found
    version = commits[0]["version"]
    return TableState(version, counted(spark, path, version), None)


def _recorded(spark: SparkSession, path: str, commits: Sequence[Any]) -> TableState | None:
    """Return the state after the newest of some commits, or None if these do not tell it."""
    version = commits[0]["version"]
    for index, commit in enumerate(commits):
        if found := metadata(commit):
            return TableState(version, _read(found), _totals(found, commits, index))
        if commit["operation"] not in HARMLESS:
            return TableState(version, counted(spark, path, version), None)
    # It began empty, and the other commits added no rows.
    began = commits[-1]["version"] == 0 and commits[-1]["operation"] == "CREATE TABLE"
    return TableState(version, {}, {}) if began else None


def _totals(found: Mapping[str, Any], commits: Sequence[Any], index: int) -> dict[OutboxEpoch, Totals] | None:
    """Return the totals in the metadata of the commit at `index`, unless other commits have changed the rows.

    These are later ones, and those between the version that the totals are based on and the commit itself.
    """
    base, made = found.get("base"), commits[index]["version"]
    if type(base) is not int:
        return None
    before = [commit for commit in commits[index + 1 :] if commit["version"] > base]
    others = {commit["operation"] for commit in (*commits[:index], *before)}
    if len(before) != made - base - 1 or not others <= HARMLESS - {"DELETE"}:
        return None
    return from_json(found.get("totals"))


def changed_by_others(spark: SparkSession, path: str) -> bool:
    """Return whether another program has changed the rows since the last commit of this one, or may have."""
    for limit in (_NEAR, None):
        for commit in logged_commits(spark, path, limit):
            if metadata(commit):
                return False
            if commit["operation"] not in HARMLESS:
                return True
    return True


def counted(spark: SparkSession, path: str, version: int) -> dict[OutboxEpoch, int]:
    """Compute the positions from the rows of a version, with a scan of the table.

    Rows that no gateway can have sent, without a number or with an invalid name, do not count.
    """
    rows = open_table(spark, path, version).groupBy("gateway", "epoch").agg({"seq": "max"})
    last = {OutboxEpoch(row[0], row[1]): row[2] for row in rows.collect() if row[2] is not None}
    return {outbox: number for outbox, number in last.items() if outbox.valid}


def logged_commits(spark: SparkSession, path: str, limit: int | None = _NEAR) -> Sequence[Any]:
    """Return the commits of a table without their times, newest first; `limit` None returns all."""
    place = directory(path)
    # A session of another machine may see other files.
    if place is not None and compat.is_classic_session(spark):
        with contextlib.suppress(OSError, ValueError):  # Delta's error has the reason
            return read_commits(place, limit)
    return history(spark, path, limit)


def history(spark: SparkSession, path: str, limit: int | None = _NEAR) -> list[Any]:
    """Return the commits of a table with their times, newest first; `limit` None returns all."""
    return spark.sql(f"DESCRIBE HISTORY {named(path)}" + ("" if limit is None else f" LIMIT {limit}")).collect()


def metadata(commit: Any) -> dict[str, Any] | None:  # noqa: ANN401  a row
    """Return the metadata that an ingester stored with a commit, or None for commits of other programs."""
    try:
        body = json.loads(commit["userMetadata"] or "null")
        return body if body["edge_history"] == FORMAT and type(body["positions"]) is dict else None
    except (ValueError, TypeError, KeyError):
        return None


def _read(found: Mapping[str, Any]) -> dict[OutboxEpoch, int]:
    return {OutboxEpoch(*name.split("/")): last for name, last in found["positions"].items()}
