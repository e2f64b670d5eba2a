"""`edge-history gateways`: who may send segments to `edge-history receive`."""

from __future__ import annotations

from pathlib import Path

import click

from spark_offload.gateways import Gateways

tokens_option = click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file with the gateways and what their tokens are checked with.",
)


@click.group()
def gateways() -> None:
    """Say which gateways may send segments to `edge-history receive`, which follows at once.

    \b
    edge-history gateways add street-7 --tokens gateways.json
    edge-history gateways list --tokens gateways.json
    edge-history gateways remove street-7 --tokens gateways.json
    """


@gateways.command()
@click.argument("name")
@tokens_option
def add(name: str, tokens: Path) -> None:
    """Let a gateway in, and print its token. It is shown this once; put it into `offload.token` of the gateway."""
    click.echo(Gateways(tokens).add(name))


@gateways.command("list")
@tokens_option
def list_(tokens: Path) -> None:
    """Show the gateways, and since when they have a token."""
    found = Gateways(tokens).all()
    width = max(map(len, found), default=0)
    for name, entry in found.items():
        click.echo(f"{name:<{width}}  {entry.since}")
    if not found:
        click.echo("(no gateways; `edge-history gateways add NAME` lets one in)", err=True)


@gateways.command()
@click.argument("name")
@tokens_option
def remove(name: str, tokens: Path) -> None:
    """Make a gateway's token void."""
    Gateways(tokens).remove(name)
