"""Upper bound of the work to search a text with a regular expression.

Oxigraph's time is proportional to the length of the text, times the length of the pattern with its counted repetitions
expanded: (a{1,100}){1,50} takes a second for a few kilobytes of text. REPLACE starts a new search after each match, and
a pattern that can look far ahead does so each time. Nothing stops a call, so the bound is computed from the pattern
before it.
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
"""States of a Unicode class."""
_UNICODE: Final = re.compile(r"\\[pPdDsSwW]|\[:|[^\0-\x7f]")
"""Pattern that may contain a Unicode class, also inside brackets."""
_CLASS: Final = 8
"""States of any other class."""
_MOST: Final = 32_768
"""Maximum of states; Oxigraph rejects patterns with many more."""
_SWITCHES: Final = re.compile(r"\(\?[a-zA-Z]*x")
"""The flag `x` (ignore whitespace and comments) is switched on somewhere, or for the whole pattern."""
_BEGINS: Final = re.compile(r"\(\?[a-zA-Z]*x[a-zA-Z]*\)")
"""The flag is switched on for the whole pattern, if at its beginning."""
_SWITCHES_BACK: Final = re.compile(r"\(\?[a-zA-Z]*-")
"""The flag may be switched off."""
_BLANKS: Final = re.compile(
    r"(\\.)|[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|\#[^\n]*\n?", re.DOTALL
)
"""Text that the flag `x` ignores, also in brackets, and escaped text that it does not ignore."""
_RUN: Final = re.compile(r"(?:\[[^\]\\]*\]|\\?[^\\()\[|])[*+]")
"""A pattern that matches a whole run at once, and looks no further."""

_SPEED: Final = 16
"""Characters times states that are searched in one step."""


class Search:
    """The cost of a call of REGEX or REPLACE."""

    __slots__ = ("_begin", "_far", "_states")

    def __init__(self, pattern: str, flags: str, all_: bool) -> None:
        """`all_`: the call searches all matches."""
        states, far = _read(pattern, "x" in flags)
        self._begin = states + len(pattern)
        self._states = states
        self._far = far and all_

    def steps(self, length: float) -> float:
        """Return the steps to search a text of `length` characters."""
        return self._begin + length * (self._states + (length / 2 if self._far else 0)) / _SPEED


@lru_cache(maxsize=256)
def _read(pattern: str, verbose: bool) -> tuple[int, bool]:
    """Return the states of a pattern, and whether a search can look far ahead of its matches.

    `verbose`: the pattern has the flag `x`.
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
            # One copy of the repeated piece is counted already.
            groups[-1] = min(_MOST, groups[-1] + last * max(0, times - 1))
            last = min(_MOST, last * times)
        elif kind == "endless":
            far = True
        else:
            last = _MANY if piece["many"] else bracketed if piece["class"] else 1
            groups[-1] = min(_MOST, groups[-1] + last)
    return max(1, sum(groups)), far and _RUN.fullmatch(pattern) is None


UNKNOWN: Final = Search("(?x:)", "", all_=True)
"""Cost of a search whose pattern is not known yet."""
