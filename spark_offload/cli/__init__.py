"""Entry point of `edge-history`, the command of the Spark side. Subcommand modules are imported on first use."""

from __future__ import annotations

import difflib
import importlib
import sys

import click

from edge.command_line import report_failed_output, require_utf8
from spark_offload.errors import HistoryError

COMMANDS = (
    "analyse",
    "backtest",
    "bench",
    "delete",
    "demo",
    "export",
    "gaps",
    "gateways",
    "ingest",
    "jars",
    "latest",
    "maintain",
    "query",
    "receive",
    "serve",
    "status",
    "verify",
)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = getattr(importlib.import_module(f"spark_offload.cli.{cmd_name}"), cmd_name)
        assert isinstance(found, click.Command)  # noqa: S101
        require_utf8(found)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. Raises `click.UsageError` with a similar name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            remedy = f"Did you mean `edge-history {near[0]}`?" if near else "`edge-history --help` lists the commands."
            raise click.UsageError(f"No such command '{args[0]}'. {remedy}", ctx) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sepa-edge")
def edge_history() -> None:
    """Manage the history of observations on Spark: ingest segments from gateways, query them, maintain the table."""


def main() -> None:
    """Run the command. Errors of this package and of Spark are printed as one line, with exit code 1."""
    report_failed_output("edge-history")
    try:
        edge_history()
    except HistoryError as error:
        click.echo(f"edge-history: {error}", err=True)
        sys.exit(1)
    except Exception as error:
        # Importing PySpark takes seconds. If no command loaded it, the error cannot come from Spark.
        if "pyspark" not in sys.modules:
            raise
        from spark_offload.spark_errors import error_text

        if not (text := error_text(error)):
            raise
        click.echo(f"edge-history: Spark failed: {text}", err=True)
        sys.exit(1)
