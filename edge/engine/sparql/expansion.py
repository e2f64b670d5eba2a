"""Length of a text without its abbreviations: a long prefix that is used often would fill the memory of the process."""

from __future__ import annotations

import re
from typing import Final

from edge.protocol.errors import LimitExceeded

MOST: Final = 100_000_000
"""Characters of all IRIs of a request: ten times those of the largest one with the default settings."""
_SHORT: Final = 4_096
"""Characters of a text that cannot become long: each use of a prefix takes two, and a prefix at most the rest."""
_PREFIX: Final = re.compile(r"\bPREFIX\s+[^:\s<>]*:\s*<([^<>]*)>", re.IGNORECASE)
_BASE: Final = re.compile(r"\bBASE\s*<([^<>]*)>", re.IGNORECASE)


def check_expansion(text: str) -> None:
    """Raise `LimitExceeded` if the IRIs of a query or update may be very long without PREFIX and BASE.

    Every colon counts as a use of the longest prefix, and every angle bracket as one of the longest base.
    """
    if len(text) < _SHORT:
        return
    for kind, declaration, use in (("prefix", _PREFIX, ":"), ("base", _BASE, "<")):
        longest = max((len(match[1]) for match in declaration.finditer(text)), default=0)
        if longest * text.count(use) > MOST:
            raise LimitExceeded(
                f"The IRIs may have more than {MOST:,} characters without abbreviations: the longest {kind} has "
                f"{longest:,}. Send the request in parts, or use shorter IRIs."
            )
