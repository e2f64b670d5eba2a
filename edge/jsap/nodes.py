"""Documents as trees of nodes with positions in their files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Final

from edge.jsap.errors import Problem

MAX_DEPTH: Final = 100
"""Maximum depth of nested objects."""

MAX_NODES: Final = 200_000
"""Maximum values of a document; those that YAML repeats count each time."""

Scalar = str | int | float | bool | Decimal | None


@dataclass(frozen=True)
class Source:
    """Text of a file."""

    name: str
    text: str

    @cached_property
    def _lines(self) -> list[int]:
        # Offsets of the line starts, computed only when a problem needs its line.
        return [0, *(index + 1 for index, character in enumerate(self.text) if character == "\n")]

    def problem(self, offset: int, reason: str) -> Problem:
        """Return a problem at a position of the text."""
        line = bisect_right(self._lines, offset)
        return Problem(self.name, line, offset - self._lines[line - 1] + 1, reason)


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """A value of a document. Numbers are int, Decimal, or with an exponent float."""

    value: Scalar | list[Node] | dict[str, Node]
    source: Source
    start: int
    key: int | None = None
    """Position of the member's name, if it is the value of a member."""
    inner: Callable[[int], int] | None = None
    """Function from the number of a character of a text to its position."""

    def problem(self, reason: str, inside: int | None = None) -> Problem:
        """Return a problem of the value, or of its character number `inside`."""
        offset = self.start if inside is None or self.inner is None else self.inner(inside)
        return self.source.problem(offset, reason)

    def key_problem(self, reason: str) -> Problem:
        """Return a problem of the member with this value."""
        return self.source.problem(self.start if self.key is None else self.key, reason)

    def plain(self) -> object:
        """Return the value as `json.loads` does."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return float(self.value) if isinstance(self.value, Decimal) else self.value


class NotReadable(Exception):
    """A text is not JSON or YAML; contains the `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def merged(below: Node | None, above: Node | None) -> Node | None:
    """Merge two nodes; None means a missing one. Objects are merged by member, otherwise `above` overrides."""
    if below is None or above is None:
        return above or below
    if not isinstance(below.value, dict) or not isinstance(above.value, dict):
        return above
    members = dict(below.value)
    for name, node in above.value.items():
        members[name] = merged(members.get(name), node) or node
    return replace(above, value=members)
