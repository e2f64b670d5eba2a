"""`edge new`: a program to begin with, and the profile it runs on."""

from __future__ import annotations

import shlex
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

import click

from edge.cli.failures import misused

_KINDS: Final = ("producer", "consumer", "aggregator", "negation")


@click.command(
    epilog="""\b
    Exit codes:
      0  it is there
      2  wrong command line, or a file is there already; nothing was written
    """
)
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("target", metavar="[DIR|FILE.py]", default=".", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write over files that are there.")
def new(kind: str, target: Path, force: bool) -> None:
    """Write a program to begin with: KIND.py, and its profile KIND.jsap, into a directory.

    They run as they are, on a gateway of this machine. A producer sends updates, a consumer is told what changes, an
    aggregator does both; a negation notices what did not happen in time.

    \b
    edge new producer
    edge new aggregator house/heating.py
    """
    if target.suffix not in ("", ".py") and not target.is_dir():
        raise misused(f"{target} is neither a directory nor a file in Python; write {target.with_suffix('.py')}")
    program = target if target.suffix == ".py" else target / f"{kind}.py"
    profile = program.with_suffix(".jsap")
    there = [str(file) for file in (program, profile) if file.exists()]
    if there and not force:
        raise misused(f"{' and '.join(there)} there already; --force writes over it")
    skeletons = files("edge.cli.skeletons")
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        for file in (profile, program):
            file.write_bytes(skeletons.joinpath(f"{kind}{file.suffix}").read_bytes())
    except OSError as error:
        raise misused(f"cannot write {error.filename or program}: {error.strerror or error}") from None
    click.echo(f"{program}: the {kind}")
    click.echo(f"{profile}: its SPARQL, and where the gateway is")
    click.echo(f"Run it: {shlex.quote(sys.executable)} {shlex.quote(str(program))}")
