"""The `edge` command in a separate process, run to its end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.gateway_forks import Fork

_INTERPRETER = ("LANG", "LC_", "LD_", "MALLOC_", "PYTHON")
"""Beginnings of variables that the interpreter or the loader reads at its start."""
_WORDS = 2
"""Words of the longest name of a command."""

_known: set[tuple[str, ...]] = set()
"""Names of the commands that this process has run with a new interpreter."""


def run_edge(
    arguments: Sequence[object],
    environment: Mapping[str, str],
    *,
    changed: Mapping[str, str] | None = None,
    text: str | None = None,
    seconds: float,
    directory: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `edge` with an environment, in which `changed` replaces variables. Returns its exit code and output.

    The first run of each command has a new interpreter, which finds out whether the command imports what it uses.
    Others fork, as gateways do (`gateway_forks.py`). `text`: its standard input. Raises `subprocess.TimeoutExpired`.
    """
    words = [str(argument) for argument in arguments]
    changed = changed or {}
    name = tuple(word for word in words[:_WORDS] if word.replace("-", "").isalpha() and word.islower())
    wanted = {**environment, **changed}
    # A forked process has the interpreter's settings of this one.
    if name in _known and _read_at_start(wanted) == _read_at_start(os.environ):
        return _forked(words, wanted, text, seconds, directory)
    _known.add(name)
    command = [sys.executable, "-m", "edge", *words]
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=seconds,
        env=wanted,
        cwd=directory,
        check=False,
    )


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_INTERPRETER)}


def _forked(
    words: list[str], environment: Mapping[str, str], text: str | None, seconds: float, directory: Path | None
) -> subprocess.CompletedProcess[str]:
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        given.write(text or "")
        given.seek(0)
        where = str(directory or Path.cwd())
        process = Fork("command", (given, output, errors), words, environment, directory=where)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(["edge", *words], code, output.read(), errors.read())
