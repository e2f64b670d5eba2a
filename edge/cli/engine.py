"""`edge engine`: the cost of updates, phase by phase, and the processing mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from edge.cli.exit_codes import EXIT_CODES, refused
from edge.cli.http import send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option

_PHASES: Final = {
    "t_update": "compile the update, change the graph",
    "t_lutt": "find the subscriptions that the change affects (LUTT)",
    "t_booster": "update their results",
    "t_notify": "pass the notifications to the gates",
    "t_total": "all phases",
}
"""Members of `phases` in the response, and their meanings."""

_EPILOG: Final = "\n".join(
    [
        "\b",
        "Phases of an update:",
        *(f"  {name.upper():<10} {meaning}" for name, meaning in _PHASES.items()),
        "",
        EXIT_CODES,
    ]
)


@click.command(epilog=_EPILOG)
@click.option(
    "--processing",
    type=click.Choice(["sequential", "parallel"]),
    help="From now on, re-evaluate subscribed queries without incremental evaluation one by one, or in parallel. "
    "The setting engine.processing is the mode at the start.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@url_option
@data_dir_option
@timeout_option
def engine(processing: str | None, as_json: bool, url: str | None, data_dir: Path | None, timeout: float) -> None:
    """Show what updates have cost since the gateway started, phase by phase, and how they are processed.

    \b
    edge engine
    edge engine --processing sequential
    """
    endpoint = http_endpoint(url, data_dir, "api/engine")
    if processing is None:
        answer = send("GET", endpoint, None, {"Accept": "application/json"}, timeout)
    else:
        body = json.dumps({"processing": processing}).encode()
        answer = send("PUT", endpoint, body, {"Content-Type": "application/json"}, timeout)
    found = answer.json()
    try:
        lines = [json.dumps(found)] if as_json else _as_table(found)
    except (KeyError, TypeError, ValueError):
        raise refused("the answer is not that of a gateway; is --url right?") from None
    click.echo("\n".join(lines))


def _as_table(found: dict[str, Any]) -> list[str]:
    workers = f", {found['spu_workers']} threads" if found["processing"] == "parallel" else ""
    lines = [
        f"processing     {found['processing']}{workers}",
        f"booster        {found['booster']}",
        f"subscriptions  {found['subscriptions']:,} in {found['spus']:,} SPUs",
        f"updates        {found['updates']:,}, {found['pending_updates']:,} waiting",
        f"hits           {found['hits']:,} of SPUs by updates",
        f"notifications  {found['notifications']:,}",
        "",
        f"{'phase, in ms':<12} {'mean':>10} {'sigma':>10} {'min':>10} {'max':>10}",
    ]
    for name in _PHASES:
        values = (found["phases"][name][f"{column}_ms"] for column in ("mean", "sigma", "min", "max"))
        lines.append(f"{name.upper():<12} " + " ".join(f"{value:>10.3f}" for value in values))
    return lines
