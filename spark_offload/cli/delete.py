"""`edge-history delete`: delete observations from the history, with their traces."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.outbox.segment import GATEWAY
from spark_offload.cli.kinds import Timestamp
from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import IngestFailed, LandingRefused
from spark_offload.landing import LandingZone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_offload.deletions import Filter

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@click.command()
@click.option("--table", required=True, metavar="DIR", help="Table of the history.")
@click.option("--landing", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Landing zone.")
@click.option("--gateway", metavar="NAME", help="Observations of this gateway.")
@click.option("--sensor", metavar="IRI", help="Observations of this sensor.")
@click.option("--feature", metavar="IRI", help="Observations of this feature of interest.")
@click.option("--before", type=Timestamp(), help="Only observations before this time.  [default: now]")
@click.option("--reason", default="", help="Stored in the record; must not name a person.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_spark("delete")
def delete(
    table: str,
    landing: Path,
    gateway: str | None,
    sensor: str | None,
    feature: str | None,
    before: datetime | None,
    reason: str,
    yes: bool,
    start: Start,
) -> None:
    """Delete the observations that meet all given conditions: from the table, its older versions and their statistics,
    from the landing zone and its quarantine.

    Waiting segments are ingested first. Those that must wait longer are listed and removed; their gateway sends them
    again if it still has them. Such observations are not ingested afterwards, and are deleted again if an
    older copy of the table or another program brings them back. The file .NAME.deletions next to the table records the
    conditions; keep it with the table. Stored quads that contain the IRI are deleted, too.

    If the command is interrupted, run it again. Queries of older versions fail from then on. Gateways, exports and
    backups keep their data: delete it there.

    \b
    edge-history delete --sensor http://example.org/sensor/7 --landing landing --table history
    edge-history delete --gateway street-7 --before 2026-01-01 --landing landing --table history --yes
    """
    if not (gateway or sensor or feature):
        raise click.UsageError("Name a gateway, a sensor or a feature. For all old data: maintain --drop-raw-after")
    if gateway and not GATEWAY.fullmatch(gateway):
        raise click.BadParameter(f'"{gateway}" is not the name of a gateway', param_hint="--gateway")
    zone = LandingZone(landing)
    spark = start()
    # These modules import PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.delete import begin, found
    from spark_offload.delete import delete as delete_observations
    from spark_offload.deletions import LATEST, Filter, digest, user

    end = (before or datetime.now(UTC)) - _BEGINNING
    wanted = Filter(
        end // timedelta(microseconds=1),
        gateway or "",
        digest(sensor) if sensor else "",
        digest(feature) if feature else "",
    )
    if not yes:
        count = found(spark, table, wanted)
        click.confirm(f"Delete {count:,} observations from {table}, and such ones that arrive later?", abort=True)
    begin(spark, table, wanted, user(), reason)
    _ingest(spark, zone, table, wanted, ask=not yes)
    done = delete_observations(spark, zone, table, wanted, user(), reason)
    click.echo(
        f"deleted {done.rows:,} observations, and {done.files:,} files of the landing zone"
        f" (table version {done.version})"
    )
    if later := found(spark, table, replace(wanted, before=LATEST)):
        click.echo(f"{later:,} such observations have later times and stay: delete them with --before", err=True)


def _ingest(spark: SparkSession, zone: LandingZone, table: str, wanted: Filter, *, ask: bool) -> None:
    """Ingest waiting segments, so that their other observations do not depend on their gateway. List those that remain.

    Raises `IngestFailed`, `LandingRefused` if observations that no gateway has any more would be lost.
    """
    from spark_offload.commit import WAIT
    from spark_offload.delete import refuse_missing
    from spark_offload.ingest import rounds
    from spark_offload.positions import place
    from spark_offload.segment_deletion import affected

    failed: IngestFailed | None = None
    try:
        for _ in rounds(spark, zone, table, wait=WAIT):
            pass
    except IngestFailed as error:  # it may concern other segments, which must not delay the deletion
        failed = error
        click.echo(str(error), err=True)
    positions = place(spark, table).positions
    refuse_missing(zone, table, positions)
    try:
        waiting = affected(zone, wanted, positions)
    except OSError as error:
        raise LandingRefused(f"{zone.folder} cannot be read ({error}): make it readable, and repeat") from error
    if not waiting:
        return
    click.echo("\n".join(f"{one} waits, and is removed with its other observations" for one in waiting), err=True)
    if failed is not None and any(zone.is_acknowledged(one) for one in waiting):
        raise failed  # their gateways have deleted these observations: they must be ingested first
    if ask:
        click.confirm("Remove these segments, which are not in the table?", abort=True)
