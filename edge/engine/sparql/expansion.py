"""Length of a text without its abbreviations: a long prefix that is used often would fill the memory of the process."""

from __future__ import annotations

import re
from typing import Final

from edge.protocol.errors import LimitExceeded

MOST: Final = 100_000_000
"""Characters of all IRIs of a request: ten times those of the largest one with the default settings."""
_SHORT: Final = 4_096
"""Characters of a text that cannot become long: each use of a prefix takes two, and a prefix at most the rest."""
_KEYWORD: Final = re.compile(r"\b(?:PREFIX|BASE)\b", re.IGNORECASE)
_PREFIX: Final = re.compile(r"PREFIX\s+[^:\s<>]*:\s*<([^<>]*)>", re.IGNORECASE)
_BASE: Final = re.compile(r"BASE\s*<([^<>]*)>", re.IGNORECASE)
_PIECE: Final = 4 * 1024
"""Characters that are searched in one call, which holds the GIL for about 50 µs."""
_OVERLAP: Final = 8
"""Characters of the longest keyword, and those before and after it."""


def check_expansion(text: str) -> None:
    """Raise `LimitExceeded` if the IRIs of a query or update may be very long without PREFIX and BASE.

    Every colon counts as a use of the longest prefix, and every angle bracket as one of the longest base.
    """
    if len(text) < _SHORT:
        return
    longest = {"prefix": 0, "base": 0}
    for start in range(0, len(text), _PIECE):
        for keyword in _KEYWORD.finditer(text, max(0, start - _OVERLAP), start + _PIECE):
            for kind, declaration in (("prefix", _PREFIX), ("base", _BASE)):
                if (match := declaration.match(text, keyword.start())) is not None:
                    longest[kind] = max(longest[kind], len(match[1]))
    for kind, use in (("prefix", ":"), ("base", "<")):
        # Counting the uses in a text of 6 MB holds the GIL for 2 ms, and most long texts declare nothing.
        if longest[kind] and longest[kind] * text.count(use) > MOST:
            raise LimitExceeded(
                f"The IRIs may have more than {MOST:,} characters without abbreviations: the longest {kind} has "
                f"{longest[kind]:,}. Send the request in parts, or use shorter IRIs."
            )
