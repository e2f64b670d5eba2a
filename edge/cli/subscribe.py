"""`edge subscribe`: the notifications of a subscription, printed as they arrive."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from edge.cli import table
from edge.cli.failures import EXIT_CODES, UNREACHABLE, Failure, misused, refused, unreachable
from edge.cli.http import dataset_options, refusal
from edge.cli.locate import data_dir_option, locate
from edge.cli.source import SOURCE_HELP, read_source
from edge.cli.token import token_for

_RETRY: Final = 1.0
"""Seconds between two attempts to reconnect."""

Notification = dict[str, Any]


@click.command(
    epilog=EXIT_CODES,
    help=f"""Subscribe to a SPARQL query and print its notifications. {SOURCE_HELP}

    The first notification has all results, the next ones added (+) and removed (-) rows. Ctrl-C ends it.

    \b
    edge subscribe 'SELECT * WHERE {{ ?s <urn:state> ?state }}'
    edge subscribe --json @lamps.rq | jq .addedResults
    """,
)
@click.argument("text")
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
    body: dict[str, Any] = {"sparql": read_source(text), "alias": alias or "edge-subscribe"}
    if default_graphs:
        body["default-graph-uri"] = list(default_graphs)
    if named_graphs:
        body["named-graph-uri"] = list(named_graphs)
    show: _Json | _People = _Json() if as_json else _People()
    seen = 0
    try:
        for notification in _notifications(body, ws, data_dir, reconnect):
            show(notification)
            sys.stdout.flush()
            seen += 1
            if seen == count:
                return
    except KeyboardInterrupt:
        return


def _notifications(
    body: dict[str, Any], ws: str | None, data_dir: Path | None, reconnect: bool
) -> Iterator[Notification]:
    """Yield the notifications of a subscription; with `reconnect`, of one subscription after the other forever."""
    succeeded = False
    reported = False
    while True:
        try:
            # Look up the address each time: with port 0, a restarted gateway has other ports.
            url = ws if ws is not None else locate(data_dir).get("ws")
            for notification in _connection(url, body):
                succeeded, reported = True, False
                yield notification
        except Failure as failure:
            if not (reconnect and succeeded and failure.exit_code == UNREACHABLE):
                raise
            if not reported:
                click.echo(f"edge: {failure.message.splitlines()[0]}; trying again", err=True)
                reported = True
            time.sleep(_RETRY)


def _connection(url: str, body: dict[str, Any]) -> Iterator[Notification]:
    """Yield the notifications until the connection breaks, which raises `Failure`."""
    if (token := token_for(url)) is not None:
        body = {**body, "authorization": f"Bearer {token}"}

    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
    from websockets.sync.client import connect

    try:
        # Gateways are on the local network: no proxy. The results that the user requested may have any size.
        connection = connect(url, proxy=None, max_size=None, open_timeout=10)
    except InvalidURI:
        raise misused(f'"{url}" is not an address such as ws://127.0.0.1:9000/subscribe') from None
    except InvalidHandshake as error:
        raise refused(f"{url} does not support WebSocket ({error}); is --ws right?") from None
    except OSError as error:
        raise unreachable(url, error) from None
    with connection:
        try:
            connection.send(json.dumps({"subscribe": body}))
            for text in connection:
                yield _notification(text)
        except ConnectionClosed as error:
            reason = error.rcvd.reason if error.rcvd is not None and error.rcvd.reason else "it was lost"
            raise Failure(f"the connection to {url} ended: {reason}", UNREACHABLE) from None
    raise Failure(f"the connection to {url} ended: the gateway stopped", UNREACHABLE)


def _notification(text: str | bytes) -> Notification:
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    if isinstance(message, dict):
        found = message.get("notification")
        if isinstance(found, dict):
            return found
        if "error" in message:
            status = message.get("status_code")
            raise refusal(status if isinstance(status, int) else 0, text)
    raise refused("the answer is not that of a gateway; is --ws right?")


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
        header, rule, *rows = table.lines(variables, [*gone, *new], widths=self._widths)
        time_ = datetime.now().astimezone().strftime("%H:%M:%S")
        click.secho(f"{time_} #{notification['sequence']}: {len(new)} added, {len(gone)} removed", dim=True)
        if rows and [header, rule] != self._header:
            self._header = [header, rule]
            click.echo(f"  {header}\n  {rule}")
        for row in rows[: len(gone)]:
            click.secho(f"- {row}", fg="red")
        for row in rows[len(gone) :]:
            click.secho(f"+ {row}", fg="green")
