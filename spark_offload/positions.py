"""Up to which number of each outbox the table has everything. The table's log says it; nothing else is believed.

Each round's commit tells the positions of all outboxes in its `userMetadata`, so the newest that tells them is right,
unless somebody has written since who knows nothing of it. Then the rows are counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_offload.landing import Outbox
from spark_offload.table import named, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT: Final = 1
"""Of the metadata."""
_NEAR: Final = 20
"""Commits that are looked at before all are."""
_HARMLESS: Final = frozenset(
    {
        "ADD COLUMNS",
        "CREATE TABLE",
        "DELETE",  # of what is not wanted any more; it is not to come again
        "OPTIMIZE",
        "SET TBLPROPERTIES",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations after which the positions are what they were before."""


class TablePlace(NamedTuple):
    """Where a table is."""

    version: int
    positions: dict[Outbox, int]


def told(run: str, positions: Mapping[Outbox, int]) -> str:
    """The metadata of a commit of a run after which these are the positions."""
    body = {"edge_history": FORMAT, "run": run, "positions": {str(outbox): last for outbox, last in positions.items()}}
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def place(spark: SparkSession, path: str) -> TablePlace:
    """Version and positions as of it. Raises `TableRefused`."""
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
            break
    return TablePlace(version, counted(spark, path, version))


def counted(spark: SparkSession, path: str, version: int) -> dict[Outbox, int]:
    """The same, read off the rows."""
    rows = open_table(spark, path, version).groupBy("gateway", "epoch").agg({"seq": "max"})
    return {Outbox(row[0], row[1]): row[2] for row in rows.collect()}


def history(spark: SparkSession, path: str, limit: int | None = _NEAR) -> list[Any]:
    """The newest commits, the last first."""
    return spark.sql(f"DESCRIBE HISTORY {named(path)}" + ("" if limit is None else f" LIMIT {limit}")).collect()


def metadata(commit: Any) -> dict[str, Any] | None:  # noqa: ANN401  a row
    """What an ingester told with a commit; None: it is nobody's of us."""
    try:
        body = json.loads(commit["userMetadata"] or "null")
        return body if body["edge_history"] == FORMAT and type(body["positions"]) is dict else None
    except (ValueError, TypeError, KeyError):
        return None


def _read(found: Mapping[str, Any]) -> dict[Outbox, int]:
    return {Outbox(*name.split("/")): last for name, last in found["positions"].items()}
