"""`edge-history verify`: check the table against its record of segments, or find the segment of an observation."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from edge.outbox.segment import EPOCH, GATEWAY, ROWS
from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import HistoryError
from spark_offload.landing import LandingZone, OutboxEpoch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAULTS: Final = 3
"""Exit code if there are faults. An error that prevents the verification has exit code 1."""
_NUMBER: Final = re.compile(rf"({GATEWAY.pattern})/({EPOCH.pattern})/([0-9]{{1,18}})")


@click.command()
@click.option("--table", required=True, metavar="TABLE", help="Table of the history.")
@click.option(
    "--landing", type=click.Path(path_type=Path), metavar="DIR", help="Also compare the segments of this landing zone."
)
@click.option(
    "--observation", metavar="GATEWAY/EPOCH/NUMBER", help="Print the segment and the commit of an observation instead."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_spark("verify")
def verify(table: str, landing: Path | None, observation: str | None, as_json: bool, start: Start) -> None:
    """Check that each row comes from a segment of a gateway, exactly once.

    The commits of the ingester name their segments with the SHA-256 of each. verify reads the whole table and reports
    missing and repeated numbers, files that cannot be read, changes by other programs, and with --landing, rows that
    differ from those of the segments that are still there (ingest --keep). Exit code 3 means that there are faults.

    \b
    edge-history verify --table history --landing landing
    edge-history verify --table history --observation street-7/29ed0bb511f6dd06/1734
    """
    wanted = None if observation is None else _parsed(observation)
    zone = None if landing is None else LandingZone(landing)
    spark = start()
    if wanted is not None:
        click.echo(_origin(spark, table, *wanted))
        return
    # This module imports PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.verify import verify as verified

    done = verified(spark, table, zone)
    if as_json:
        click.echo(json.dumps(asdict(done)))
    else:
        for note in done.notes:
            click.echo(f"note: {note}")
        for fault in done.faults:
            click.echo(f"fault: {fault}")
        click.echo(
            f"{len(done.faults):,} faults in {done.rows:,} rows of version {done.version}; the log names"
            f" {done.segments:,} segments, {done.compared:,} of them were compared with the landing zone"
        )
    if done.faults:
        sys.exit(FAULTS)


def _parsed(observation: str) -> tuple[OutboxEpoch, int]:
    found = _NUMBER.fullmatch(observation)
    if found is None:
        raise click.BadParameter(f"{observation!r} is not GATEWAY/EPOCH/NUMBER", param_hint="--observation")
    return OutboxEpoch(found[1], found[2]), int(found[3])


def _origin(spark: SparkSession, table: str, outbox: OutboxEpoch, seq: int) -> str:
    """Describe the segment of an observation. Raises `HistoryError` if the log does not name it."""
    from spark_offload.positions import history, place
    from spark_offload.provenance import Provenance
    from spark_offload.table import location

    path = location(spark, table)
    last = place(spark, path).positions.get(outbox, 0)
    found = Provenance(history(spark, path, None)).of(outbox, seq) if 0 < seq <= last else None
    if found is None:
        reason = f"its last number of this outbox is {last:,}" if seq > last or not seq else "it is older than the log"
        raise HistoryError(f"the log of {table} does not name the segment of {outbox}/{seq}: {reason}")
    content = f"SHA-256 {found.sha256}" if found.sha256 else "a tombstone: the gateway dropped its observations"
    time = found.time.astimezone(UTC).isoformat()
    return f"{outbox}/{found.stem}{ROWS}, {content}, in version {found.version} of {time}"
