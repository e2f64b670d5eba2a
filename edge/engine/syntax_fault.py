"""Where a text is no SPARQL, and what could stand there: Oxigraph's words without its grammar's."""

from __future__ import annotations

import re
from typing import Final

_ITEM: Final = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\'(?:\\.|[^\'\\])*\'|[^\]\'])*\]|[^,\s"\[][^,]*')
"""A word, a sign in quotes, or a class of characters in brackets: of a name, a number or a comment that could go on."""


def syntax_fault(error: Exception) -> str:
    """What Oxigraph's parser says, with the words and signs that it expected; without classes of characters."""
    place, separator, expected = str(error).partition(": expected ")
    if not separator:
        return place
    items = [item for item in _ITEM.findall(expected.removeprefix("one of ")) if not item.startswith("[")]
    if not items:
        return f"{place}: something is missing or wrong here"
    return f"{place}: expected {'one of ' if len(items) > 1 else ''}{', '.join(items)}"
