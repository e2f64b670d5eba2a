"""`edge-history delete`: delete observations from the history, with their traces."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from edge.outbox.segment import GATEWAY
from spark_offload.cli.kinds import Timestamp
from spark_offload.cli.spark import Start, with_spark
from spark_offload.landing import LandingZone

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

    Waiting segments are ingested first. Such observations are not ingested afterwards, and are deleted again if an
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
    from spark_offload.ingest import rounds

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
    # Segments that can be ingested are, so that their other observations do not depend on their gateway.
    for _ in rounds(spark, zone, table):
        pass
    done = delete_observations(spark, zone, table, wanted, user(), reason)
    click.echo(
        f"deleted {done.rows:,} observations, and {done.files:,} files of the landing zone"
        f" (table version {done.version})"
    )
    if later := found(spark, table, replace(wanted, before=LATEST)):
        click.echo(f"{later:,} such observations have later times and stay: delete them with --before", err=True)
