"""SPARQL text arguments: the text itself, a file (`@FILE`), or standard input (`-`)."""

from __future__ import annotations

import sys
from pathlib import Path

from edge.cli.exit_codes import misused

SOURCE_HELP = "TEXT is the SPARQL itself, @FILE a file that contains it, - standard input."


def read_source(text: str) -> str:
    """Return the SPARQL text of an argument. Raises `Failure` if a file cannot be read."""
    try:
        if text == "-":
            # SPARQL is UTF-8, whatever the locale of the terminal is.
            return sys.stdin.buffer.read().decode("utf-8")
        if text.startswith("@"):
            return Path(text[1:]).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise misused(f"{text[1:] or 'standard input'} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise misused(f"{text.removeprefix('@')} is not UTF-8 text") from None
    return text
