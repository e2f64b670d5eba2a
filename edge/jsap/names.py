"""IRIs in profiles: absolute, or with a prefix of the profile.

`a:b` is a prefixed name if `a` is a namespace of the profile and `b` does not begin with `//`. It is an absolute IRI if
`b` begins with `//` or `a` is a scheme without such slashes (`urn`, `tag`, ...). Any other prefix is reported as
undeclared. `<...>` is always an absolute IRI.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

import pyoxigraph as ox

XSD: Final = "http://www.w3.org/2001/XMLSchema#"

NAMESPACES: Final[Mapping[str, str]] = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "xsd": XSD,
}
"""Predeclared prefixes: those of the reference engine's clients."""

# Schemes whose IRIs have no "//". Any other undeclared word before a colon is probably a misspelt prefix.
_SCHEMES: Final = frozenset({"urn", "tag", "mailto", "did", "info", "geo"})


def absolute(text: str) -> str:
    """Return an absolute IRI after a check (RFC 3987). Raises `ValueError`."""
    try:
        return ox.NamedNode(text).value
    except (ValueError, UnicodeEncodeError) as error:
        reason = "it has half a surrogate pair" if isinstance(error, UnicodeEncodeError) else str(error)
        raise ValueError(f"{shown(text)} is not an absolute IRI: {reason}") from None


def expand(text: str, namespaces: Mapping[str, str]) -> str:
    """Return the absolute form of an IRI. Raises `ValueError`."""
    if text.startswith("<") and text.endswith(">"):
        return absolute(text[1:-1])
    prefix, colon, local = text.partition(":")
    if colon and not local.startswith("//"):
        if prefix in namespaces:
            return absolute(namespaces[prefix] + local)
        if prefix.lower() not in _SCHEMES:
            raise ValueError(
                f'{shown(text)}: namespace "{prefix}" is not declared{meant(prefix, namespaces)}; declare it, or write '
                f"<{shown(text)[1:-1]}> if it is an IRI as it stands"
            )
    return absolute(text)


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` if a known word is similar, else an empty text."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{close[0]}"?)' if close else ""


def shown(text: str) -> str:
    """Return any text in quotes, shortened, without control characters."""
    short = text if len(text) <= 60 else text[:57] + "..."
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short) + '"'
