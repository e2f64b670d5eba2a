"""`edge-history maintain`: looking after the table."""

from __future__ import annotations

from datetime import timedelta

import click

from spark_offload.cli.kinds import Length
from spark_offload.cli.spark import Start, with_spark


@click.command()
@click.option("--table", required=True, metavar="DIR", help="The history.")
@click.option("--retention", type=Length(), default="7d", show_default=True, help="Keep files of old versions.")
@with_spark("maintain")
def maintain(table: str, retention: timedelta, start: Start) -> None:
    """Compact the table, remove files that no version needs any more, and bring an old schema up to date.

    Once a day or so. It may be killed at any time. Ingesting waits meanwhile; asking does not.

    \b
    edge-history maintain --table history
    """
    spark = start()
    # With PySpark, which takes a while; not for --help.
    from spark_offload.maintain import maintain as look_after

    done = look_after(spark, table, retention=retention)
    if done.columns:
        click.echo(f"added the columns {', '.join(done.columns)}")
    click.echo(f"compacted {done.compacted:,} files into {done.into:,}")
