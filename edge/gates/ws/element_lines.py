"""Elements of a stream as text: N-Quads, in which a line `@TIME` begins an element with that time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.gates.http.rdf_body import read_graph
from edge.protocol.due_time import read_time
from edge.protocol.errors import InvalidRequest, TooLarge

MAX_ELEMENTS: Final = 1_000
"""Elements of a message."""


class _Lines(NamedTuple):
    """The lines of an element."""

    first: int
    """Number of the first line of the message, from 1."""
    time: int | None
    lines: list[str]

    @property
    def has_quads(self) -> bool:
        """Whether a line is neither empty nor a comment."""
        return any(line.strip() and not line.lstrip().startswith("#") for line in self.lines)


def read_elements(text: str) -> list[tuple[tuple[ox.Triple, ...], int | None]]:
    """Return the graphs of the elements, and their times in microseconds since 1970; None: without a time.

    Labels of blank nodes are those of one element. Raises `InvalidRequest`, `TooLarge` for too many elements.
    """
    found = []
    for element in _divided(text):
        if not element.has_quads:
            raise InvalidRequest(f"The element at line {element.first} has no quads; send N-Quads, one line a quad")
        try:
            triples = _read(element)
        except InvalidRequest as error:
            problem = error.description.replace("The body", f"The element at line {element.first}", 1)
            raise InvalidRequest(problem) from None
        found.append((triples, element.time))
    return found


def _read(element: _Lines) -> tuple[ox.Triple, ...]:
    """Return the triples of an element. The error names the line of the message."""
    try:
        return _parsed(element.lines)
    except InvalidRequest:
        # Again, below empty lines for those before it, whose number the parser counts. Only for an error: the empty
        # lines of a thousand elements would be too many.
        return _parsed([""] * (element.first - (element.time is None)) + element.lines)


def _parsed(lines: list[str]) -> tuple[ox.Triple, ...]:
    return read_graph("\n".join(lines), "application/n-quads", "")


def _divided(text: str) -> Iterator[_Lines]:
    """Divide a message at the lines with times. Quads before the first of them are an element without a time."""
    element, number = _Lines(1, None, []), 0
    # N-Quads end lines with CR or LF alone (RDF 1.1 N-Quads, section 2); those of `splitlines` end with others, too.
    for line, content in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if not content.startswith("@"):
            element.lines.append(content)
            continue
        if element.time is not None or element.has_quads:
            number += 1
            yield element
        if number >= MAX_ELEMENTS:
            raise TooLarge(f"The message has more than {MAX_ELEMENTS:,} elements; divide it")
        element = _Lines(line, _time(content[1:].strip(), line), [])
    yield element


def _time(text: str, line: int) -> int:
    try:
        return read_time(text)
    except ValueError as error:
        raise InvalidRequest(str(error).replace('"at"', f"The time in line {line}", 1)) from None
