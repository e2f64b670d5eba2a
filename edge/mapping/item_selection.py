"""One of several items of a payload: the one with the largest or the smallest number at a path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from edge.mapping.errors import BadKeyError, under
from edge.mapping.jsonpath import Hit, JsonPath, parse_path
from edge.mapping.values import plain_text

_FORM: Final = re.compile(r"(max|min)\((.+)\)")


@dataclass(frozen=True, slots=True)
class Pick:
    """Compiled `pick`."""

    path: JsonPath
    largest: bool

    def of(self, hits: Iterable[Hit]) -> Hit | None:
        """Return the item; the first of equal ones. None if no item has a number at the path."""
        best: tuple[Decimal, Hit] | None = None
        for hit in hits:
            number = self._number(hit)
            if number is not None and (best is None or (number > best[0] if self.largest else number < best[0])):
                best = number, hit
        return None if best is None else best[1]

    def _number(self, hit: Hit) -> Decimal | None:
        value = self.path.first(hit.value)
        if value is None or isinstance(value, bool | dict | list):
            return None
        try:
            number = Decimal(plain_text(value)[:64])
        except InvalidOperation:
            return None
        return number if number.is_finite() else None


def pick(text: str) -> Pick:
    """Compile `pick`. Raises `BadKeyError`."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise BadKeyError(f'"{text}" picks nothing.', key="pick", allowed="max(rssi), min(distance)")
    return Pick(under("pick", parse_path, form[2]), form[1] == "max")
