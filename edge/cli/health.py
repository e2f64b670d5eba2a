"""`edge health`: the health of the gateway as an exit code, for scripts, units and update rollbacks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import EXIT_CODES, USAGE, Failure
from edge.cli.http import send
from edge.cli.locate import data_dir_option, http_endpoint, url_option

_JSON: Final = {"Accept": "application/json"}
_BETWEEN: Final = 1.0
"""Seconds between two requests."""
_PATIENCE: Final = 10.0
"""Timeout of a request in seconds."""


@click.command(epilog=EXIT_CODES)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Repeat for this time until it is healthy.  [default: 0, one request]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer of the gateway, for programs.")
@url_option
@data_dir_option
def health(wait: float, as_json: bool, url: str | None, data_dir: Path | None) -> None:
    """Check that the gateway accepts requests and that all its components make progress: exit code 0.

    A broker or a device that is not connected is named, and does not change the exit code.

    \b
    edge health --wait 120
    edge health --json | jq .parts
    """
    last = time.monotonic() + wait
    while True:
        try:
            # The address is read again each time: a starting gateway writes the file with its addresses late.
            found = send("GET", http_endpoint(url, data_dir, "health"), None, _JSON, _PATIENCE).json()
        except Failure as failure:
            if failure.exit_code != USAGE and time.monotonic() < last:  # a wrong command line does not improve
                time.sleep(_BETWEEN)
                continue
            raise
        click.echo(json.dumps(found) if as_json else _as_line(found))
        if not as_json and (lost := _not_connected(found)):
            click.echo(f"not connected: {', '.join(lost)}; `edge doctor` says more")
        return


def _as_line(found: dict[str, Any]) -> str:
    parts = found.get("parts")
    count = f", {len(parts)} components make progress" if isinstance(parts, dict) else ""
    return f"healthy: version {printable(str(found.get('version', 'unknown')))}{count}"


def _not_connected(found: dict[str, Any]) -> list[str]:
    """Return what the gateway is not connected to at present. It stays healthy: a restart would not help."""
    lost = ["the MQTT broker"] if found.get("mqtt") == "disconnected" else []
    for kind, what in (("serial", "serial port"), ("modbus", "Modbus device")):
        states = found.get(kind)
        for name, state in states.items() if isinstance(states, dict) else ():
            if str(state).startswith("disconnected"):
                lost.append(f"{what} {printable(name)}")
    return lost
