"""`edge rescue`: report the readable part of a damaged journal, and continue from there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from edge.cli.bindings_table import printable
from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.exit_codes import refused
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.gateway.rescue import RescueReport

_CODES: Final = """\b
Exit codes:
  0  the file is sound, or --drop has made it so
  1  the file is damaged, or cannot be rescued: standard output or standard error says why
  2  wrong command line or settings
"""
_NAMES: Final = {
    "timers": "delayed updates",
    "timer_outcomes": "outcomes of delayed updates",
    "subscriptions": "durable subscriptions",
    "outbox": "observations that wait for the history",
}


@click.command(epilog=_CODES)
@click.option("--drop", is_flag=True, help="Continue with the readable part. A copy of the damaged file is kept.")
@config_option
@data_dir_of_gateway
def rescue(drop: bool, file: Path | None, data_dir: Path | None) -> None:
    """Report the readable part of a damaged data directory, and with --drop continue from there.

    A gateway whose journal file (edge.sqlite3) is damaged starts in rescue mode: it answers queries on the
    readable part, and accepts neither updates nor readings. Prefer to restore a backup (`edge restore`). Without one,
    stop the gateway, check the report of this command, and run it again with --drop. The graph then has its state
    after the last readable update; later updates are lost. The disk needs space for three copies of the file.

    \b
    sudo systemctl stop edge
    sudo -u sepa-edge edge rescue --data-dir /var/lib/sepa-edge
    sudo -u sepa-edge edge rescue --drop --data-dir /var/lib/sepa-edge
    sudo systemctl start edge
    """
    settings = load_settings(file, data_dir).settings

    from edge.gateway.rescue import rescue as rescue_file

    try:
        report = rescue_file(settings, drop=drop)
    except EdgeError as error:
        raise refused(printable(error.description)) from None
    click.echo("\n".join(map(printable, _lines(report))))
    # Exit code 1 without a message: the report on standard output names the reason.
    if report.fault and report.copy is None:
        raise click.exceptions.Exit(1)


def _lines(report: RescueReport) -> list[str]:
    if not report.fault:
        return [f"The file is sound: {report.quads} triples after update {report.sequence}. Nothing was changed."]
    lines = [report.fault, ""]
    if report.graph_fault:
        lines.append(f"graph: {report.quads} triples, as after update {report.sequence}; {report.graph_fault}")
    else:
        lines.append(f"graph: all of it, {report.quads} triples after update {report.sequence}")
    for table, name in _NAMES.items():
        kept, dropped = report.kept[table], report.dropped[table]
        if kept or dropped:
            lines.append(f"{name}: {kept} readable, {dropped} lost")
    if report.copy is None:
        return [*lines, "", "Nothing was changed. edge rescue --drop continues with the readable part."]
    return [*lines, "", f"The data directory now has this content. The damaged file is {report.copy}"]
