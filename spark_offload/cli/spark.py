"""Options of commands that need Spark: where it runs, and its settings."""

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
    click.option("--master", default=LOCAL, show_default=True, metavar="URL", help="Where Spark runs."),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeatable."),
    click.option("--verbose", is_flag=True, help="Show progress even if standard error is no terminal."),
)


def with_spark(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options of a command, which is given `start`: it starts the session. It fails the command line where a setting
    is none, and raises `MissingPart`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(*, master: str, conf: tuple[str, ...], verbose: bool, **given: object) -> None:
            command(start=lambda: _session(name, master, conf, verbose), **given)

        for option in reversed(_OPTIONS):
            called = option(called)
        return called

    return decorate


def said(error: BaseException) -> str:
    """What an error of Spark's says: that of its first cause, without the places in its code. Empty: it is no such."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.getMessage() or cause.toString())
    elif isinstance(error, PySparkException):
        text = str(error)
    else:
        return ""
    return text.strip().partition("\n")[0]


def _session(name: str, master: str, conf: tuple[str, ...], verbose: bool) -> SparkSession:
    if bad := [setting for setting in conf if "=" not in setting]:
        raise click.BadParameter(f"{bad[0]!r} is not KEY=VALUE", param_hint="--conf")
    settings = dict(setting.split("=", 1) for setting in conf)
    if verbose or sys.stderr.isatty():
        settings.setdefault("spark.ui.showConsoleProgress", "true")
    return session(master, name=f"edge-history {name}", settings=settings)
