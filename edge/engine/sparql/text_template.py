"""Moulds: a text that comes again and again as one regular expression, with a group where each open constant stands.

A mould takes the constants out of a text of its shape in a quarter of the time that finding its shape takes. It is
made only where the two cannot disagree: the pieces between the constants hold nothing that begins a constant, and end
with nothing that goes on into one, so what `shape` finds in a text that fits is what the groups take.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from edge.engine.sparql.fingerprint import IRI, NAME, NUMBER, PREFIXED, STRINGS, ConstantPlace, pieces

LONGEST: Final = 2_048
"""Characters of a text that is worth a mould."""

_BEGINS: Final = re.compile("[\"'<#:\0]")
_GOES_ON: Final = re.compile(r"[\w.\-]\Z", re.ASCII)
_KINDS: Final = {"<": IRI, '"': STRINGS['"'], "'": STRINGS["'"], ":": NAME}


def text_template(
    text: str, start: int, open_: Sequence[ConstantPlace], groups: Sequence[int]
) -> re.Pattern[str] | None:
    """What matches the texts that differ from this one at the open places only. None: it has no mould.

    The places are those of what follows `start`. Those of one group, numbered from 0 in order, hold the same constant,
    so each has one group in the match: nothing that follows an open place could be the rest of a longer constant.
    """
    if len(text) > LONGEST:
        return None
    between = pieces(text[start:])
    before = between[:-1]
    if any(map(_BEGINS.search, between)) or any(map(_GOES_ON.search, before)) or "" in before[1:]:
        return None
    parts: list[str] = []
    end = taken = 0
    for place, group in zip(open_, groups, strict=True):
        parts.append(re.escape(text[end : start + place.start]))
        if group < taken:
            parts.append(rf"(?:\{group + 1})")
        else:
            first = text[start + place.start]
            kind = _KINDS.get(first) or (NUMBER if first.isdigit() else PREFIXED)
            parts.append(f"((?>{kind}))")
            taken += 1
        end = start + place.end
    parts.append(re.escape(text[end:]))
    return re.compile("".join(parts), re.ASCII | re.DOTALL)
