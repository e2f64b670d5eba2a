"""`edge-history maintain`: compact and clean the table."""

from __future__ import annotations

from datetime import timedelta

import click

from spark_offload.cli.kinds import Length
from spark_offload.cli.spark import Start, with_spark


@click.command()
@click.option("--table", required=True, metavar="DIR", help="Table of the history.")
@click.option(
    "--retention", type=Length(), default="7d", show_default=True, help="How long to keep files of old versions."
)
@with_spark("maintain")
def maintain(table: str, retention: timedelta, start: Start) -> None:
    """Compact the table, remove files that no version needs any more, and migrate an old schema.

    Run it about once a day. It can be killed at any time. Ingestion must wait until it ends; queries do not wait.

    \b
    edge-history maintain --table history
    """
    spark = start()
    # This module imports PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.maintain import maintain as maintain_table

    done = maintain_table(spark, table, retention=retention)
    if done.columns:
        click.echo(f"added the columns {', '.join(done.columns)}")
    click.echo(f"compacted {done.compacted:,} files into {done.into:,}")
