"""SPARQL text as tokens: enough syntax to take a request apart, never to judge it (Oxigraph judges).

Terminals follow SPARQL 1.1 Query Language, section 19.8. Everything here works on positions in the original text, so
that a part of a request, its WHERE clause for example, can be handed on as its author wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from edge.protocol.errors import ParsingFailed

_PN_BASE: Final = (
    r"A-Za-z\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02FF\u0370-\u037D\u037F-\u1FFF\u200C-\u200D\u2070-\u218F"
    r"\u2C00-\u2FEF\u3001-\uD7FF\uF900-\uFDCF\uFDF0-\uFFFD\U00010000-\U000EFFFF"
)
_PN_U: Final = _PN_BASE + "_"
_PN_CHARS: Final = _PN_U + r"0-9\u00B7\u0300-\u036F\u203F-\u2040\-"
_PLX: Final = r"%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?#@%]"
_PREFIX: Final = rf"(?:[{_PN_BASE}](?:[{_PN_CHARS}.]*[{_PN_CHARS}])?)?:"
_LOCAL: Final = rf"(?:(?:[{_PN_U}:0-9]|{_PLX})(?:(?:[{_PN_CHARS}.:]|{_PLX})*(?:[{_PN_CHARS}:]|{_PLX}))?)?"

_TOKEN: Final = re.compile(
    "|".join(
        (
            r"(?P<skip>[\x20\t\r\n]+|\#[^\r\n]*)",
            r'(?P<string>"""(?:"{0,2}(?:[^"\\]|\\.))*"""' + r"|'''(?:'{0,2}(?:[^'\\]|\\.))*'''"
            r'|"(?:[^"\\\r\n]|\\.)*"' + r"|'(?:[^'\\\r\n]|\\.)*')",
            r'(?P<iri><(?:[^\x00-\x20<>"{}|^`\\]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*>)',
            rf"(?P<var>[?$][{_PN_U}0-9][{_PN_U}0-9\u00B7\u0300-\u036F\u203F-\u2040]*)",
            rf"(?P<blank>_:[{_PN_U}0-9](?:[{_PN_CHARS}.]*[{_PN_CHARS}])?)",
            rf"(?P<name>{_PREFIX}{_LOCAL})",
            r"(?P<lang>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)",
            r"(?P<number>(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+|\d*\.\d+|\d+)",
            r"(?P<word>[A-Za-z_][A-Za-z_0-9]*)",
            r"(?P<punct>\^\^|<<\(|\)>>|<<|>>|&&|\|\||!=|<=|>=|[{}()\[\].,;=<>!+\-*/^|?~@])",
        )
    ),
    re.DOTALL,
)


class Token(NamedTuple):
    """One terminal: its kind (the group's name in the grammar above), text and position in the request."""

    kind: str
    text: str
    start: int
    end: int

    def word(self) -> str:
        """The keyword in upper case, or an empty string if the token is no word."""
        return self.text.upper() if self.kind == "word" else ""


def tokenize(text: str) -> list[Token]:
    """The terminals of a request, without white space and comments."""
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            column = position - text.rfind("\n", 0, position)
            raise ParsingFailed(f"Not SPARQL at line {line}, column {column}: {text[position : position + 20]!r}")
        if match.lastgroup != "skip":
            tokens.append(Token(match.lastgroup or "", match.group(), position, match.end()))
        position = match.end()
    return tokens


_OPENING: Final = frozenset("{([")
_CLOSING: Final = frozenset("})]")


def closing(tokens: Sequence[Token], opening: int) -> int:
    """The index of the token that closes the bracket at `opening`."""
    depth = 0
    for index in range(opening, len(tokens)):
        token = tokens[index]
        if token.kind == "punct":
            if token.text in _OPENING:
                depth += 1
            elif token.text in _CLOSING:
                depth -= 1
                if depth == 0:
                    return index
    raise ParsingFailed(f"The bracket {tokens[opening].text!r} is never closed")


def read_prologue(text: str, tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """The declarations from token `index` on, as text, and the index of the first token after them."""
    start = index
    while index < len(tokens):
        word = tokens[index].word()
        if word == "BASE":
            index += 2
        elif word == "PREFIX":
            index += 3
        else:
            break
    if index == start or index > len(tokens):
        return "", min(index, len(tokens))
    return text[tokens[start].start : tokens[index - 1].end] + "\n", index


def variables(tokens: Sequence[Token]) -> Iterator[str]:
    """Names of variables in order of first appearance."""
    seen: set[str] = set()
    for token in tokens:
        if token.kind == "var" and token.text[1:] not in seen:
            seen.add(token.text[1:])
            yield token.text[1:]


def calls(tokens: Sequence[Token], names: frozenset[str]) -> Iterator[int]:
    """Indexes of the tokens where one of the built-in functions `names` (upper case) is called."""
    for index, token in enumerate(tokens[:-1]):
        if token.kind == "word" and tokens[index + 1].text == "(" and token.text.upper() in names:
            yield index


def replace_now(text: str, tokens: Sequence[Token], now: str) -> str:
    """The text with every call of NOW() as the constant `now` (xsd:dateTime lexical form).

    SPARQL 1.1 Query, 17.4.5.1: all calls in one execution give the same value. A cast stands wherever a call may.
    """
    pieces: list[str] = []
    position = 0
    for index in calls(tokens, _NOW):
        pieces.append(text[position : tokens[index].start])
        pieces.append(f'<http://www.w3.org/2001/XMLSchema#dateTime>("{now}")')
        position = tokens[index + 2].end
    pieces.append(text[position:])
    return "".join(pieces)


_NOW: Final = frozenset({"NOW"})


def has_word(tokens: Sequence[Token], word: str) -> bool:
    """Whether a keyword occurs as such. A prefixed name or a string that contains it does not count."""
    return any(token.kind == "word" and token.text.upper() == word for token in tokens)
