"""Faults of mapping files for their authors: file, line, mapping, key, and the allowed values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

Given = TypeVar("Given")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in a mapping file."""

    reason: str
    file: str | None = None
    line: int | None = None
    mapping: str | None = None
    key: str | None = None
    allowed: str | None = None
    nearest: str | None = None
    table: str = "mapping"
    """Kind of `mapping`: a mapping, an actuator or a serial port."""

    def __str__(self) -> str:
        place = self.file or "mapping"
        if self.line is not None:
            place += f":{self.line}"
        if self.mapping is not None:
            place += f': {self.table} "{self.mapping}"'
        if self.key is not None:
            place += f": {self.key}"
        text = f"{place}: {self.reason}"
        if self.nearest is not None:
            text += f' Did you mean "{self.nearest}"?'
        if self.allowed is not None:
            text += f" Allowed: {self.allowed}."
        return text


class MappingError(ValueError):
    """A mapping file cannot be used; `faults` lists all its faults."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


class BadKeyError(ValueError):
    """The value of a key is invalid; becomes a `Fault` when file and mapping are known."""

    def __init__(
        self,
        reason: str,
        *,
        key: str | None = None,
        allowed: str | None = None,
        nearest: str | None = None,
        line: int | None = None,
    ) -> None:
        """`line` counts from the first line of the key's text."""
        super().__init__(reason)
        self.fault = Fault(reason, key=key, allowed=allowed, nearest=nearest, line=line)

    def under(self, key: str) -> BadKeyError:
        """Return the same error with `key`, if it has no key yet."""
        if self.fault.key is None:
            self.fault = replace(self.fault, key=key)
        return self


def under(key: str, function: Callable[[Given], Value], given: Given) -> Value:
    """Return `function(given)`; faults in it are assigned to `key`."""
    try:
        return function(given)
    except BadKeyError as error:
        raise error.under(key) from None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `word`."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def line_of(text: str, keys: Sequence[str], table: str, index: int | None, tables: Collection[str]) -> int | None:
    """Return the line of a key in the table with this number, else the line of the table's header.

    A text search, because TOML parsers do not report lines. `tables`: names of tables that can occur several times;
    each begins where the previous one ends.
    """
    lines = text.splitlines()
    marks = [(number, line.strip().replace(" ", "")) for number, line in enumerate(lines)]
    start, end, found = 0, len(lines), None
    if index is not None:
        headers = [number for number, mark in marks if mark == f"[[{table}]]"]
        if index >= len(headers):
            return None
        start = found = headers[index]
        others = [f"[[{each}]]" for each in tables]
        end = next((number for number, mark in marks if number > start and mark in others), len(lines))
    for key in keys:
        # A number is the index of a [[mapping.readings]] table.
        if key.isdigit():
            readings = [n for n in range(start, end) if lines[n].strip().replace(" ", "") == "[[mapping.readings]]"]
            if int(key) < len(readings):
                start = found = readings[int(key)]
            continue
        pattern = re.compile(rf"""(^|[\s{{,\[."'])["']?{re.escape(key)}["']?\s*(=|\]|\.)""")
        hit = next((number for number in range(start, end) if pattern.search(lines[number])), None)
        if hit is not None:
            start = found = hit
    return None if found is None else found + 1
