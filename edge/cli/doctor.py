"""`edge doctor`: what is wrong with the gateway and its machine, why it matters, and what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from edge.cli.asking import asked
from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.failures import REFUSED
from edge.cli.table import printable
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.doctor import Finding

_CODES: Final = """\b
Exit codes:
  0  there is no problem; there may be warnings, and what could not be looked at
  1  there is a problem
  2  wrong command line or settings
"""
_COLOURS: Final = {"ok": "green", "warning": "yellow", "problem": "red", "unknown": "cyan"}


@click.command(epilog=_CODES)
@click.option("--fix", is_flag=True, help="Do what is safe: modes and owners of files, left-overs. No data is deleted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, for programs.")
@config_option
@data_dir_of_gateway
def doctor(fix: bool, as_json: bool, file: Path | None, data_dir: Path | None) -> None:
    """Look whether all is well with the gateway and with the machine that it runs on.

    Gateway, restarts, disk, card, files, clock, broker, certificates, backlog, memory, temperature, units: what is so,
    why it matters, what to do.

    To be run on the machine of the gateway, by the user that runs it or by root, whether it runs or not. Where the
    gateway wants to know who asks, the variable EDGE_TOKEN holds the token of a client that may administer.

    \b
    edge doctor
    sudo edge doctor --fix --config /etc/sepa-edge/edge.toml
    """
    settings = load_settings(file, data_dir).settings

    from edge.doctor import Context, examine

    rows: list[dict[str, str]] = []
    for name, finding in examine(Context(settings, asked(settings.data_dir))):
        rows.append(_row(name, finding, fix=fix))
        if not as_json:
            _tell(rows[-1])
    if as_json:
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    if any(row["state"] == "problem" and not row["fixed"] for row in rows):
        sys.exit(REFUSED)


def _row(name: str, finding: Finding, *, fix: bool) -> dict[str, str]:
    fixed = failed = ""
    if fix and finding.fix is not None:
        try:
            fixed = finding.fix()
        except (OSError, EdgeError) as error:
            failed = str(error)
    return {
        "check": name,
        "state": finding.state,
        "what": finding.what,
        "why": finding.why,
        "do": f"{finding.do} (not done: {failed})" if failed else finding.do,
        "fixable": "yes" if finding.fix is not None else "no",
        "fixed": fixed,
    }


def _tell(row: dict[str, str]) -> None:
    state = click.style(f"{row['state']:<8}", fg=_COLOURS[row["state"]])
    click.echo(f"{state} {row['check']:<13} {printable(row['what'])}")
    for name in ("why", "do", "fixed"):
        if row[name] and not (name == "do" and row["fixed"]):
            click.echo(f"{'':<23}{name}: {printable(row[name])}")
    if row["fixable"] == "yes" and not row["fixed"]:
        click.echo(f"{'':<23}--fix does that")
