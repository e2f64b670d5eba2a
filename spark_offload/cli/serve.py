"""`edge-history serve`: serve the history to notebooks over Spark Connect, or over the SPARQL Protocol."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from spark_offload.cli.engines import ENGINES, embedded
from spark_offload.listen import Address, AddressType

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_CONNECT: Final = Address("127.0.0.1", 15002)
_SPARQL: Final = Address("127.0.0.1", 8600)
_BOTH: Final = ("sparql", "table", "listen", "master")
"""Options that do not need `--sparql`."""


@click.command()
@click.option("--table", required=True, help="Table of the history: a directory, or a URI that Spark supports.")
@click.option("--sparql", is_flag=True, help="Serve the SPARQL 1.1 Protocol over HTTP instead of Spark Connect.")
@click.option(
    "--listen", type=AddressType(), help=f"Address to listen on. [default: {_CONNECT}; with --sparql {_SPARQL}]"
)
@click.option("--master", default="local[*]", show_default=True, help="URL of the Spark master.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="spark",
    show_default=True,
    help="With --sparql: engine that answers. duckdb needs no Java, and refuses some queries. auto: DuckDB if it is"
    " installed and the table has up to 8 GiB on this machine; else Spark.",
)
@click.option(
    "--tokens",
    type=_FILE,
    help="With --sparql: file with the clients and the hashes of their tokens (`edge-history gateways add`). Without it"
    " all programs on this machine may query.",
)
@click.option("--certificate", type=_FILE, help="With --sparql: certificate chain (PEM), for HTTPS.")
@click.option("--key", type=_FILE, help="With --sparql: private key of the certificate (PEM).")
@click.option(
    "--query-timeout",
    type=click.FloatRange(0, 1100, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="With --sparql: maximum time of a query, including the transfer of its result.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="With --sparql: maximum solutions or triples of a result.",
)
@click.option(
    "--max-result-bytes",
    type=click.IntRange(1),
    default=1 << 30,
    show_default=True,
    help="With --sparql: maximum size of a result.",
)
@click.option(
    "--max-queries",
    type=click.IntRange(1, 100),
    default=8,
    show_default=True,
    help="With --sparql: maximum queries at the same time. A client with a token may have half of them.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="With --sparql: maximum open connections.",
)
@click.option(
    "--allow-origin",
    multiple=True,
    metavar="ORIGIN",
    help="With --sparql: origin of web pages that may query (CORS), such as https://yasgui.org; * for all; repeatable.",
)
@click.option(
    "--live",
    multiple=True,
    metavar="URL",
    help="With --sparql: query endpoint of a gateway, for SERVICE <URL> in queries; repeatable.",
)
def serve(
    table: str,
    sparql: bool,
    listen: Address | None,
    master: str,
    engine: str,
    tokens: Path | None,
    certificate: Path | None,
    key: Path | None,
    query_timeout: float,
    max_rows: int,
    max_result_bytes: int,
    max_queries: int,
    max_connections: int,
    allow_origin: tuple[str, ...],
    live: tuple[str, ...],
) -> None:
    """Serve the history to notebooks on machines that need no Java, or with --sparql to SPARQL clients.

    The command prints the URL for clients. Over Spark Connect each session has Delta Lake, and the history as the table
    `observations`:

    \b
    spark = SparkSession.builder.remote("sc://localhost:15002/;token=...").getOrCreate()
    spark.sql("select sensor, avg(value) from observations group by sensor").show()

    The token is the value of SPARK_CONNECT_AUTHENTICATE_TOKEN, or a new one at each start. Clients with the token can
    change the table. SIGTERM ends the server.

    With --sparql the server answers queries of the SPARQL 1.1 Protocol, and cannot change the table:

    \b
    edge-history serve --table history --sparql
    curl http://127.0.0.1:8600/sparql --data-urlencode query@hot.rq

    SERVICE <URL> { ... } queries the live graph of a gateway that --live names. For gateways that require a token, set
    EDGE_TOKEN.
    """
    if not sparql:
        _refuse_options_of_sparql()
        from spark_offload.serve import serve

        serve(table, listen or _CONNECT, master, lambda url: click.echo(f"serving {table} on {url}"))
        return
    address = listen or _SPARQL
    _check(address, tokens, certificate, key, allow_origin)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("uvicorn", "py4j"):
        logging.getLogger(name).setLevel(logging.WARNING)
    from spark_offload.live import GatewayEndpoint
    from spark_offload.sparql_endpoint.endpoint import EndpointLimits
    from spark_offload.sparql_endpoint.serving import EndpointSettings, serve_sparql

    settings = EndpointSettings(
        address,
        tokens,
        (certificate, key) if certificate and key else None,
        max_connections,
        allow_origin,
        EndpointLimits(query_timeout, max_rows, max_result_bytes, max_queries),
        [GatewayEndpoint(url, token=os.environ.get("EDGE_TOKEN", "").strip()) for url in live],
    )
    serve_sparql(
        table,
        settings,
        None if embedded(engine, table) else master,
        lambda url: click.echo(f"serving {table} on {url}"),
    )


def _refuse_options_of_sparql() -> None:
    context = click.get_current_context()
    for name in context.params:
        if name not in _BOTH and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --sparql")


def _check(
    address: Address, tokens: Path | None, certificate: Path | None, key: Path | None, origins: tuple[str, ...]
) -> None:
    """Raise a usage error for options that would expose the history."""
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key go together")
    if certificate is None and not address.loopback:
        raise click.UsageError(
            f"without TLS, tokens could be read on the way to {address}: give --certificate and --key, or listen on"
            " 127.0.0.1 behind a proxy that has a certificate"
        )
    if tokens is None and not address.loopback:
        raise click.UsageError(f"without --tokens, everybody could query on {address}: give a file of tokens")
    if tokens is None and "*" in origins:
        raise click.UsageError("--allow-origin '*' needs --tokens: any web page could read the history")
