"""`edge-history jars`: download and verify the jars of the Delta connector."""

from __future__ import annotations

import click

from spark_offload import jars as parts


@click.command()
@click.option("--from", "source", default=parts.MAVEN_CENTRAL, show_default=True, help="URL of a Maven repository.")
def jars(source: str) -> None:
    """Download missing Delta jars, verify their checksums, and print their paths.

    Other commands do this on their own, from Maven Central. On a machine without internet access, copy the jars into
    the printed directory, or into the directory in $EDGE_HISTORY_JARS.
    """
    for path in parts.fetch(source):
        click.echo(path)
