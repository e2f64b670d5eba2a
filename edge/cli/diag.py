"""`edge diag collect`: diagnostic data in one archive, without secrets."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from edge.cli.bindings_table import printable
from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.exit_codes import refused
from edge.cli.gateway_requests import requests_to

_CODES = """\b
Exit codes:
  0  the archive is written; it lists the data that was not available
  1  the archive cannot be written: standard error says why
  2  wrong command line or settings
"""


@click.group()
def diag() -> None:
    """Collect diagnostic data."""


@diag.command(epilog=_CODES)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="The archive to write, a .tar.gz."
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A log file of the gateway, if it does not log to the journal of systemd; may repeat.",
)
@config_option
@data_dir_of_gateway
def collect(out: Path | None, logs: tuple[Path, ...], file: Path | None, data_dir: Path | None) -> None:
    """Write an archive with the doctor's findings, settings, health, metrics, the last log lines and facts of the host.

    Passwords, tokens and keys are removed. Names of files and topics are not, so check the archive before you share
    it. It contains no graph data. The gateway may run or not. The command takes at most a minute. For EDGE_TOKEN see
    `edge doctor`.

    \b
    edge diag collect --out fault.tar.gz
    """
    loaded = load_settings(file, data_dir)

    from edge.doctor import DoctorContext
    from edge.doctor.redaction import Redactor, secrets_of
    from edge.doctor.support_bundle import collect as write

    settings = loaded.settings
    target = out if out is not None else Path(f"edge-diag-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar.gz")
    around = DoctorContext(settings, requests_to(settings.data_dir))
    redactor = Redactor(secrets_of(settings, os.environ))
    try:
        names = write(around, redactor, target, sources=loaded.origins, logs=logs)
    except OSError as error:
        raise refused(f"{target} cannot be written: {error.strerror or error}") from None
    click.echo(f"{printable(str(target))} holds {', '.join(names)}")
