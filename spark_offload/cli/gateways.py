"""`edge-history gateways`: manage the gateways that may send segments to `edge-history receive`."""

from __future__ import annotations

from pathlib import Path

import click

from spark_offload.gateways import Gateways

tokens_option = click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="File with the gateways and the hashes of their tokens.",
)


@click.group()
def gateways() -> None:
    """Manage the gateways that may send segments to `edge-history receive`. Changes take effect at once.

    \b
    edge-history gateways add street-7 --tokens gateways.json
    edge-history gateways list --tokens gateways.json
    edge-history gateways remove street-7 --tokens gateways.json
    """


@gateways.command()
@click.argument("name")
@tokens_option
def add(name: str, tokens: Path) -> None:
    """Add a gateway and print its token.

    The token is printed only once. Store it in the setting `offload.token` of the gateway.
    """
    click.echo(Gateways(tokens).add(name))


@gateways.command("list")
@tokens_option
def list_(tokens: Path) -> None:
    """List the gateways, with the time at which each was added."""
    found = Gateways(tokens).all()
    width = max(map(len, found), default=0)
    for name, entry in found.items():
        click.echo(f"{name:<{width}}  {entry.since}")
    if not found:
        click.echo("(no gateways; add one with `edge-history gateways add NAME`)", err=True)


@gateways.command()
@click.argument("name")
@tokens_option
def remove(name: str, tokens: Path) -> None:
    """Remove a gateway and revoke its token."""
    Gateways(tokens).remove(name)
