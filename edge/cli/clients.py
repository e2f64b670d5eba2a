"""`edge clients`: who may come in, and what they may do.

The commands work on the file in the data directory, with or without a gateway that runs; one that does follows at once.
Whoever may read that file is the operator: there is no password for this, and no way to it over the network.
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

from edge.cli.config import config_option, data_dir_of_gateway
from edge.cli.failures import EXIT_CODES
from edge.cli.oscore import oscore
from edge.cli.rights import as_json, rights_options, shown
from edge.cli.security import check_issuer, opened

if TYPE_CHECKING:
    from edge.security.clients import Client, Rights

_Command = TypeVar("_Command", bound=Callable[..., Any])

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST: Final = 3650
"""Days that a code or token is good at the most."""


class _Duration(click.ParamType[int]):
    """A time as people write it; in seconds."""

    name = "TIME"

    def __init__(self, least: int = 1) -> None:
        self._least = least

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,9})([smhd])", value)
        if match is None:
            self.fail(f'"{value}" is no duration: write 90s, 10m, 24h or 7d', param, ctx)
        seconds = int(match[1]) * _UNITS[match[2]]
        if seconds < self._least:
            self.fail(f'"{value}" is no time at all: nobody could use it', param, ctx)
        if seconds > _LONGEST * _UNITS["d"]:
            self.fail(f'"{value}" is too long: {_LONGEST}d is the longest time', param, ctx)
        return seconds


def _where(command: _Command) -> _Command:
    return config_option(data_dir_of_gateway(command))


_issuer: Final = click.option(
    "--issuer", metavar="URL", default="", help="The client is one of this authorisation server (issuer.url)."
)


@click.group(epilog=EXIT_CODES)
def clients() -> None:
    """Say who may come in and what they may do, where security.enabled is set.

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

    "until" is when the code of an invited client ends, or the last token that `edge clients token` printed for one;
    a code that has ended makes it "expired". "oscore" is whether it has keys for CoAP.
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
    rows = [
        ("identity", "state", "since", "until", "oscore", "may", "sees", "changes", "publishes", "hears", "priority"),
        *(listed.as_row() for listed in found),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows if found else []:
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    if not found:
        click.echo("(no clients; `edge clients invite NAME` lets one in)")


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
    """Let whoever says this name first register, or change what a client may do.

    Names can be guessed; `edge clients invite` is safer. With --issuer nobody registers: the client has its tokens
    from there.
    """
    check_issuer(issuer, file, data_dir)
    with opened(file, data_dir) as security:
        clients = security.clients
        client = clients.trust(issuer, identity, rights) if issuer else clients.allow(identity, rights)
    done = "may register" if client.state == "allowed" else "has these rights now"
    click.echo(f"{client.identity} {done}")


@clients.command()
@click.argument("identity")
@click.option(
    "--for",
    "seconds",
    type=_Duration(),
    default="24h",
    show_default=True,
    help="How long the code is good.",
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
    """Print a code with which a client registers as IDENTITY, once: it gives the code as its client_identity."""
    with opened(file, data_dir) as security:
        click.echo(security.clients.invite(identity, rights, seconds))


@clients.command("open")
@click.option("--for", "seconds", type=_Duration(0), required=True, help="How long; 0s ends it.")
@rights_options
@_where
def open_(
    seconds: int,
    rights: Rights,
    file: Path | None,
    data_dir: Path | None,
) -> None:
    """Let everybody who is not known yet register for a time, with these rights."""
    with opened(file, data_dir) as security:
        security.clients.open(rights, seconds)
    until = (datetime.now().astimezone() + timedelta(seconds=seconds)).isoformat(" ", "seconds")
    click.echo(f"new clients may register until {until}" if seconds else "new clients may not register any more")


@clients.command()
@click.argument("identity")
@_issuer
@_where
def revoke(identity: str, issuer: str, file: Path | None, data_dir: Path | None) -> None:
    """End all rights of a client: its tokens, its secret, its subscriptions, its delayed updates, its code."""
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
    """Print a token of a client that is allowed or registered, for programs that cannot ask for one themselves.

    \b
    export EDGE_TOKEN=$(edge clients token operator)
    """
    with opened(file, data_dir) as security:
        click.echo(security.token(identity, seconds))


@clients.command("rotate-key")
@click.option("--now", is_flag=True, help="End all tokens that were signed before: for a key that somebody else has.")
@_where
def rotate_key(now: bool, file: Path | None, data_dir: Path | None) -> None:
    """Sign tokens with a new key from now on. Those that were signed before stay valid until they end.

    With --now they end at once, and the subscriptions that began with them. Registered clients ask for new ones with
    their secrets; who was given a token (`edge clients token`) needs another.
    """
    with opened(file, data_dir) as security:
        security.keys.rotate(forget=now)
    ended = "; all tokens that were signed before have ended" if now else ""
    click.echo(f"tokens are signed with a new key from now on{ended}")


clients.add_command(oscore)


@dataclass(frozen=True)
class _Listed:
    """A client as it is shown."""

    client: Client
    until: int | None
    """When its code or token ends, in microseconds since 1970."""
    oscore: bool

    @property
    def state(self) -> str:
        """The state; of who did not use his code in time, that."""
        late = self.until is not None and self.until <= time.time_ns() // 1000
        return "expired" if late and self.client.state == "invited" else self.client.state

    def as_row(self) -> tuple[str, ...]:
        """For people."""
        until = "" if self.until is None else _moment(self.until)
        keys = "yes" if self.oscore else ""
        return self.client.identity, self.state, _moment(self.client.since), until, keys, *shown(self.client.rights)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "identity": self.client.identity,
            "state": self.state,
            "since": self.client.since,
            "until": self.until,
            "oscore": self.oscore,
            **as_json(self.client.rights),
        }


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).astimezone().isoformat(" ", "seconds")
