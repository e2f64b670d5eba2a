"""Fingerprint of a SPARQL text: the text without its constants. Texts with the same fingerprint share one plan.

One pass of a regular expression, at the speed of C, finds IRIs, prefixed names, strings with their suffixes, numbers
and comments. It does not know the grammar, and may split an unusual text at the wrong places. That does no harm: a
constant may differ between two texts with the same fingerprint only if `places` allows it and the parser read it as a
whole term. Everything else is equal, character for character, so both texts have the same tokens before and after it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# Groups are made atomic by `(?>...)`, never by a possessive quantifier such as `(...)*+`: Python 3.11.0 to 3.11.4,
# which Debian 12 ships, match those wrongly (CPython issue 106052).
IRI: Final = r"<[^<>\x00-\x20]*>"
NAME: Final = r":(?>(?:[\w:][\w:\-]*+(?>(?:\.++[\w:\-]++)*))?)"
PREFIXED: Final = r"[A-Za-z][\w.\-]*+" + NAME
_SUFFIX: Final = rf"(?>(?:\^\^(?:{IRI}|{NAME}|{PREFIXED})|@[A-Za-z]++(?>(?:-[A-Za-z0-9]++)*))?)"
NUMBER: Final = r"[0-9]++(?>(?:\.[0-9]++)?)(?>(?:[eE][+\-]?[0-9]++)?)"


def _quoted(q: str) -> str:
    """Return the pattern of a string in three or one of the quotes `q`."""
    return (
        rf"{q}(?:{q}{q}[^{q}\\]*+(?>(?:(?:\\.|{q}(?!{q}{q}))[^{q}\\]*+)*){q}{q}{q}"
        rf"|[^{q}\\\n\r]*+(?>(?:\\.[^{q}\\\n\r]*+)*){q})"
    )


QUOTED: Final = {quote: _quoted(quote) for quote in "\"'"}
STRINGS: Final = {quote: quoted + _SUFFIX for quote, quoted in QUOTED.items()}

# NUL, which no text may contain, counts as a constant. So it can separate the remaining pieces.
_CONSTANT: Final = re.compile(
    rf"""({IRI}|{STRINGS['"']}|{STRINGS["'"]}|{NAME}|[#\x00][^\r\n]*|\b(?:{PREFIXED}|{NUMBER}))""",
    re.ASCII | re.DOTALL,
)
_split: Final = _CONSTANT.split


def fingerprint(text: str) -> tuple[str, list[str]]:
    """Return the skeleton of a text, and its constants as written, including comments, in order."""
    pieces = _split(text)
    return "\0".join(pieces[::2]), pieces[1::2]


def pieces(text: str) -> list[str]:
    """Return the pieces before, between and after the constants of a text."""
    return _split(text)[::2]


_DECLARATIONS: Final = re.compile(
    r"(?>(?:PREFIX[ \t\r\n]++(?:[A-Za-z]\w*+)?:[ \t\r\n]*+<[^<>\x00-\x20]*+>[ \t\r\n]++)+)", re.ASCII
)


def prologue(text: str) -> str:
    """Return the PREFIX declarations at the start of a text in plain notation, with the space after them.

    The remaining text is a complete text for all functions here.
    """
    found = _DECLARATIONS.match(text)
    return found[0] if found else ""


class ConstantPlace(NamedTuple):
    """A constant that may differ between texts with the same fingerprint."""

    start: int
    """Position in the text, like `end`."""
    end: int
    constant: int
    """Index among the constants of the fingerprint."""
    signed: bool
    """Whether it is a number with a sign right before it, which is not part of it."""


_SPACE: Final = r" \t\r\n"
# No token that ends like this continues into a constant ...
_BEFORE: Final = re.compile(rf"(?:[{_SPACE}({{\[,;=|/!]|(?<!\^)\^)\Z")
_SIGN: Final = re.compile(rf"[{_SPACE}({{\[,=|&][+\-]\Z")
# ... and no constant continues into text that starts like this.
_AFTER: Final = re.compile(rf"[{_SPACE})}}\],;|/*+=<>!&]|\.[{_SPACE})}}\]]")
_DECLARES: Final = re.compile(rf"(?<![\w?$:.\-])(?:PREFIX|BASE)[{_SPACE}]*\Z", re.IGNORECASE)


def places(text: str) -> list[ConstantPlace]:
    """Return the constants that may differ between texts with this fingerprint, as far as no grammar is needed.

    Declarations stay fixed, and also any constant next to characters with which it could form a different token.
    """
    found: list[ConstantPlace] = []
    matches = list(_CONSTANT.finditer(text))
    ends = [0, *(match.end() for match in matches)]
    starts = [*(match.start() for match in matches), len(text)]
    declares = False
    for constant, match in enumerate(matches):
        start, end = match.span()
        before, after = text[ends[constant] : start], text[end : starts[constant + 1]]
        declares = _DECLARES.search(before) is not None or (declares and not before.strip())
        if declares or text[start] in "#\0":
            continue
        signed = text[start].isdigit() and _SIGN.search(before) is not None
        literal = text[start] in "\"'0123456789"
        begins = signed or _BEFORE.search(before) or (literal and before[-1:] in ("<", ">"))
        if begins and (_AFTER.match(after) or end == len(text)):
            found.append(ConstantPlace(start, end, constant, signed))
    return found
