"""`edge subscribe`: the notifications of a subscription, printed as they arrive."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from edge.cli import bindings_table
from edge.cli.exit_codes import EXIT_CODES
from edge.cli.http import dataset_options
from edge.cli.locate import data_dir_option
from edge.cli.source import SOURCE_HELP, read_source
from edge.command_line import TEXT_OR_FILE

Notification = dict[str, Any]
"""The content of `notification` in a message of the protocol."""


@click.command(
    epilog=EXIT_CODES,
    help=f"""Subscribe to a SPARQL query and print its notifications. {SOURCE_HELP}

    The first notification has all results, the next ones added (+) and removed (-) rows. Ctrl-C ends it.

    \b
    edge subscribe 'SELECT * WHERE {{ ?s <urn:state> ?state }}'
    edge subscribe --json @lamps.rq | jq .addedResults
    """,
)
@click.argument("text", type=TEXT_OR_FILE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on each line, as the gateway sent it.")
@click.option("--alias", metavar="NAME", help="A name that every notification repeats.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after this many notifications.")
@click.option("--reconnect", is_flag=True, help="When the connection breaks, reconnect and subscribe again.")
@dataset_options("default-graph-uri", "named-graph-uri")
@click.option(
    "--ws", envvar="EDGE_WS", metavar="URL", help="Address, e.g. ws://127.0.0.1:9000/subscribe.  [env: EDGE_WS]"
)
@data_dir_option
def subscribe(
    text: str,
    as_json: bool,
    alias: str | None,
    count: int | None,
    reconnect: bool,
    default_graphs: tuple[str, ...],
    named_graphs: tuple[str, ...],
    ws: str | None,
    data_dir: Path | None,
) -> None:
    """Subscribe and print notifications until stopped."""
    show: _Json | _People = _Json() if as_json else _People()
    try:
        from edge.cli.notifications import Request, notifications  # late: the client library is slow to import

        source = read_source(text)
        request = Request(source.text, alias or "edge-subscribe", default_graphs, named_graphs)
        with (
            source.positions(),
            contextlib.closing(notifications(request, ws, data_dir, reconnect=reconnect)) as received,
        ):
            for notification in itertools.islice(received, count):
                show(notification)
                # Each notification at once, also if the output is a pipe.
                sys.stdout.flush()
    except KeyboardInterrupt:
        return


class _Json:
    """Output for programs: the notification object on one line."""

    def __call__(self, notification: Notification) -> None:
        click.echo(json.dumps(notification, ensure_ascii=False, separators=(",", ":")))


class _People:
    """Output for people: a table that keeps its column widths from one notification to the next."""

    def __init__(self) -> None:
        self._widths: list[int] = []
        self._header: list[str] = []

    def __call__(self, notification: Notification) -> None:
        added, removed = notification["addedResults"], notification["removedResults"]
        variables = added["head"]["vars"]
        gone, new = removed["results"]["bindings"], added["results"]["bindings"]
        header, rule, *rows = bindings_table.lines(variables, [*gone, *new], widths=self._widths)
        time_ = datetime.now().astimezone().strftime("%H:%M:%S")
        click.secho(f"{time_} #{notification['sequence']}: {len(new)} added, {len(gone)} removed", dim=True)
        if rows and [header, rule] != self._header:
            self._header = [header, rule]
            click.echo(f"  {header}\n  {rule}")
        for row in rows[: len(gone)]:
            click.secho(f"- {row}", fg="red")
        for row in rows[len(gone) :]:
            click.secho(f"+ {row}", fg="green")
