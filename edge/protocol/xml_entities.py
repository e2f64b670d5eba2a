"""Entities of XML documents: a short document whose entities name other entities is billions of characters long."""

from __future__ import annotations

import re
from typing import Final

_MOST: Final = 10_000_000
"""Characters that all entities of a document together may add."""
_START: Final = b"<!ENTITY"
_VALUE: Final = re.compile(rb"<!ENTITY\s+[^\s\"'<>&%]+\s+(?:\"([^\"<>]*)\"|'([^'<>]*)')\s*>")


def has_large_entities(document: bytes) -> bool:
    """Return whether an XML document declares entities that no parser should replace.

    Those that serve as prefixes of IRIs are short, and name no other entity.
    """
    declared = document.count(_START)
    if not declared:
        return False
    values = [double or single for double, single in _VALUE.findall(document)]
    longest = max(map(len, values), default=0)
    nested = any(b"&" in value for value in values)
    return nested or len(values) < declared or longest * document.count(b"&") > _MOST
