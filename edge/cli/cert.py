"""`edge cert`: the gateway's certificate, and the local authority that signs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.exit_codes import EXIT_CODES, refused
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.security.certificates import Files


@click.group(epilog=EXIT_CODES)
def cert() -> None:
    """Create and show the gateway's certificate, and the local authority that signs it."""


@cert.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@config_option
@data_dir_of_gateway
def init(names: tuple[str, ...], file: Path | None, data_dir: Path | None) -> None:
    """Create a certificate for these host names and addresses, and an authority if necessary.

    The certificate always includes localhost, this machine's name and the names of the previous one. Clients must
    trust the authority's certificate, ca.pem. A running gateway loads the new certificate within seconds.

    \b
    edge cert init gateway.example.org 192.168.1.5
    """
    from edge.security import certificates

    directory = load_settings(file, data_dir).settings.tls_dir
    try:
        files = certificates.make(directory, names)
        _show(files)
    except EdgeError as error:
        raise refused(error.description) from None


@cert.command()
@config_option
@data_dir_of_gateway
def show(file: Path | None, data_dir: Path | None) -> None:
    """Show the names and the expiry date of the certificate."""
    from edge.security import certificates

    directory = load_settings(file, data_dir).settings.tls_dir
    try:
        _show(certificates.Files(directory))
    except EdgeError as error:
        raise refused(error.description) from None


def _show(files: Files) -> None:
    from edge.security import certificates

    click.echo(f"trust      {files.authority}")
    click.echo(f"names      {', '.join(certificates.names(files.server))}")
    click.echo(f"valid to   {certificates.ends(files.server).date()}")
