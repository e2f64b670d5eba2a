"""`edge-history maintain`: compact and clean the table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from spark_offload.cli.kinds import Length
from spark_offload.cli.spark import Start, with_spark

_LONGEST = timedelta(days=700_000)
"""Longer ones would lead beyond the year 1."""


@click.command()
@click.option("--table", required=True, metavar="DIR", help="Table of the history.")
@click.option(
    "--retention", type=Length(), default="7d", show_default=True, help="How long to keep files of old versions."
)
@click.option(
    "--drop-raw-after",
    type=Length(),
    metavar="LENGTH",
    help="Delete observations that are older than this, whole days (UTC), and do not ingest such ones any more.",
)
@with_spark("maintain")
def maintain(table: str, retention: timedelta, drop_raw_after: timedelta | None, start: Start) -> None:
    """Compact the table, remove files that no version needs any more, and migrate an old schema.

    If the newest rows next to the table are of no use any more, it reads the table for them.

    It also deletes observations again that `edge-history delete` has deleted, if another program brought them back.

    Run it about once a day. It can be killed at any time. An ingester commits between its steps; queries do not wait.

    \b
    edge-history maintain --table history
    edge-history maintain --table history --drop-raw-after 365d
    """
    spark = start()
    # This module imports PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.deletions import user
    from spark_offload.maintain import maintain as maintain_table

    drop = None
    if drop_raw_after is not None:
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        drop = (midnight - min(drop_raw_after, _LONGEST)).replace(hour=0, minute=0, second=0, microsecond=0)
    done = maintain_table(spark, table, retention=retention, drop=drop, by=user())
    if done.deleted:
        click.echo(f"deleted {done.deleted:,} observations")
    if done.columns:
        click.echo(f"added the columns {', '.join(done.columns)}")
    click.echo(f"compacted {done.compacted:,} files into {done.into:,}")
    for problem in done.problems:
        click.echo(problem, err=True)
