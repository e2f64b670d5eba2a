"""The `edge` command. Subcommands are imported on use, which keeps the start fast."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

import click

from edge import __version__
from edge.cli.exit_codes import EXIT_CODES, INTERRUPTED
from edge.command_line import report_failed_output, require_utf8

# Otherwise the first model searches all installed packages for plugins of Pydantic, which takes 5 ms and more.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

_COMMANDS: Final = {
    "run": ("edge.cli.run", "Run the gateway."),
    "query": ("edge.cli.sparql", "Send a SPARQL query to the running gateway."),
    "update": ("edge.cli.sparql", "Change the graph of the running gateway with a SPARQL update."),
    "subscribe": ("edge.cli.subscribe", "Subscribe to a SPARQL query and print its notifications."),
    "series": ("edge.cli.series", "Show the recent values of observations, which the gateway keeps."),
    "set": ("edge.cli.set_value", "Tell a device what one of its values should be: a switch, a dimmer, a set point."),
    "forget": ("edge.cli.forget", "Remove the observations of a device from the graph."),
    "timers": ("edge.cli.timers", "List, show and cancel delayed updates."),
    "rules": ("edge.cli.rules", "Show the rules of the gateway, and try one on recent values."),
    "streams": ("edge.cli.streams", "Manage RDF streams, and add elements to them."),
    "queries": ("edge.cli.queries", "Manage continuous queries, and follow their reports."),
    "explain": ("edge.cli.explain", "Explain the cost of a subscription to a SPARQL query."),
    "publish": ("edge.cli.publish", "Publish one reading to the gateway's MQTT broker."),
    "health": ("edge.cli.health", "Check the health of the gateway; the exit code is the result."),
    "engine": ("edge.cli.engine", "Show what updates cost, and set how the engine processes them."),
    "outbox": ("edge.cli.outbox", "Show the observations that wait for the history, and ship them."),
    "new": ("edge.cli.new", "Create an example program: producer, consumer, aggregator or negation."),
    "app": ("edge.cli.app", "Check and show the profiles (JSAP) of applications."),
    "clients": ("edge.cli.clients", "Manage clients and their permissions."),
    "cert": ("edge.cli.cert", "Create the gateway's TLS certificate."),
    "config": ("edge.cli.config", "Check, show and describe the settings."),
    "mapping": ("edge.cli.mapping", "Check, test and describe mapping files."),
    "modbus": ("edge.cli.modbus", "Read a Modbus device."),
    "doctor": ("edge.cli.doctor", "Check the gateway and its host for problems."),
    "diag": ("edge.cli.diag", "Collect diagnostic data, without secrets."),
    "backup": ("edge.cli.backup", "Back up the data directory into one file, while the gateway runs."),
    "restore": ("edge.cli.backup", "Restore the data directory from a backup."),
    "rescue": ("edge.cli.rescue", "Recover the readable part of a damaged data directory."),
    "bench": ("edge.cli.bench", "Benchmark the engine on this machine."),
    "completion": ("edge.cli.completion", "Print the completion script of a shell."),
}

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _LazyGroup(click.Group):
    """Group that lists the names and summaries of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), cmd_name)
        if not isinstance(command, click.Command):
            return None
        require_utf8(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. Raises `click.UsageError` with a similar name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib  # 3 ms, and only suggestions need it

            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            remedy = f"Did you mean `edge {near[0]}`?" if near else "`edge --help` lists the commands."
            raise click.UsageError(f"{error.message} {remedy}", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            # Here and not at exit, where Python would report the closed pipe itself.
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # The reader closed the pipe (`edge query ... | head`). Without this, Python reports an error at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings=CONTEXT, epilog=EXIT_CODES)
@click.version_option(__version__, "-V", "--version", prog_name="edge", message="%(prog)s %(version)s")
def edge() -> None:
    """sepa-edge: a gateway from sensor readings over MQTT to a live RDF graph with SPARQL subscriptions.

    Start the gateway with `edge run`; most other commands connect to the running gateway.
    """


def main() -> None:
    """Entry point of the `edge` command."""
    report_failed_output("edge")
    try:
        # click returns exit codes and raises errors, instead of ending the process: `Failure` has exit codes of its
        # own.
        code = edge.main(prog_name="edge", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
