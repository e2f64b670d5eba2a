"""`edge config`: check, show and describe the settings."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
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


def load_settings(
    file: Path | None, data_dir: Path | None, options: Mapping[str, tuple[str, str]] | None = None
) -> Loaded:
    """Return the settings in effect, with a warning on standard error for each key of an earlier version.

    `options`: by variable of a setting, an option of the command line and its value, which take precedence. Raises
    `Failure` (exit code 2) with a line for each problem.
    """
    # Late, like all imports of pydantic in commands: help and completion do not need it.
    from edge.config import ConfigurationError, load

    given = options or {}
    try:
        loaded = load(
            file,
            environ={**os.environ, **{variable: value for variable, (_, value) in given.items()}},
            data_dir=data_dir,
        )
    except ConfigurationError as error:
        raise misused(_with_options(error.description, given)) from None
    sources = {key: _with_options(origin, given) for key, origin in loaded.sources.items()}
    loaded = dataclasses.replace(loaded, sources=sources)
    for line in loaded.warnings:
        click.echo(f"edge: warning: {line}", err=True)
    return loaded


def _with_options(text: str, options: Mapping[str, tuple[str, str]]) -> str:
    """Name the options of the command line in place of the variables that they stand for."""
    for variable, (option, _) in options.items():
        text = text.replace(f"${variable}", option).replace(variable, option)
    return text


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
@click.option("--changed", is_flag=True, help="Only settings that do not have their default.")
@config_option
@data_dir_of_gateway
def show(changed: bool, file: Path | None, data_dir: Path | None) -> None:
    """Show all settings in effect as TOML, with the source of each that has not its default. Secrets are left out."""
    from edge.config.reference import to_toml

    loaded = load_settings(file, data_dir)
    text = to_toml(loaded.settings, loaded.origins)
    click.echo(_changed(text, loaded.origins) if changed else text, nl=False)


def _changed(toml: str, origins: Mapping[str, str]) -> str:
    """Return the lines of settings with an origin, below their sections."""
    section, header, kept = "", "", [""]
    for line in toml.splitlines():
        if line.startswith("["):
            section, header = line[1:-1], line
            continue
        name = line.removeprefix("# ").partition(" ")[0]
        if (f"{section}.{name}" if section else name) in origins:
            kept += ["", header] if header else []
            kept.append(line)
            header = ""
    return "\n".join(kept).strip("\n") + "\n" if any(kept) else "# all settings have their defaults\n"


@config.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors."""
    from edge.config.reference import schema as schema_of_settings

    click.echo(json.dumps(schema_of_settings(), indent=2))
