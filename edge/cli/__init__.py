"""The `edge` command: a group whose commands are imported when they are used, so that it starts fast."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

import click

from edge import __version__
from edge.cli.failures import EXIT_CODES, INTERRUPTED

_COMMANDS: Final = {
    "run": ("edge.cli.run", "Run the gateway."),
    "query": ("edge.cli.sparql", "Ask the running gateway a SPARQL query."),
    "update": ("edge.cli.sparql", "Change the graph of the running gateway with a SPARQL update."),
    "subscribe": ("edge.cli.subscribe", "Print what changes in the results of a SPARQL query, as it changes."),
    "timers": ("edge.cli.timers", "List delayed updates, look at one, cancel one."),
    "explain": ("edge.cli.explain", "Say what a subscription to a SPARQL query costs, and why."),
    "publish": ("edge.cli.publish", "Publish one reading to the gateway's MQTT broker."),
    "health": ("edge.cli.health", "Say whether the gateway does its work, as an exit code."),
    "engine": ("edge.cli.engine", "Show what updates cost, and how they are processed."),
    "outbox": ("edge.cli.outbox", "Look at what waits for the history, and ship it."),
    "new": ("edge.cli.new", "Write a program to begin with: producer, consumer, aggregator or negation."),
    "app": ("edge.cli.app", "Check and show the profiles (JSAP) of applications."),
    "clients": ("edge.cli.clients", "Say who may come in and what they may do."),
    "cert": ("edge.cli.cert", "Make the gateway's certificate."),
    "config": ("edge.cli.config", "Check, show and describe the settings."),
    "mapping": ("edge.cli.mapping", "Check, try and describe mapping files."),
    "doctor": ("edge.cli.doctor", "Look whether all is well with the gateway and its machine."),
    "diag": ("edge.cli.diag", "Collect what helps to find a fault, without secrets."),
    "backup": ("edge.cli.backup", "Write all that must survive into one file, while the gateway runs."),
    "restore": ("edge.cli.backup", "Put a backup in the place of the data directory."),
    "rescue": ("edge.cli.rescue", "Report what can be read of a damaged data directory, and continue from there."),
    "bench": ("edge.cli.bench", "Measure the engine on this machine."),
    "completion": ("edge.cli.completion", "Print the completion script of a shell."),
}

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _LazyGroup(click.Group):
    """Knows its commands' names and help lines without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), cmd_name)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # Whoever read our output has seen enough (`edge query ... | head`). Python would complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings=CONTEXT, epilog=EXIT_CODES)
@click.version_option(__version__, "-V", "--version", prog_name="edge", message="%(prog)s %(version)s")
def edge() -> None:
    """sepa-edge: sensor readings in over MQTT, a live RDF graph, and subscribers told exactly what changed.

    Start the gateway with `edge run`; the other commands talk to a gateway that runs.
    """


def main() -> None:
    """Entry point of the `edge` command."""
    try:
        code = edge.main(prog_name="edge", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
