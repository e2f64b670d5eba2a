"""Options of commands that need Spark: the master and settings of the session."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from spark_offload.session import LOCAL, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start = Callable[[], "SparkSession"]

_OPTIONS: Final = (
    click.option("--master", default=LOCAL, show_default=True, metavar="URL", help="URL of the Spark master."),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Setting of Spark; repeatable."),
    click.option("--verbose", is_flag=True, help="Show progress even if standard error is not a terminal."),
)


def with_spark(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the Spark options to a command, which receives a function `start` that starts the session.

    `start` raises a usage error for a malformed `--conf`, and `MissingPart` if Java, PySpark or the jars are missing.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(*, master: str, conf: tuple[str, ...], verbose: bool, **given: object) -> None:
            command(start=lambda: _session(name, master, conf, verbose), **given)

        # Decorators apply from the inside out, and help lists the outermost option first.
        for option in reversed(_OPTIONS):
            called = option(called)
        return called

    return decorate


def _session(name: str, master: str, conf: tuple[str, ...], verbose: bool) -> SparkSession:
    if bad := [setting for setting in conf if "=" not in setting]:
        raise click.BadParameter(f"{bad[0]!r} is not KEY=VALUE", param_hint="--conf")
    settings = dict(setting.split("=", 1) for setting in conf)
    if verbose or sys.stderr.isatty():
        # `--conf` has precedence.
        settings.setdefault("spark.ui.showConsoleProgress", "true")
    return session(master, name=f"edge-history {name}", settings=settings)
