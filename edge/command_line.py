"""Arguments and standard output of the commands `edge` and `edge-history`."""

from __future__ import annotations

import io
import os
import sys
from typing import IO, Any, Final

import click
from click.types import StringParamType


class _Text(StringParamType):
    """Text of an argument, an option or a variable of the environment. It must be UTF-8."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        text = super().convert(value, param, ctx)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            # Python decodes other bytes to lone surrogates (PEP 383). They have no place in a request or in SPARQL.
            shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
            self.fail(f"{shown} is not UTF-8 text", param, ctx)
        return text


class _TextOrFile(_Text):
    """Text, or @FILE. The name of a file may have any bytes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        return value if isinstance(value, str) and value.startswith("@") else super().convert(value, param, ctx)


class _Payload(StringParamType):
    """Any bytes, as text with lone surrogates (PEP 383)."""


TEXT: Final = _Text()
"""Type of a text. `require_utf8` replaces click's by it."""
TEXT_OR_FILE: Final = _TextOrFile()
"""Type of an argument that is the text itself or @FILE."""
PAYLOAD: Final = _Payload()
"""Type of an argument that is any bytes or @FILE."""


def require_utf8(command: click.Command) -> None:
    """Let each text of a command and of its subcommands be UTF-8. Paths, and parameters with another type, stay."""
    for parameter in command.params:
        if parameter.type is click.STRING:
            parameter.type = TEXT
    if isinstance(command, click.Group):
        for each in command.commands.values():
            require_utf8(each)


class OutputFailed(click.ClickException):
    """Standard output cannot be written: its disk is full, or it is closed."""

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(f"standard output cannot be written: {reason}")
        self._program = program

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message to standard error."""
        click.echo(f"{self._program}: {self.message}", file=file, err=True)


class _Output(io.FileIO):
    """Standard output. After an error, it discards what follows: Python would report the error again at its exit."""

    def __init__(self, descriptor: int, program: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._program = program

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any object with a buffer
        """Write bytes. Raises `BrokenPipeError` if the reader closed the pipe, and `OutputFailed`."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self.fileno())
            os.close(nothing)
            raise OutputFailed(self._program, error.strerror or str(error)) from None


def report_failed_output(program: str) -> None:
    """Let writes to standard output raise `OutputFailed`, which is not an error of a file or of a connection.

    `program` starts the message. Characters that the encoding does not have, as those of file names that are not UTF-8,
    are written with backslashes. Does nothing if the caller has replaced standard output.
    """
    given = sys.stdout
    if given is not sys.__stdout__:
        return
    if given is None:
        # The caller closed it. A file that cannot be written keeps its place, so that no other file takes it.
        nothing = os.open(os.devnull, os.O_RDONLY)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Output(nothing, program)), encoding="utf-8")
        return
    given.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(given.fileno(), program)),
        encoding=given.encoding,
        errors="backslashreplace" if given.errors == "strict" else given.errors,
        line_buffering=given.line_buffering,
        write_through=getattr(given, "write_through", False),
    )
