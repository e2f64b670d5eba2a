"""`edge clients`: clients and their permissions.

The commands change the file in the data directory, whether or not the gateway runs; a running one applies changes at
once. Access to that file makes an operator: the commands need no password and do not work over the network.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from edge.cli.client_listing import ClientRow, listing
from edge.cli.config import config_option, data_dir_of_gateway
from edge.cli.exit_codes import EXIT_CODES
from edge.cli.oscore import oscore
from edge.cli.rights import as_json, rights_options, shown
from edge.cli.security import check_issuer, opened

if TYPE_CHECKING:
    from edge.security.clients import RegisteredClient, Rights

_Command = TypeVar("_Command", bound=Callable[..., Any])

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST: Final = 3650
"""Longest lifetime of a code or token, in days."""


class _Duration(click.ParamType[int]):
    """A duration such as 90s, 10m, 24h or 7d; the value is in seconds."""

    name = "TIME"

    def __init__(self, least: int = 1) -> None:
        self._least = least

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        # click may pass a value that is converted already.
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,9})([smhd])", value)
        if match is None:
            self.fail(f'"{value}" is not a duration: write 90s, 10m, 24h or 7d', param, ctx)
        seconds = int(match[1]) * _UNITS[match[2]]
        if seconds < self._least:
            self.fail(f'"{value}" is too short: the code or token could not be used', param, ctx)
        if seconds > _LONGEST * _UNITS["d"]:
            self.fail(f'"{value}" is too long: {_LONGEST}d is the longest time', param, ctx)
        return seconds


def _where(command: _Command) -> _Command:
    return config_option(data_dir_of_gateway(command))


_issuer: Final = click.option(
    "--issuer", metavar="URL", default="", help="The client has its tokens from this authorization server (issuer.url)."
)


@click.group(epilog=EXIT_CODES)
def clients() -> None:
    """Manage clients and their permissions. They apply with security.enabled.

    \b
    edge clients invite kitchen-sensor --action none --publish 'kitchen/#'
    edge clients allow dashboard --action query --action subscribe
    edge clients open --for 10m
    edge clients list
    edge clients revoke kitchen-sensor
    """


@clients.command("list")
@click.option("--json", "json_wanted", is_flag=True, help="JSON, for programs.")
@_where
def list_(json_wanted: bool, file: Path | None, data_dir: Path | None) -> None:
    """Show all clients.

    "until" is the expiry of an invitation code, or of the last token that `edge clients token` printed; times are those
    of this machine's time zone. The state is "expired" if an invitation was not used in time. "oscore" shows whether
    the client has keys for CoAP. The line below a client has its permissions.
    """
    with opened(file, data_dir) as security:
        clients, ends = security.clients.all(), security.clients.ends()
        found = [
            _Listed(client, ends.get(client.identity), security.contexts.kid(client.client_id) is not None)
            for client in clients
        ]
    if json_wanted:
        click.echo(json.dumps({"clients": [listed.as_json() for listed in found]}))
        return
    for line in listing([listed.as_row() for listed in found]) if found else []:
        click.echo(line)
    if not found:
        click.echo("(no clients; `edge clients invite NAME` adds one)")


@clients.command()
@click.argument("identity")
@_issuer
@rights_options
@_where
def allow(
    identity: str,
    issuer: str,
    rights: Rights,
    file: Path | None,
    data_dir: Path | None,
) -> None:
    """Allow the first client with this name to register, or change the permissions of a client.

    Names can be guessed; `edge clients invite` is safer. With --issuer the client does not register: it gets its
    tokens from that server.
    """
    check_issuer(issuer, file, data_dir)
    with opened(file, data_dir) as security:
        clients = security.clients
        client = clients.trust(issuer, identity, rights) if issuer else clients.allow(identity, rights)
    done = "may register" if client.state == "allowed" else "has these permissions now"
    click.echo(f"{client.identity} {done}")


@clients.command()
@click.argument("identity")
@click.option(
    "--for",
    "seconds",
    type=_Duration(),
    default="24h",
    show_default=True,
    help="How long the code is valid.",
)
@rights_options
@_where
def invite(
    identity: str,
    seconds: int,
    rights: Rights,
    file: Path | None,
    data_dir: Path | None,
) -> None:
    """Print an invitation code. A client registers once with it as its client_identity, and gets the name IDENTITY.

    Use it for programs that register themselves: they get a secret, with which they request tokens again and again. A
    program that only takes a token, such as `edge query` with EDGE_TOKEN, needs `edge clients allow` and
    `edge clients token` instead.

    \b
    edge clients invite kitchen-sensor --for 1h --action update
    """
    with opened(file, data_dir) as security:
        click.echo(security.clients.invite(identity, rights, seconds))


@clients.command("open")
@click.option("--for", "seconds", type=_Duration(0), required=True, help="How long; 0s ends it now.")
@rights_options
@_where
def open_(
    seconds: int,
    rights: Rights,
    file: Path | None,
    data_dir: Path | None,
) -> None:
    """Allow all new clients to register for a limited time, with these permissions."""
    with opened(file, data_dir) as security:
        security.clients.open(rights, seconds)
    until = (datetime.now().astimezone() + timedelta(seconds=seconds)).isoformat(" ", "seconds")
    click.echo(f"new clients may register until {until}" if seconds else "new clients may no longer register")


@clients.command()
@click.argument("identity")
@_issuer
@_where
def revoke(identity: str, issuer: str, file: Path | None, data_dir: Path | None) -> None:
    """Revoke a client: its tokens, secret, subscriptions, delayed updates and invitation code end."""
    check_issuer(issuer, file, data_dir)
    with opened(file, data_dir) as security:
        from edge.security.clients import foreign

        identity = foreign(issuer, identity) if issuer else identity
        security.clients.revoke(identity)
    click.echo(f"{identity} is revoked")


@clients.command()
@click.argument("identity")
@click.option(
    "--for",
    "seconds",
    type=_Duration(),
    help="How long it is valid.  [default: security.token_lifetime]",
)
@_where
def token(identity: str, seconds: int | None, file: Path | None, data_dir: Path | None) -> None:
    """Print a token of an allowed or registered client, for programs that cannot request one themselves.

    The token works at once and ends after its time; print another one then. It is not an invitation code
    (`edge clients invite`), with which a program registers once and then requests its tokens itself.

    \b
    edge clients allow operator
    export EDGE_TOKEN=$(edge clients token operator)
    """
    with opened(file, data_dir) as security:
        click.echo(security.token(identity, seconds))


@clients.command("rotate-key")
@click.option("--now", is_flag=True, help="Invalidate all existing tokens, for example after the key has leaked.")
@_where
def rotate_key(now: bool, file: Path | None, data_dir: Path | None) -> None:
    """Sign tokens with a new key from now on. Existing tokens stay valid until they expire.

    With --now existing tokens and their subscriptions end at once. Registered clients request new tokens with their
    secrets. Clients with a token of `edge clients token` need a new one.
    """
    with opened(file, data_dir) as security:
        security.keys.rotate(forget=now)
    ended = "; all earlier tokens are invalid" if now else ""
    click.echo(f"tokens are signed with a new key from now on{ended}")


clients.add_command(oscore)


@dataclass(frozen=True)
class _Listed:
    """Row of the list of clients."""

    client: RegisteredClient
    until: int | None
    """Expiry of its code or token, in microseconds since 1970."""
    oscore: bool

    @property
    def state(self) -> str:
        """State of the client; `expired` if the invitation was not used in time."""
        late = self.until is not None and self.until <= time.time_ns() // 1000
        return "expired" if late and self.client.state == "invited" else self.client.state

    def as_row(self) -> ClientRow:
        """Return the cells of the list."""
        until = "" if self.until is None else _local_time(self.until)
        may, sees, changes, publishes, hears, priority = shown(self.client.rights)
        rights = f"may {may}; sees {sees}; changes {changes}; publishes {publishes}; hears {hears}"
        cells = (self.state, _local_time(self.client.since), until, "yes" if self.oscore else "", priority)
        return ClientRow((self.client.identity, *cells), rights)

    def as_json(self) -> dict[str, object]:
        """Return the members of the JSON object."""
        return {
            "identity": self.client.identity,
            "state": self.state,
            "since": self.client.since,
            "until": self.until,
            "oscore": self.oscore,
            **as_json(self.client.rights),
        }


def _local_time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
