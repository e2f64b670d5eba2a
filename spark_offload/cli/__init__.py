"""`edge-history`: the command of the Spark side. Each subcommand is a file of its own, imported when it is called."""

from __future__ import annotations

import importlib
import sys

import click

from spark_offload.errors import HistoryError

COMMANDS = (
    "analyse",
    "bench",
    "export",
    "gateways",
    "ingest",
    "jars",
    "maintain",
    "query",
    "receive",
    "serve",
    "status",
)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = getattr(importlib.import_module(f"spark_offload.cli.{cmd_name}"), cmd_name)
        assert isinstance(found, click.Command)  # noqa: S101
        return found


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sepa-edge")
def edge_history() -> None:
    """The history of observations on Spark: take in what gateways send, ask it, look after it."""


def main() -> None:
    """The entry point. An error of ours or of Spark's is a line, and exit code 1."""
    try:
        edge_history()
    except HistoryError as error:
        click.echo(f"edge-history: {error}", err=True)
        sys.exit(1)
    except Exception as error:
        if "pyspark" not in sys.modules:
            raise
        from spark_offload.cli.spark import said

        if not (text := said(error)):
            raise
        click.echo(f"edge-history: Spark could not do it: {text}", err=True)
        sys.exit(1)
