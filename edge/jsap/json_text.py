"""JSON (RFC 8259) as nodes with positions.

Line breaks within texts are accepted with a note: people write SPARQL on several lines, and many parsers accept it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Final

from edge.jsap.findings import Findings
from edge.jsap.nodes import MAX_DEPTH, Node, NotReadable, Scalar, Source

_SPACE: Final = re.compile(r"[ \t\r\n]*")
# The digits are bounded, because converting a long integer takes quadratic time.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,400})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?(?![\w.])")
_WORD: Final = re.compile(r"true|false|null")
# Not strict: strings may contain line breaks. `_string` adds a note about them.
_STRINGS: Final = json.JSONDecoder(strict=False)
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_CHARACTER: Final = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)
"""One character of a JSON text; two escapes make one beyond U+FFFF."""


def read_json(source: Source, findings: Findings) -> Node:
    """Parse a document. Raises `NotReadable` for the first syntax error."""
    reader = _JsonParser(source, findings)
    node, end = reader.value(reader.skip(0), None, 0)
    end = reader.skip(end)
    if end < len(source.text):
        raise reader.wrong(end, "not JSON: nothing may follow the document")
    return node


def number(text: str) -> int | float | Decimal | None:
    """Return the value of a JSON number, or None if it is not one or too large."""
    if _NUMBER.fullmatch(text) is None:
        return None
    if "e" not in text.lower():
        return Decimal(text) if "." in text else int(text)
    value = float(text)
    return value if abs(value) != float("inf") else None


class _JsonParser:
    def __init__(self, source: Source, findings: Findings) -> None:
        self._source = source
        self._text = source.text
        self._findings = findings
        self._broken = False

    def skip(self, position: int) -> int:
        match = _SPACE.match(self._text, position)
        return match.end() if match else position

    def wrong(self, position: int, reason: str) -> NotReadable:
        return NotReadable(self._source.problem(position, reason))

    def value(self, position: int, key: int | None, depth: int) -> tuple[Node, int]:
        """Return the value at a position, and its end."""
        if depth > MAX_DEPTH:
            raise self.wrong(position, f"nested deeper than {MAX_DEPTH} levels")
        opening = self._text[position : position + 1]
        if opening == "{":
            return self._object(position, key, depth)
        if opening == "[":
            return self._array(position, key, depth)
        if opening == '"':
            text, end = self._string(position)
            return Node(text, self._source, position, key, partial(_offset, self._text, position)), end
        scalar: Scalar
        if match := _WORD.match(self._text, position):
            scalar = _WORDS[match[0]]
        elif match := _NUMBER.match(self._text, position):
            scalar = number(match[0])
            if scalar is None:
                raise self.wrong(position, "the number is too large")
        else:
            raise self.wrong(position, f"not JSON: {self._found(position)} where a value should be")
        return Node(scalar, self._source, position, key), match.end()

    def _object(self, position: int, key: int | None, depth: int) -> tuple[Node, int]:
        members: dict[str, Node] = {}

        def member(start: int) -> int:
            if self._text[start : start + 1] != '"':
                raise self.wrong(start, f"not JSON: {self._found(start)} where a member's name in quotes should be")
            name, end = self._string(start)
            if name in members:
                self._findings.problem(self._source.problem(start, f'the member "{name}" stands here twice'))
            end = self.skip(end)
            if self._text[end : end + 1] != ":":
                raise self.wrong(end, f'not JSON: {self._found(end)} where the colon after "{name}" should be')
            members[name], end = self.value(self.skip(end + 1), start, depth + 1)
            return end

        end = self._items(position, "}", member)
        return Node(members, self._source, position, key), end

    def _array(self, position: int, key: int | None, depth: int) -> tuple[Node, int]:
        items: list[Node] = []

        def item(start: int) -> int:
            node, end = self.value(start, None, depth + 1)
            items.append(node)
            return end

        end = self._items(position, "]", item)
        return Node(items, self._source, position, key), end

    def _items(self, position: int, closing: str, item: Callable[[int], int]) -> int:
        """Parse comma-separated items up to `closing`; return the end."""
        end = self.skip(position + 1)
        if self._text[end : end + 1] == closing:
            return end + 1
        while True:
            end = self.skip(item(end))
            if self._text[end : end + 1] == closing:
                return end + 1
            if self._text[end : end + 1] != ",":
                raise self.wrong(end, f"not JSON: {self._found(end)} where a comma or {closing} should be")
            end = self.skip(end + 1)

    def _string(self, position: int) -> tuple[str, int]:
        try:
            text, end = _STRINGS.raw_decode(self._text, position)
        except json.JSONDecodeError as error:
            raise self.wrong(error.pos, f"not JSON: {error.msg.removesuffix(' starting at').lower()}") from None
        if any("\ud800" <= character <= "\udfff" for character in text):
            reason = "the text has half a surrogate pair, which is not a character"
            self._findings.problem(self._source.problem(position, reason))
        elif not self._broken and "\n" in self._text[position:end]:
            # One such note per document is enough.
            self._broken = True
            reason = "the text has line breaks; that is read here, but it is not JSON (write \\n, or YAML)"
            self._findings.note(self._source.problem(position, reason))
        return text, end

    def _found(self, position: int) -> str:
        if position >= len(self._text):
            return "the end of the file"
        return repr(self._text[position])


def _offset(text: str, start: int, number_: int) -> int:
    """Return the position of character `number_` of the quoted text that begins at `start`."""
    position = start + 1
    for _ in range(number_):
        match = _CHARACTER.match(text, position)
        if match is None:
            break
        position = match.end()
    return position
