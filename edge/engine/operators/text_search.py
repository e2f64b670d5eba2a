"""What it takes to search a text with a regular expression, at the most.

Oxigraph's take time in proportion to the length of the text, times that of the pattern with its counted repetitions
written out: (a{1,100}){1,50} takes a second for a few kilobytes of text. REPLACE begins a new search after each match,
and one that can look far ahead does so each time. Nothing stops a call, so this is read off the pattern before it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PIECE: Final = re.compile(
    r"""(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\]? | \] | \.)
    | (?P<many>\\[pPdDsSwW](?:\{[^}]*\})?)
    | (?P<count>\{\s*(?P<least>[0-9]+)\s*(?P<comma>,?)\s*(?P<most>[0-9]*)\s*\})
    | (?P<open>\()
    | (?P<close>\))
    | (?P<endless>[*+])
    | \\? .""",
    re.VERBOSE | re.DOTALL,
)
_MANY: Final = 64
"""States for a class of Unicode."""
_UNICODE: Final = re.compile(r"\\[pPdDsSwW]|\[:|[^\0-\x7f]")
"""There may be one, also inside a class in brackets."""
_CLASS: Final = 8
"""States for any other."""
_MOST: Final = 32_768
"""States; Oxigraph refuses patterns that have many more."""
_SWITCHES: Final = re.compile(r"\(\?[a-zA-Z]*x")
"""The pattern begins to have blanks and comments in it somewhere, or all over it."""
_BEGINS: Final = re.compile(r"\(\?[a-zA-Z]*x[a-zA-Z]*\)")
"""All over it, if it stands at the beginning."""
_SWITCHES_BACK: Final = re.compile(r"\(\?[a-zA-Z]*-")
"""It may cease to have them."""
_BLANKS: Final = re.compile(
    r"(\\.)|[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|\#[^\n]*\n?", re.DOTALL
)
"""What the flag `x` leaves out, in brackets, too, and what it leaves alone since it is escaped."""
_RUN: Final = re.compile(r"(?:\[[^\]\\]*\]|\\?[^\\()\[|])[*+]")
"""A pattern that matches all there is at once, and looks no further."""

_SPEED: Final = 16
"""Characters, times states, that are searched in a step."""


class Search:
    """What is known of a call of REGEX or REPLACE."""

    __slots__ = ("_begin", "_far", "_states")

    def __init__(self, pattern: str, flags: str, all_: bool) -> None:
        """`all_`: all that matches is looked for."""
        states, far = _read(pattern, "x" in flags)
        self._begin = states + len(pattern)
        self._states = states
        self._far = far and all_

    def steps(self, length: float) -> float:
        """Steps to search a text of so many characters."""
        return self._begin + length * (self._states + (length / 2 if self._far else 0)) / _SPEED


@lru_cache(maxsize=256)
def _read(pattern: str, verbose: bool) -> tuple[int, bool]:
    """The states of a pattern, and whether a search can look far ahead of what it finds.

    `verbose`: it is read with the flag `x`.
    """
    begins = _BEGINS.match(pattern)
    if begins is not None:
        pattern, verbose = pattern[begins.end() :], True
    if verbose:
        pattern = _BLANKS.sub(r"\1", pattern)
    if (_SWITCHES_BACK if verbose else _SWITCHES).search(pattern):
        return _MOST, True
    groups = [0]
    bracketed = _MANY if _UNICODE.search(pattern) else _CLASS
    last = 0
    far = False
    for piece in _PIECE.finditer(pattern):
        kind = piece.lastgroup
        if kind == "open":
            groups.append(0)
            last = 0
        elif kind == "close":
            last = groups.pop() if len(groups) > 1 else 0
            groups[-1] = min(_MOST, groups[-1] + last)
        elif piece["count"]:
            times = int((piece["most"] or piece["least"])[:5])
            far = far or bool(piece["comma"] and not piece["most"])
            groups[-1] = min(_MOST, groups[-1] + last * max(0, times - 1))
            last = min(_MOST, last * times)
        elif kind == "endless":
            far = True
        else:
            last = _MANY if piece["many"] else bracketed if piece["class"] else 1
            groups[-1] = min(_MOST, groups[-1] + last)
    return max(1, sum(groups)), far and _RUN.fullmatch(pattern) is None


UNKNOWN: Final = Search("(?x:)", "", all_=True)
"""One of which nothing is known before it is there."""
