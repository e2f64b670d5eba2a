"""`edge-history jars`: the Delta connector, fetched and checked."""

from __future__ import annotations

import click

from spark_offload import jars as parts


@click.command()
@click.option("--from", "source", default=parts.MAVEN_CENTRAL, show_default=True, help="Maven repository.")
def jars(source: str) -> None:
    """Fetch the Delta jars where they are missing, check them, and print where they are.

    Other commands do so themselves, from Maven Central. On a machine without the internet put the jars into the
    directory that this prints, or into the one that $EDGE_HISTORY_JARS names.
    """
    for path in parts.fetch(source):
        click.echo(path)
