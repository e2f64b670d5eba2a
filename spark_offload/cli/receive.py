"""`edge-history receive`: HTTP server that receives segments into the landing zone."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from spark_offload.cli.gateways import tokens_option
from spark_offload.gateways import Gateways
from spark_offload.http_server import serve, tls_context
from spark_offload.landing_http import LandingReceiver
from spark_offload.listen import Address, AddressType
from spark_offload.uploads import Uploads

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--landing",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Landing zone, from which `edge-history ingest` reads segments.",
)
@tokens_option
@click.option("--listen", type=AddressType(), default="127.0.0.1:8500", show_default=True, help="Address to listen on.")
@click.option("--certificate", type=_FILE, help="Certificate chain (PEM), for HTTPS.")
@click.option("--key", type=_FILE, help="Private key of the certificate (PEM).")
@click.option(
    "--max-segment-bytes", type=click.IntRange(1), default=64 << 20, show_default=True, help="Maximum size of a file."
)
@click.option(
    "--max-landing-bytes",
    type=click.IntRange(1),
    default=64 << 30,
    show_default=True,
    help="Maximum size of the landing zone.",
)
@click.option(
    "--max-connections", type=click.IntRange(1), default=500, show_default=True, help="Maximum open connections."
)
def receive(
    landing: Path,
    tokens: Path,
    listen: Address,
    certificate: Path | None,
    key: Path | None,
    max_segment_bytes: int,
    max_landing_bytes: int,
    max_connections: int,
) -> None:
    """Receive segments from gateways that share no file system with the landing zone.

    Each gateway has a token (`edge-history gateways add`) and may only send under its own name. Interrupted uploads
    resume where they stopped. The server needs neither Java nor Spark. SIGTERM ends it.
    """
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key go together")
    if certificate is None and not listen.loopback:
        raise click.UsageError(
            f"without TLS, tokens could be read on the way to {listen}: give --certificate and --key, or listen on"
            " 127.0.0.1 behind a proxy that has a certificate"
        )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    tls = tls_context(certificate, key) if certificate and key else None
    gateways = Gateways(tokens)
    if not gateways.all():
        click.echo(f"no gateway may send yet: edge-history gateways add NAME --tokens {tokens}", err=True)
    uploads = Uploads(landing, largest=max_segment_bytes, most=max_landing_bytes)
    serve(
        LandingReceiver(uploads, gateways).app(),
        listen,
        connections=max_connections,
        tls=tls,
        ready=lambda url: click.echo(f"receiving on {url}"),
    )
