"""`edge series`: recent values of observations, which the gateway keeps."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from edge.cli.bindings_table import columns, printable
from edge.cli.exit_codes import EXIT_CODES, misused, refused
from edge.cli.http import Answer, send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option
from edge.protocol.series import MOST_POINTS, USUAL_POINTS

_SUMMARY: Final = ("min", "max", "mean", "count")
"""Members of a row that summarises several values."""


@click.command(epilog=EXIT_CODES)
@click.argument("observations", metavar="[OBSERVATION]...", nargs=-1)
@click.option(
    "--from",
    "start",
    metavar="TIME",
    help="2030-01-31T12:00:00Z, now, or relative to now: -90s, -30m, -24h, -7d.  [default: -24h]",
)
@click.option("--to", "end", metavar="TIME", help="As for --from.  [default: now]")
@click.option(
    "--points",
    metavar="N|all",
    help=f"Maximum number of rows of an observation, 1 to {MOST_POINTS}; all prints the rows as stored.  "
    f"[default: {USUAL_POINTS}]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV, for programs.")
@url_option
@data_dir_option
@timeout_option
def series(
    observations: tuple[str, ...],
    start: str | None,
    end: str | None,
    points: str | None,
    as_json: bool,
    as_csv: bool,
    url: str | None,
    data_dir: Path | None,
    timeout: float,
) -> None:
    """Show the recent values of observations (IRIs). Without OBSERVATION: list those that have recent values.

    \b
    edge series
    edge series http://example.org/kitchen-temperature --from -2h
    edge series http://example.org/kitchen-temperature --points all --csv > kitchen.csv
    """
    if as_json and as_csv:
        raise misused("--json and --csv exclude each other; give one of them")
    options = [(name, value) for name, value in (("from", start), ("to", end), ("points", points)) if value is not None]
    if not observations and options:
        raise misused("--from, --to and --points need an observation; `edge series` lists those with recent values")
    parameters = urlencode([*(("observation", observation) for observation in observations), *options])
    endpoint = http_endpoint(url, data_dir, "api/series") + (f"?{parameters}" if parameters else "")
    accept = {"Accept": "text/csv" if as_csv else "application/json"}
    answer = send("GET", endpoint, None, accept, timeout)
    if as_csv:
        _print_csv(answer)
        return
    found = answer.json()
    try:
        lines = list(_blocks(found) if observations else _listing(found["series"]))
        unknown = [printable(observation) for observation in found.get("unknown", ())]
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _not_a_gateway() from None
    click.echo(json.dumps(found) if as_json else "\n".join(lines))
    # Last, because the values of the other observations are printed.
    if unknown:
        raise refused(
            f"no recorded values of {', '.join(unknown)}; `edge series` lists the observations that have some"
        )


def _print_csv(answer: Answer) -> None:
    if answer.media_type != "text/csv":
        raise _not_a_gateway()
    # Bytes as received: CSV is UTF-8 here, and the terminal's encoding may be another.
    sys.stdout.buffer.write(answer.body)
    sys.stdout.buffer.flush()


def _listing(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        yield "(no recent values)"
        return
    graphs = any(one["graph"] for one in found)
    rows = [("observation", *(["graph"] if graphs else []), "kind", "from", "to")]
    for one in found:
        graph = [printable(one["graph"])] if graphs else []
        times = (_local_time(one["from"]), _local_time(one["to"]))
        rows.append((printable(one["observation"]), *graph, printable(one["kind"]), *times))
    yield from columns(rows)


def _blocks(found: dict[str, Any]) -> Iterator[str]:
    period = f"from {_local_time(found['from'])} to {_local_time(found['to'])}"
    for number, one in enumerate(found["series"]):
        if number:
            yield ""
        graph = f" in graph {printable(one['graph'])}" if one["graph"] else ""
        step = f", one row per {one['step']:g} s" if one["step"] is not None else ""
        yield f"{printable(one['observation'])}{graph}{step}"
        yield from _table(one["rows"]) if one["rows"] else [f"(no values {period})"]
    if not found["series"]:
        yield f"(no values {period})"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    # Rows as stored may have none of these, and texts have only the count.
    summary = [name for name in _SUMMARY if any(name in row for row in rows)]
    lines = [("time", "value", *summary)]
    for row in rows:
        value = "(gap)" if row["value"] is None else _cell(row["value"])
        lines.append((_local_time(row["time"]), value, *(_cell(row.get(name, "")) for name in summary)))
    return columns(lines)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Ten digits are more than sensors have, and hide the rounding errors of means.
    return f"{value:.10g}" if isinstance(value, float) else printable(str(value))


def _local_time(text: str) -> str:
    """Return a readable timestamp in the time zone of this machine."""
    return datetime.fromisoformat(text).astimezone().isoformat(" ", "milliseconds")


def _not_a_gateway() -> Exception:
    return refused("the answer is not that of a gateway; is --url right?")
