"""Where a key stands in the text of a mapping file, which TOML parsers do not tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence


def line_of(text: str, keys: Sequence[str], table: str, index: int | None, tables: Collection[str]) -> int | None:
    """The line of a key of the table with this number, else that of the table's header. A search, no parse.

    `tables` are those of which a file has many; one of them ends the one before.
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
