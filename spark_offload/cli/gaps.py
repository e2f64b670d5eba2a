"""`edge-history gaps`: list observations that the table cannot get any more, and accept their loss."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_offload.cli.spark import Start, with_spark
from spark_offload.landing import LandingZone

if TYPE_CHECKING:
    from spark_offload.gaps import Missing

_landing = click.option(
    "--landing", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Landing zone."
)
_table = click.option("--table", required=True, metavar="DIR", help="Table of the history.")


@click.group()
def gaps() -> None:
    """List observations that the table cannot get any more, and accept their loss.

    Segments after a gap wait. A gap closes by itself when its gateway sends the observations. It does not if the
    gateway has lost them, or deleted them because a later state of the table had them.

    \b
    edge-history gaps list --landing landing --table history
    edge-history gaps accept street-7 --landing landing --table history
    """


@gaps.command("list")
@_landing
@_table
@with_spark("gaps")
def list_(landing: Path, table: str, start: Start) -> None:
    """List the missing observations of each gateway that hold up its later segments."""
    zone = LandingZone(landing)
    spark = start()
    # These modules import PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.gaps import missing
    from spark_offload.positions import place

    _print(missing(zone, place(spark, table).positions), "missing")


@gaps.command()
@click.argument("gateway", nargs=-1)
@click.option(
    "--all", "every", is_flag=True, help="Accept the gaps of all gateways; makes the table if it does not exist."
)
@click.option("--reason", default="accepted by an operator", show_default=True, help="Stored with the commit.")
@_landing
@_table
@with_spark("gaps")
def accept(gateway: tuple[str, ...], every: bool, reason: str, landing: Path, table: str, start: Start) -> None:
    """Accept the loss of the missing observations of gateways. A row with their number takes their place.

    They cannot be ingested afterwards, even if a gateway sends them.
    """
    if every == bool(gateway):
        raise click.UsageError("Name the gateways, or give --all.")
    zone = LandingZone(landing)
    spark = start()
    from spark_offload.gaps import accept as accept_gaps

    _print(accept_gaps(spark, zone, table, None if every else gateway, reason), "accepted as lost")


def _print(found: Iterable[Missing], what: str) -> None:
    lines = [f"{one} {what}" for one in found]
    click.echo("\n".join(lines or ["no observations are missing"]))
