"""`edge-history serve`: serve the history to notebooks over Spark Connect."""

from __future__ import annotations

import click

from spark_offload.listen import Address, AddressType


@click.command()
@click.option("--table", required=True, help="Table of the history: a directory, or a URI that Spark supports.")
@click.option(
    "--listen", type=AddressType(), default="127.0.0.1:15002", show_default=True, help="Address to listen on."
)
@click.option("--master", default="local[*]", show_default=True, help="URL of the Spark master.")
def serve(table: str, listen: Address, master: str) -> None:
    """Serve the history to notebooks on machines that need no Java.

    The command prints the URL for clients. Each session has Delta Lake, and the history as the table `observations`:

    \b
    spark = SparkSession.builder.remote("sc://localhost:15002/;token=...").getOrCreate()
    spark.sql("select sensor, avg(value) from observations group by sensor").show()

    The token is the value of SPARK_CONNECT_AUTHENTICATE_TOKEN, or a new one at each start. Clients with the token can
    change the table. SIGTERM ends the server.
    """
    from spark_offload.serve import serve

    serve(table, listen, master, lambda url: click.echo(f"serving {table} on {url}"))
