"""The explanation of a rejected text: problem, place, remedy."""

from __future__ import annotations

from typing import NamedTuple


class Diagnosis(NamedTuple):
    """Why a text is not valid. `position` is the index of a character in the text (its length: at the end)."""

    position: int
    problem: str
    remedy: str

    def message(self, text: str) -> str:
        """Return one line for the author of `text`, with line and column counted from 1."""
        line, column = line_and_column(text, self.position)
        return f"{self.problem} (line {line}, column {column}). {self.remedy}".rstrip()


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return line and column of a character, both counted from 1. CR LF, CR and LF end a line."""
    before = text[:position].replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, len(before) - before.rfind("\n")
