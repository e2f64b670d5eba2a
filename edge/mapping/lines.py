"""Finds the line of a key in a mapping file; TOML parsers do not report it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence


def line_of(text: str, keys: Sequence[str], table: str, index: int | None, tables: Collection[str]) -> int | None:
    """Return the line of a key in the table with this number, else the line of the table's header. A text search.

    `tables`: names of tables that can occur several times; each begins where the previous one ends.
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
