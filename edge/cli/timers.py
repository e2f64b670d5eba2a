"""`edge timers`: delayed updates and their outcomes."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import quote, urlencode

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import EXIT_CODES, misused, refused
from edge.cli.http import send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option
from edge.protocol.timers import DEFAULT_LISTED, MAX_LISTED, TimerState

_JSON: Final = {"Accept": "application/json"}
_PROLOGUE: Final = re.compile(r"\s*PREFIX\s+\S*\s*<[^>]*>", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@click.command(epilog=EXIT_CODES)
@click.argument("name", metavar="[ID]", required=False)
@click.option("--cancel", is_flag=True, help="Cancel the update ID.")
@click.option("--state", type=click.Choice(get_args(TimerState)), help="Only those in this state.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LISTED),
    default=DEFAULT_LISTED,
    show_default=True,
    help="Maximum number of entries.",
)
@click.option(
    "--client", metavar="NAME", help="The update ID belongs to this client; requires permission to administer."
)
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
@url_option
@data_dir_option
@timeout_option
def timers(
    name: str | None,
    cancel: bool,
    state: TimerState | None,
    limit: int,
    client: str | None,
    as_json: bool,
    url: str | None,
    data_dir: Path | None,
    timeout: float,
) -> None:
    """List, show and cancel delayed updates.

    Waiting ones come first, the next one at the top; then the outcomes of others, the newest first. Schedule one with
    `edge update --delay PT30S`.

    \b
    edge timers
    edge timers --state failed
    edge timers lamp-7-off
    edge timers lamp-7-off --cancel
    """
    if cancel and name is None:
        raise misused("--cancel needs the id of a delayed update; `edge timers` lists them")
    if client is not None and name is None:
        raise misused("--client needs the id of one of its delayed updates; `edge timers` lists them")
    if name is not None:
        whose = "" if client is None else "?" + urlencode({"client": client})
        # Also the slash is escaped: an id may contain it.
        _one(http_endpoint(url, data_dir, f"timers/{quote(name, safe='')}") + whose, as_json, timeout, cancel=cancel)
        return
    parameters: dict[str, object] = {"limit": limit} | ({} if state is None else {"state": state})
    endpoint = http_endpoint(url, data_dir, "timers") + f"?{urlencode(parameters)}"
    found = send("GET", endpoint, None, _JSON, timeout).json()
    try:
        lines = [json.dumps(found)] if as_json else _as_table(found["timers"])
    except (KeyError, TypeError, ValueError):
        raise _not_a_gateway() from None
    click.echo("\n".join(lines))


def local_time(microseconds: int) -> str:
    """Return a readable timestamp in the time zone of this machine."""
    # Exact to the microsecond, unlike `datetime.fromtimestamp`, which takes a float.
    return (_EPOCH + timedelta(microseconds=microseconds)).astimezone().isoformat(" ", "milliseconds")


def _one(endpoint: str, as_json: bool, timeout: float, *, cancel: bool) -> None:
    found = send("DELETE" if cancel else "GET", endpoint, None, _JSON, timeout).json()
    if as_json:
        click.echo(json.dumps(found))
        return
    try:
        text = f"{printable(found['cancelled']['id'])} is cancelled" if cancel else "\n".join(_as_lines(found["timer"]))
    except (KeyError, TypeError, ValueError):
        raise _not_a_gateway() from None
    click.echo(text)


def _as_table(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return ["(no delayed updates)"]
    secured = any("client" in one for one in found)  # only with security
    rows: list[tuple[str, ...]] = [("at", "state", "id", *(["client"] if secured else []), "")]
    for one in found:
        client = [printable(one.get("client", ""))] if secured else []
        rows.append((local_time(one["at"]), one["state"], printable(one["id"]), *client, _outcome(one)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows
    ]


def _outcome(timer: dict[str, Any]) -> str:
    if timer["state"] == "failed":
        return printable(timer["error_description"])
    if timer["state"] == "done":
        return f"{timer['added']} added, {timer['removed']} removed"
    # Declarations would fill the column before the update itself begins.
    return printable(" ".join(_PROLOGUE.sub("", timer.get("sparql", "")).split()))[:80]


def _as_lines(timer: dict[str, Any]) -> list[str]:
    shown: dict[str, Any] = dict(timer)
    shown |= {name: local_time(timer[name]) for name in ("at", "scheduled", "finished") if name in timer}
    text = str(shown.pop("sparql", ""))
    lines = [f"{name:<18} {printable(str(value))}" for name, value in shown.items()]
    return [*lines, "", *map(printable, text.splitlines())] if text else lines


def _not_a_gateway() -> Exception:
    return refused("the answer is not that of a gateway; is --url right?")
