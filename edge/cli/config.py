"""`edge config`: check, show and describe the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.exit_codes import misused

if TYPE_CHECKING:
    from edge.config import Loaded

config_option = click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="EDGE_CONFIG",
    metavar="FILE",
    help="Settings file (TOML).  [env: EDGE_CONFIG]",
)
data_dir_of_gateway = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory of everything that must survive a restart.  [env: EDGE__DATA_DIR]",
)


def load_settings(file: Path | None, data_dir: Path | None) -> Loaded:
    """Return the settings in effect, with a warning on standard error for each key of an earlier version.

    Raises `Failure` (exit code 2) with a line for each problem.
    """
    # Late, like all imports of pydantic in commands: help and completion do not need it.
    from edge.config import ConfigurationError, load

    try:
        loaded = load(file, data_dir=data_dir)
    except ConfigurationError as error:
        raise misused(error.description) from None
    for line in loaded.warnings:
        click.echo(f"edge: warning: {line}", err=True)
    return loaded


@click.group()
def config() -> None:
    """Check, show and describe the settings."""


@config.command()
@config_option
@data_dir_of_gateway
def check(file: Path | None, data_dir: Path | None) -> None:
    """Check settings file and environment. Prints a line for each problem, with exit code 2."""
    loaded = load_settings(file, data_dir)
    click.echo(f"{file or 'no settings file'}: valid, {len(loaded.sources)} of its keys and variables apply")


@config.command()
@config_option
@data_dir_of_gateway
def show(file: Path | None, data_dir: Path | None) -> None:
    """Show all settings in effect as TOML, with the source of each that has not its default. Secrets are left out."""
    from edge.config.reference import to_toml

    loaded = load_settings(file, data_dir)
    click.echo(to_toml(loaded.settings, loaded.origins), nl=False)


@config.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors."""
    from edge.config.reference import schema as schema_of_settings

    click.echo(json.dumps(schema_of_settings(), indent=2))
