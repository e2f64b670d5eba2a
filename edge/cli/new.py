"""`edge new`: create an example program and its profile."""

from __future__ import annotations

import shlex
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

import click

from edge.cli.exit_codes import misused

_KINDS: Final = ("producer", "consumer", "aggregator", "negation")


@click.command(
    epilog="""\b
    Exit codes:
      0  the files are written
      2  wrong command line, or a file exists already; nothing was written
    """
)
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("target", metavar="[DIR|FILE.py]", default=".", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def new(kind: str, target: Path, force: bool) -> None:
    """Create an example program KIND.py and its profile KIND.jsap in a directory.

    They run unchanged with the gateway of EDGE_URL, or with the one on this machine (its ports are in endpoints.json of
    EDGE__DATA_DIR), and with the token of EDGE_TOKEN. A producer publishes an observation, a consumer follows all
    observations, an aggregator answers temperatures with updates; a negation detects events that did not happen in
    time.

    \b
    edge new producer
    edge new aggregator house/heating.py
    """
    # A directory may have a dot in its name. Any other suffix is more probably a mistyped file name.
    if target.suffix not in ("", ".py") and not target.is_dir():
        raise misused(f"{target} is neither a directory nor a Python file; write {target.with_suffix('.py')}")
    program = target if target.suffix == ".py" else target / f"{kind}.py"
    profile = program.with_suffix(".jsap")
    there = [str(file) for file in (program, profile) if file.exists()]
    if there and not force:
        raise misused(f"{' and '.join(there)} exist already; --force overwrites")
    skeletons = files("edge.cli.skeletons")
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        for file in (profile, program):
            file.write_bytes(skeletons.joinpath(f"{kind}{file.suffix}").read_bytes())
    except OSError as error:
        raise misused(f"cannot write {error.filename or program}: {error.strerror or error}") from None
    click.echo(f"{program}: the {kind}")
    click.echo(f"{profile}: its SPARQL, and the address of the gateway if none is found")
    click.echo(f"Run it: {shlex.quote(sys.executable)} {shlex.quote(str(program))}")
