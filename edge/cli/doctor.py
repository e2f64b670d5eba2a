"""`edge doctor`: problems of the gateway and its host, with reasons and remedies."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from edge.cli.bindings_table import printable
from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.exit_codes import REFUSED
from edge.cli.gateway_requests import requests_to
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.doctor import Finding

_CODES: Final = """\b
Exit codes:
  0  no problems; there may be warnings and checks without a result
  1  at least one problem
  2  wrong command line or settings
"""
_COLOURS: Final = {"ok": "green", "warning": "yellow", "problem": "red", "unknown": "cyan"}


@click.command(epilog=_CODES)
@click.option(
    "--fix",
    is_flag=True,
    help="Fix what is safe to fix: modes and owners of files, leftover files. No data is deleted.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON array, for programs.")
@config_option
@data_dir_of_gateway
def doctor(fix: bool, as_json: bool, file: Path | None, data_dir: Path | None) -> None:
    """Check the gateway and its host for problems.

    Checks gateway, restarts, disk, card, files, clock, broker, certificates, backlog, memory, temperature and units.
    Each finding has the state, why it matters, and the remedy.

    Run it on the gateway's host, as the user of the gateway or as root. The gateway may run or not. With security,
    set EDGE_TOKEN to the token of a client that may administer.

    \b
    edge doctor
    sudo edge doctor --fix --config /etc/sepa-edge/edge.toml
    """
    settings = load_settings(file, data_dir).settings

    from edge.doctor import DoctorContext, examine

    rows: list[dict[str, Any]] = []
    for name, finding in examine(DoctorContext(settings, requests_to(settings.data_dir))):
        # Each line is printed at once: some checks wait for the gateway or the broker.
        rows.append(_row(name, finding, fix=fix))
        if not as_json:
            _print(rows[-1])
    if as_json:
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    if any(row["state"] == "problem" and not row["fixed"] for row in rows):
        sys.exit(REFUSED)


def _row(name: str, finding: Finding, *, fix: bool) -> dict[str, Any]:
    # A fix that fails must not hide the other findings.
    fixed = failed = ""
    if fix and finding.fix is not None:
        try:
            finding.fix()
            fixed = finding.done
        except (OSError, EdgeError) as error:
            failed = str(error)
    return {
        "check": name,
        **finding.row(),
        "do": f"{finding.do} (not done: {failed})" if failed else finding.do,
        "fixable": "yes" if finding.fix is not None else "no",
        "fixed": fixed,
        "failed": failed,
    }


def _print(row: dict[str, Any]) -> None:
    state = click.style(f"{row['state']:<8}", fg=_COLOURS[row["state"]])
    click.echo(f"{state} {row['check']:<13} {printable(row['what'])}")
    for name in ("why", "do", "fixed"):
        if row[name] and not (name == "do" and row["fixed"]):
            click.echo(f"{'':<23}{name}: {printable(row[name])}")
    if row["fixable"] == "yes" and not row["fixed"]:
        click.echo(f"{'':<23}--fix does that")
