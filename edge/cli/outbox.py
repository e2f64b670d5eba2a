"""`edge outbox`: observations that wait for the history, and their shipment."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import EXIT_CODES, refused
from edge.cli.http import send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option
from edge.cli.timers import local_time

_JSON: Final = {"Accept": "application/json"}
_HOURS: Final = 3600
_MINUTES: Final = 60


@click.group()
def outbox() -> None:
    """Show the observations that wait for the history, and ship them.

    Mappings (`store`) and updates that insert into the graph of the history store observations. The setting
    offload.to is their destination.
    """


@outbox.command(epilog=EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@url_option
@data_dir_option
@timeout_option
def status(as_json: bool, url: str | None, data_dir: Path | None, timeout: float) -> None:
    """Show waiting observations, their age, and the position that the history has acknowledged.

    \b
    edge outbox status
    """
    found = send("GET", http_endpoint(url, data_dir, "api/outbox"), None, _JSON, timeout).json()
    try:
        lines = [json.dumps(found)] if as_json else _as_lines(found)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise _not_a_gateway() from None
    click.echo("\n".join(lines))


@outbox.command(epilog=EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@url_option
@data_dir_option
@timeout_option
def ship(as_json: bool, url: str | None, data_dir: Path | None, timeout: float) -> None:
    """Ship waiting observations now, independent of the schedule, and print the result.

    If the landing zone does not accept them, the exit code is 1, and the gateway tries again later.

    \b
    edge outbox ship
    """
    found = send("POST", http_endpoint(url, data_dir, "api/outbox"), b"", _JSON, timeout).json()
    try:
        summary = f"{_count(found['observations'], 'observation')} shipped in {_count(found['segments'], 'segment')}"
        failure = str(found["failure"])
    except (KeyError, TypeError, ValueError):
        raise _not_a_gateway() from None
    click.echo(json.dumps(found) if as_json else summary)
    # Last, because the segments before the failed one were shipped.
    if failure:
        raise refused(f"{printable(failure)}; the gateway retries automatically")


def _as_lines(found: dict[str, Any]) -> list[str]:
    state = {
        "off": "off: offload.to is not set",
        "ships": f"ships to {printable(found['to'])}",
        "fails": f"fails: {printable(found['reason'])}",
    }[found["state"]]
    waiting = f"{_count(found['observations'], 'observation')}, {found['bytes'] / 1024:,.1f} KiB"
    if found["oldest"] is not None:
        waiting += f"; the oldest of {_when(found['oldest'])}"
    acknowledged = f"up to {found['acknowledged']:,}"
    if found["acknowledged_at"] is not None:
        acknowledged += f"; last at {local_time(found['acknowledged_at'])}"
    return [
        f"gateway       {printable(found['gateway'])}, epoch {printable(found['epoch'])}",
        f"state         {state}",
        f"waiting       {waiting}",
        f"dropped       {found['dropped']:,}",
        f"stored        up to {found['last']:,}",
        f"shipped       up to {found['shipped']:,}",
        f"acknowledged  {acknowledged}",
        f"since start   {_count(found['segments'], 'segment')} shipped, {_count(found['failures'], 'attempt')} failed",
    ]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _when(microseconds: int) -> str:
    """Return a timestamp and its age."""
    # The clocks of this machine and of the gateway may differ: never a negative age.
    seconds = max(0, round(datetime.now(UTC).timestamp() - microseconds / 1e6))
    if seconds < 2 * _MINUTES:
        ago = f"{seconds} s"
    elif seconds < 2 * _HOURS:
        ago = f"{seconds // _MINUTES} min"
    else:
        ago = f"{seconds // _HOURS} h"
    return f"{local_time(microseconds)} ({ago} ago)"


def _not_a_gateway() -> Exception:
    return refused("the answer is not that of a gateway; is --url right?")
