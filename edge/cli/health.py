"""`edge health`: does the gateway do its work, as an exit code; for scripts, units and updates that may be undone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import click

from edge.cli.failures import EXIT_CODES, USAGE, Failure
from edge.cli.http import send
from edge.cli.locate import data_dir_option, http_endpoint, url_option
from edge.cli.table import printable

_JSON: Final = {"Accept": "application/json"}
_BETWEEN: Final = 1.0
"""Seconds between two questions."""
_PATIENCE: Final = 10.0
"""Seconds for an answer."""


@click.command(epilog=EXIT_CODES)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Ask again for so long, until it does.  [default: 0, ask once]",
)
@url_option
@data_dir_option
def health(wait: float, url: str | None, data_dir: Path | None) -> None:
    """Say whether the gateway takes requests and all its parts move; exit code 0 where they do.

    \b
    edge health --wait 120
    """
    last = time.monotonic() + wait
    while True:
        try:
            found = send("GET", http_endpoint(url, data_dir, "health"), None, _JSON, _PATIENCE).json()
        except Failure as failure:
            if failure.exit_code != USAGE and time.monotonic() < last:  # what makes no sense now makes none later
                time.sleep(_BETWEEN)
                continue
            raise
        click.echo(_as_line(found))
        return


def _as_line(found: dict[str, Any]) -> str:
    parts = found.get("parts")
    count = f", {len(parts)} parts move" if isinstance(parts, dict) else ""
    return f"good: version {printable(str(found.get('version', 'unknown')))}{count}"
