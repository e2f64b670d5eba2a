"""Repeated triple patterns in one basic graph pattern. It is a set, so a repetition has no meaning.

Oxigraph plans a join with each repetition, as slowly as with any other pattern. Patterns are equal here if subject,
predicate and object have the same text; different notations of a term count as different.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from edge.sparql.tokens import Token

LARGE: Final = 96
"""Tokens of a text from which repetitions are searched. Oxigraph plans 24 patterns in 2 ms."""

Edit = tuple[int, int, str]
"""Start and end of a range of characters, and its replacement."""

_SUBJECTS: Final = frozenset({"var", "iri", "name", "blank"})
_PREDICATES: Final = frozenset({"var", "iri", "name"})
_OBJECTS: Final = frozenset({"var", "iri", "name", "blank", "string", "number"})
_BOOLEANS: Final = frozenset({"true", "false"})

Pattern = tuple[str, str, str]


def repeated(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield the edits that remove all repetitions of patterns."""
    for statement, end, patterns, new in _statements(tokens):
        if len(new) < len(patterns):
            start = tokens[statement].start
            if new:
                yield start, tokens[end - 1].end, " . ".join(map(" ".join, new))
            else:
                dotted = end < len(tokens) and tokens[end].text == "."
                yield start, tokens[end].end if dotted else tokens[end - 1].end, " "


def without_repeated(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens without repeated patterns. They are equivalent only for measuring the size of a query."""
    position = 0
    for statement, end, patterns, new in _statements(tokens):
        if len(new) < len(patterns):
            yield from tokens[position:statement]
            for number, pattern in enumerate(new):
                if number:
                    yield Token("punct", ".", 0, 0)
                yield from (Token("var", text, 0, 0) for text in pattern)
            position = end
    yield from tokens[position:]


def _statements(tokens: Sequence[Token]) -> Iterator[tuple[int, int, list[Pattern], list[Pattern]]]:
    """Yield statements with triple patterns: first token, end, patterns, and those that are new in their group."""
    seen: dict[Pattern, None] = {}
    index = 0
    while index < len(tokens):
        text = tokens[index].text
        # A basic graph pattern ends where another group begins or ends (section 5.1.1).
        if text in ("{", "}"):
            seen = {}
        elif text != ".":
            seen = {}  # not a simple statement, so patterns before and after it may be in different groups
            index += 1
            continue
        index += 1
        while (found := _statement(tokens, index)) is not None:
            end, patterns = found
            new = list(dict.fromkeys(pattern for pattern in patterns if pattern not in seen))
            seen.update(dict.fromkeys(new))
            yield index, end, patterns, new
            index = end
            if index >= len(tokens) or tokens[index].text != ".":
                break
            index += 1


def _statement(tokens: Sequence[Token], index: int) -> tuple[int, list[Pattern]] | None:
    """Return the end and the patterns of a statement. None: it is missing, or has paths or brackets."""
    if index >= len(tokens) or tokens[index].kind not in _SUBJECTS:
        return None
    subject, patterns = tokens[index].text, []
    index += 1
    while True:
        if index >= len(tokens) or not (tokens[index].kind in _PREDICATES or tokens[index].text == "a"):
            return None
        predicate = tokens[index].text
        while True:
            end = _object(tokens, index + 1)
            if end is None:
                return None
            patterns.append((subject, predicate, "".join([token.text for token in tokens[index + 1 : end]])))
            index = end
            if index >= len(tokens) or tokens[index].text != ",":
                break
        while index < len(tokens) and tokens[index].text == ";":
            index += 1
            if index < len(tokens) and tokens[index].text in (".", "}"):
                return index, patterns
            if index < len(tokens) and tokens[index].text != ";":
                break
        else:
            return (index, patterns) if index < len(tokens) and tokens[index].text in (".", "}") else None


def _object(tokens: Sequence[Token], index: int) -> int | None:
    """Return the end of an object. None if it is missing, or has brackets or a sign."""
    if index >= len(tokens) or not (tokens[index].kind in _OBJECTS or tokens[index].text in _BOOLEANS):
        return None
    string = tokens[index].kind == "string"
    index += 1
    if string and index < len(tokens) and tokens[index].kind == "lang":
        return index + 1
    if string and index + 1 < len(tokens) and tokens[index].text == "^^":
        return index + 2
    return index
