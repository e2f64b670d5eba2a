"""Arguments that contain SPARQL or a payload: the text itself, a file (`@FILE`), or standard input (`-`)."""

from __future__ import annotations

import sys
from pathlib import Path

from edge.cli.exit_codes import misused

SOURCE_HELP = "TEXT is the SPARQL itself, @FILE a file that contains it, - standard input."


def read_source(text: str) -> str:
    """Return the SPARQL text of an argument. Raises `Failure` if a file cannot be read."""
    found = _read(text)
    try:
        # SPARQL is UTF-8, whatever the locale of the terminal is.
        return text if found is None else found.decode("utf-8")
    except UnicodeDecodeError:
        raise misused(f"{text.removeprefix('@')} is not UTF-8 text") from None


def read_payload(text: str) -> bytes:
    """Return the payload of an argument. Raises `Failure` if a file cannot be read."""
    found = _read(text)
    # Bytes of the command line that are not UTF-8 stay as they are (PEP 383).
    return text.encode("utf-8", "surrogateescape") if found is None else found


def _read(text: str) -> bytes | None:
    """Return the content of the file or of standard input; None if the text itself counts."""
    try:
        if text == "-":
            return sys.stdin.buffer.read()
        if text.startswith("@"):
            return Path(text[1:]).expanduser().read_bytes()
    except OSError as error:
        raise misused(f"{text[1:] or 'standard input'} cannot be read: {error.strerror}") from None
    return None
