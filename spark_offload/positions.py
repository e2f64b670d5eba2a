"""Positions: for each outbox, the last number up to which the table has all observations.

The log of the table is the only source. Each ingestion commit stores the positions of all outboxes in its
`userMetadata`, so the newest such commit is authoritative. If another program has changed the rows since then, the
positions are computed from the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_offload.landing import OutboxEpoch
from spark_offload.table import named, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT: Final = 1
"""Format of the metadata."""
_NEAR: Final = 20
"""Number of newest commits that are searched before the whole log is read."""
_HARMLESS: Final = frozenset(
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


def commit_metadata(run: str, positions: Mapping[OutboxEpoch, int], note: Mapping[str, str]) -> str:
    """Return the `userMetadata` of a commit: its run id, the positions after it, and a note for people, as JSON."""
    numbers = {str(outbox): last for outbox, last in positions.items()}
    body = {**note, "edge_history": FORMAT, "run": run, "positions": numbers}
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def place(spark: SparkSession, path: str) -> TablePlace:
    """Return the newest version of a table and its positions. Raises `TableRefused`."""
    # Raises `TableRefused` with the remedy. DESCRIBE HISTORY would raise an error of Spark.
    open_table(spark, path)
    for limit in (_NEAR, None):
        commits = history(spark, path, limit)
        version = commits[0]["version"]
        for commit in commits:
            if found := metadata(commit):
                return TablePlace(version, _read(found))
            if commit["operation"] not in _HARMLESS:
                return TablePlace(version, counted(spark, path, version))
        if commits[-1]["version"] == 0:
            if commits[-1]["operation"] == "CREATE TABLE":  # it began empty, and the other commits added no rows
                return TablePlace(version, {})
            break
    return TablePlace(version, counted(spark, path, version))


def changed_by_others(spark: SparkSession, path: str) -> bool:
    """Return whether another program has changed the rows since the last commit of this one, or may have."""
    for commit in history(spark, path):
        if metadata(commit):
            return False
        if commit["operation"] not in _HARMLESS:
            return True
    return True


def counted(spark: SparkSession, path: str, version: int) -> dict[OutboxEpoch, int]:
    """Compute the positions from the rows of a version, with a scan of the table."""
    rows = open_table(spark, path, version).groupBy("gateway", "epoch").agg({"seq": "max"})
    return {OutboxEpoch(row[0], row[1]): row[2] for row in rows.collect()}


def history(spark: SparkSession, path: str, limit: int | None = _NEAR) -> list[Any]:
    """Return the commits of a table, newest first; `limit` None returns all."""
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
