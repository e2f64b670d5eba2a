"""Notifications of a subscription, received with the client library, and the errors of its connection."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from edge.cli.exit_codes import UNREACHABLE, Failure, misused, refused, unreachable
from edge.cli.http import refusal
from edge.cli.locate import locate
from edge.cli.token import token_for
from edge.client import (
    ClientError,
    Endpoints,
    NoConnection,
    Notification,
    Options,
    Refused,
    Row,
    SyncClient,
    SyncSubscription,
)
from edge.protocol.results import results_to_json

_STARTING: Final = 503
"""Status of a gateway that starts or stops."""


@dataclass(frozen=True)
class Request:
    """A query to subscribe to."""

    sparql: str
    alias: str
    """Name that every notification repeats."""
    default_graphs: tuple[str, ...]
    named_graphs: tuple[str, ...]


def notifications(
    request: Request, ws: str | None, data_dir: Path | None, *, reconnect: bool
) -> Generator[dict[str, Any]]:
    """Yield the notifications in the form of the protocol. Ends only with an exception: raises `Failure`."""
    gateway = ClientGateway(ws, data_dir, reconnect=reconnect)
    try:
        with (
            SyncClient(gateway.endpoints(), options=gateway.options()) as client,
            client.subscribe(
                request.sparql,
                default_graphs=request.default_graphs or None,
                named_graphs=request.named_graphs or None,
                resume=reconnect,
                restart=True,
            ) as subscription,
        ):
            gateway.subscribed = True
            sequence = 0
            for notification in subscription:
                # The gateway numbers its notifications, also those that it or the client has merged into one.
                sequence = sequence + notification.merged if notification.sequence else 0
                yield _message(request.alias, sequence, subscription, notification)
    except ClientError as error:
        raise failure(error) from None


class ClientGateway:
    """Address of the gateway, and the decision whether to reconnect to it."""

    def __init__(self, ws: str | None, data_dir: Path | None, *, reconnect: bool) -> None:
        self._ws = ws
        self._data_dir = data_dir
        self._reconnect = reconnect
        # The command reports failures itself. Without a handler, Python prints the library's log to standard error.
        logging.getLogger("edge.client").addHandler(logging.NullHandler())
        self.subscribed = False
        """Whether the gateway has answered. Until then, each failure ends the command."""

    def endpoints(self) -> Endpoints:
        """Return the address for the client. Raises `Failure`."""
        url = self._locate()
        try:
            return Endpoints(subscribe=url)
        except ValueError:
            raise misused(f'"{url}" is not an address such as ws://127.0.0.1:9000/subscribe') from None

    def options(self) -> Options:
        """Return the options of the client. Raises `Failure`."""
        token = token_for(self._locate())
        return Options(
            token=None if token is None else lambda: token,
            # Look up the address each time: with port 0, a restarted gateway has other ports.
            locate=None if self._ws is not None else self._locate,
            on_failure=self._continues,
        )

    def _locate(self, _: str = "") -> str:
        url = self._ws if self._ws is not None else locate(self._data_dir).get("ws")
        token_for(url)  # a token is not sent unencrypted, wherever the gateway is now
        return url

    def _continues(self, error: ClientError) -> bool:
        """Report a lost connection, and return whether the client tries again."""
        # Only after a first success: a wrong address would otherwise be tried forever.
        if not self._reconnect or not self.subscribed:
            return False
        if isinstance(error, Refused):
            return error.status_code == _STARTING
        found = failure(error)
        if found.exit_code != UNREACHABLE:
            return False
        if isinstance(error, NoConnection) and error.lost:
            click.echo(f"edge: {found.message.splitlines()[0]}; trying again", err=True)
        return True


def failure(error: ClientError) -> Failure:
    """Return the error of the command for an error of the client."""
    cause = error.__cause__ if isinstance(error, NoConnection) else error
    if isinstance(cause, Failure):
        return cause
    if isinstance(cause, Refused):
        return refusal(cause.status_code, " ".join(cause.description.split()))
    if not isinstance(error, NoConnection):
        return refused("the answer is not that of a gateway; is --ws right?")
    if error.lost:
        reason = error.close_reason or ("the gateway stopped" if cause is None else "it was lost")
        return Failure(f"the connection to {error.url} ended: {reason}", UNREACHABLE)
    if isinstance(cause, OSError):
        return unreachable(error.url, cause)
    return refused(f"{error.url} does not support WebSocket ({cause}); is --ws right?")


def _message(alias: str, sequence: int, subscription: SyncSubscription, notification: Notification) -> dict[str, Any]:
    """Return a notification in the form of the protocol."""

    def results(rows: tuple[Row, ...]) -> Any:  # noqa: ANN401 - JSON
        variables = subscription.variables
        return json.loads(results_to_json(variables, (tuple(map(row.get, variables)) for row in rows)))

    return {
        "spuid": subscription.spuid,
        "alias": alias,
        "sequence": sequence,
        **({"merged": notification.merged} if notification.merged > 1 else {}),
        "addedResults": results(notification.added),
        "removedResults": results(notification.removed),
    }
