"""Prefixes in SPARQL texts of operators, who need not declare the known ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# IRIs, strings and comments: a colon inside them does not mark a prefixed name.
_OPAQUE: Final = re.compile(r"""<[^<>\s]*>|"[^"\n]*"|'[^'\n]*'|#[^\n]*""")
_PREFIXED: Final = re.compile(r"(?<![\w?$:.\-])([A-Za-z](?:[\w.\-]*[\w\-])?):")
_DECLARED: Final = re.compile(r"\bPREFIX\s+([A-Za-z][\w.\-]*)?:", re.IGNORECASE)


def with_prefixes(text: str, namespaces: Mapping[str, str]) -> str:
    """Return a SPARQL text with declarations of the known prefixes that it uses, on its first line."""
    own = declared(text)
    used = [name for name in prefixes(text) if name in namespaces and name not in own]
    return "".join(f"PREFIX {name}: <{namespaces[name]}> " for name in used) + text


def prefixes(text: str) -> list[str]:
    """Return the prefixes that a text uses."""
    return sorted({found[1] for found in _PREFIXED.finditer(_OPAQUE.sub(" ", text))})


def declared(text: str) -> set[str]:
    """Return the prefixes that a text declares."""
    return {found[1] or "" for found in _DECLARED.finditer(text)}
