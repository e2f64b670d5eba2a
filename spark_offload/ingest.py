"""Taking segments in, round by round: look at the table, choose segments, commit, then acknowledge.

The table is the only state. Whatever dies at whatever moment, the next round finds in it what it has, and goes on.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_offload.commit import alone, append
from spark_offload.errors import IngestFailed, Overtaken
from spark_offload.intake import Gap, examine, look
from spark_offload.landing import Landing, PendingSegment, Quarantined
from spark_offload.positions import place
from spark_offload.rows import rows
from spark_offload.table import make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP: Final = 86_400.0
"""Seconds for which segments stay that are in the table."""
MOST: Final = 5_000_000
"""Rows of a commit, about."""
_ATTEMPTS: Final = 5
"""Times that a round begins anew because another ingester was first."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Round:
    """What came of a round."""

    version: int
    """Of the table, after it."""
    observations: int = 0
    lost: int = 0
    """Observations that gateways dropped, of which tombstones came."""
    segments: int = 0
    gaps: list[Gap] = field(default_factory=list)
    damaged: list[Quarantined] = field(default_factory=list)
    newer: list[PendingSegment] = field(default_factory=list)
    more: bool = False
    """Whether there is more to take in."""

    def __str__(self) -> str:
        dropped = f", and learned of {self.lost:,} that gateways dropped" if self.lost else ""
        return f"took in {self.observations:,} observations{dropped} (table version {self.version})"


def ingest(
    spark: SparkSession,
    landing: str | os.PathLike[str],
    table: str | os.PathLike[str],
    *,
    keep: float = KEEP,
    most: int = MOST,
) -> list[Round]:
    """Take in all that waits. Returns what came of each round. Raises `LandingRefused`, `TableRefused`, `TableBusy`."""
    return list(rounds(spark, Landing(Path(landing)), os.fspath(table), keep=keep, most=most))


def rounds(
    spark: SparkSession, landing: Landing, path: str, *, keep: float = KEEP, most: int = MOST
) -> Iterator[Round]:
    """The same, a round at a time, for who tells about it."""
    more = True
    while more:
        done = _with_patience(spark, landing, path, keep, most)
        more = done.more
        yield done


def _with_patience(spark: SparkSession, landing: Landing, path: str, keep: float, most: int) -> Round:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with alone(spark, path):
                return _round(spark, landing, path, keep, most)
        except Overtaken as overtaken:
            if attempt == _ATTEMPTS:
                raise
            _log.info("%s", overtaken)
            time.sleep(attempt * random.random())  # noqa: S311  not a secret
    raise AssertionError


def _round(spark: SparkSession, landing: Landing, path: str, keep: float, most: int) -> Round:
    make_table(spark, path)
    version, positions = place(spark, path)
    landing.acknowledge(positions, version)  # what a round before could not
    found = look(landing, positions, most)
    done = Round(version, gaps=found.gaps, damaged=found.damaged, newer=found.newer)
    done.more = found.more and bool(found.taken or found.damaged)
    if found.taken:
        after = found.positions(positions)
        try:
            done.version = append(spark, path, rows(spark, found.taken), version, after)
        except Overtaken:
            raise
        except Exception as error:
            blamed = examine(landing, found.taken)
            if not blamed:
                raise IngestFailed(f"Spark could not add to {path}: {_line(error)}") from error
            done.damaged += blamed
            done.more = True
            return done
        landing.acknowledge(after, done.version)
        positions = after
        done.segments = len(found.taken)
        for one in found.taken:
            count = one.manifest.last - one.after
            if one.manifest.tombstone:
                done.lost += count
            else:
                done.observations += count
    landing.clean(positions, keep)
    return done


def _line(error: Exception) -> str:
    """What an error of Spark's says, without the places in its code."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
