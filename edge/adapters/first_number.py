"""Extraction of the first number from a payload of unknown format."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Final

from edge.mapping.evaluate import FIRST_NUMBER
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.values import JsonNumber

_SEARCHED: Final = 4096
"""Maximum bytes of a payload, or characters of a text in it, that are searched."""
_MINUS: Final = "\u2212"
"""Typographic minus sign (U+2212)."""


def first_number(payload: bytes, largest: int) -> str:
    """Return the first number in its original notation. In JSON, only values are searched: numbers first, then texts.

    A payload of more than `largest` bytes is not parsed as JSON. Raises `ValueError` with the reason if no number is
    found.
    """
    for number in _candidates(payload, largest):
        if not math.isfinite(float(number)):
            raise ValueError(f"the number {number[:50]} is not finite")
        return number
    raise ValueError("the payload holds no number")


def _candidates(payload: bytes, largest: int) -> Iterator[str]:
    document: object = payload[:_SEARCHED].decode(errors="replace")
    if len(payload) <= largest:
        with contextlib.suppress(PayloadError):
            document = PayloadMessage("", payload).document
    scalars = list(_scalars(document))
    yield from (item for item in scalars if isinstance(item, JsonNumber))
    for item in scalars:
        found = FIRST_NUMBER.search(item[:_SEARCHED].replace(_MINUS, "-"))
        if found is not None:
            yield found[0]


def _scalars(document: object) -> Iterator[str]:
    """Numbers and texts, in order."""
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict | list):
            waiting += reversed(item.values() if isinstance(item, dict) else item)
