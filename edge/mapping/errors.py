"""Faults of mapping files for their authors: file, line, mapping, key, and the allowed values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from edge.mapping.fault_reasons import Reason

Given = TypeVar("Given")
Value = TypeVar("Value")


FaultCode = Literal["not_toml", "unknown_key", "missing_key", "wrong_value", "not_usable", "announced"]
"""`wrong_value`: of another type, or not allowed for the key. `announced`: of an announcement or a birth.
`not_usable`: all others."""


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
    """Kind of `mapping`: a mapping, an actuator, a serial port or a Modbus device."""
    code: FaultCode = "not_usable"
    """Kind of the fault; stable, for programs and for other languages."""

    def __str__(self) -> str:
        place = self.file or "mapping"
        if self.line is not None:
            place += f":{self.line}"
        if self.mapping is not None:
            place += f': {self.table} "{self.mapping}"'
        if self.key is not None:
            place += f": {self.key}"
        text = f"{place}: Not TOML: {self.reason}" if self.code == "not_toml" else f"{place}: {self.reason}"
        if self.nearest is not None:
            text += f' Did you mean "{self.nearest}"?'
        if self.allowed is not None:
            text += f" Allowed: {self.allowed}."
        return text

    def to_json(self) -> dict[str, object]:
        """Return the line, the English text, and its parts for other languages."""
        known = self.reason if isinstance(self.reason, Reason) else None
        return {
            "line": self.line,
            "text": str(self),
            "code": self.code,
            "reason": self.reason,
            "reason_code": known.code if known is not None else None,
            "reason_values": dict(known.values) if known is not None else {},
            "table": self.table,
            "mapping": self.mapping,
            "key": self.key,
            "nearest": self.nearest,
            "allowed": self.allowed,
        }


def listed_fault(source: str, reason: str, *, begin: str = "", kept: bool = False) -> dict[str, object]:
    """Return a fault as `MappingFiles.faults` lists it, and `announced`: it is not one of a file. `source`: its
    announcement or birth. `begin`: beginning of the English text. `kept`: the previous announcement applies.
    """
    known = reason if isinstance(reason, Reason) else Reason(reason, None, {})
    part = Fault(known.alone, key=known.place or None, code="announced").to_json() | {"text": begin + reason}
    return {
        "file": source,
        "reason": begin + reason,
        "faults": [part],
        "previous_version_applies": kept,
        "announced": True,
    }


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
        self.warning = False
        """Whether the file can be used in spite of it."""
        self.of_defaults = False
        """Whether the key is one of [defaults]."""

    def under(self, key: str) -> BadKeyError:
        """Return the same error with `key`, if it has no key yet."""
        if self.fault.key is None:
            self.fault = replace(self.fault, key=key)
        return self


class FaultsOfTable:
    """Collects the faults of one table, so that an author sees all of them at once."""

    def __init__(self) -> None:
        self.found: list[BadKeyError] = []

    def attempt(self, function: Callable[[], Value]) -> Value | None:
        """Return the value of a function; None if it raises `BadKeyError`, which is added."""
        try:
            return function()
        except BadKeyError as error:
            self.found.append(error)
            return None

    def add(self, error: BadKeyError) -> None:
        """Add a fault."""
        self.found.append(error)

    def warn(self, error: BadKeyError) -> None:
        """Add a fault in spite of which the file can be used."""
        error.warning = True
        self.found.append(error)

    @property
    def fatal(self) -> bool:
        """Whether the table cannot be used."""
        return any(not error.warning for error in self.found)


def under(key: str, function: Callable[[Given], Value], given: Given) -> Value:
    """Return `function(given)`; faults in it are assigned to `key`."""
    try:
        return function(given)
    except BadKeyError as error:
        raise error.under(key) from None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `word`."""
    import difflib  # 3 ms, and only suggestions need it

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
        if not headers:  # [mapping], or mapping = [...]
            headers = [number for number, mark in marks if mark == f"[{table}]" or mark.startswith(f"{table}=")] * (
                index + 1
            )
        if index >= len(headers):
            return None
        start = found = headers[index]
        others = [f"[[{each}]]" for each in tables]
        end = next((number for number, mark in marks if number > start and mark in others), len(lines))
    for before, key in zip(("", *keys), keys, strict=False):
        # A number is the index of a table such as [[mapping.readings]], or of a table in a list.
        if key.isdigit():
            items = [n for n in range(start, end) if marks[n][1] == f"[[{table}.{before}]]"]
            items = items or _inline_tables(lines[start:end], start)
            if int(key) < len(items):
                start = found = items[int(key)]
            continue
        pattern = re.compile(rf"""(^|[\s{{,\[."'])["']?{re.escape(key)}["']?\s*(=|\]|\.)""")
        hit = next((number for number in range(start, end) if pattern.search(lines[number])), None)
        if hit is not None:
            start = found = hit
    return None if found is None else found + 1


_TOKEN: Final = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'[^']*'|\#.*|[\[\]{}]""")


def _inline_tables(lines: Sequence[str], first: int) -> list[int]:
    """Return the lines of the tables in the list that begins in the first line. `first`: its number."""
    found: list[int] = []
    depth = 0
    for number, line in enumerate(lines, first):
        for token in _TOKEN.findall(line):
            if token in ("[", "{"):
                if token == "{" and depth == 1:  # noqa: S105
                    found.append(number)
                depth += 1
            elif token in ("]", "}"):
                depth -= 1
                if depth <= 0:
                    return found
    return found
