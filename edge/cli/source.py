"""Arguments that contain SPARQL or a payload: the text itself, a file (`@FILE`), or standard input (`-`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge.cli.exit_codes import Failure, misused
from edge.cli.prefixes import declarations

SOURCE_HELP = (
    "TEXT is the SPARQL itself, @FILE a file that contains it, - standard input. Common prefixes, such as sosa: and "
    "xsd:, need no declaration."
)

_FIRST_LINE: Final = re.compile(r"\bline 1, column (\d+)")


@dataclass(frozen=True)
class SparqlSource:
    """The SPARQL of an argument."""

    prefixes: str
    """Declarations of known prefixes that the user left out. On the first line, so that lines keep their numbers."""
    own: str
    """Text of the user."""

    @property
    def text(self) -> str:
        """Text for the gateway."""
        return self.prefixes + self.own

    @contextmanager
    def positions(self) -> Iterator[None]:
        """Let places in the messages of errors be those in the text of the user."""

        def moved(place: re.Match[str]) -> str:
            return f"line 1, column {max(1, int(place[1]) - len(self.prefixes))}"

        try:
            yield
        except Failure as failure:
            raise Failure(_FIRST_LINE.sub(moved, failure.message), failure.exit_code) from None


def read_source(text: str) -> SparqlSource:
    """Return the SPARQL of an argument. Raises `Failure` if a file cannot be read."""
    found = _read(text)
    try:
        # SPARQL is UTF-8, whatever the locale of the terminal is.
        own = text if found is None else found.decode("utf-8")
    except UnicodeDecodeError:
        raise misused(f"{text.removeprefix('@')} is not UTF-8 text") from None
    return SparqlSource(declarations(own), own)


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
