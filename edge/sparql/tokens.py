"""Tokenizer for SPARQL: the terminals of a text.

Terminals follow SPARQL 1.1 Query Language, section 19.8. All functions use positions in the original text, so that
they can extract a part, for example the WHERE clause, exactly as its author wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from edge.sparql.diagnosis import Diagnosis
from edge.sparql.errors import LimitOfText, SparqlError

_FURTHER_LETTERS: Final = (
    r"\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02FF\u0370-\u037D\u037F-\u1FFF\u200C-\u200D\u2070-\u218F"
    r"\u2C00-\u2FEF\u3001-\uD7FF\uF900-\uFDCF\uFDF0-\uFFFD\U00010000-\U000EFFFF"
)
_FURTHER_SIGNS: Final = r"\u00B7\u0300-\u036F\u203F-\u2040"
_PLX: Final = r"%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?#@%]"


MAX_PIECES: Final = 100_000
"""Maximum number of escape sequences, or of quotation marks inside, of one string.

Matching takes 160 bytes of memory for each, which `re` frees only at the end of the string.
"""


def _string(quote: str) -> str:
    """Return the pattern of a string on one line."""
    plain = rf"[^{quote}\\\r\n]*"
    return rf"{quote}{plain}(?:\\.{plain}){{0,{MAX_PIECES}}}{quote}"


def _long_string(quote: str) -> str:
    """Return the pattern of a string between three quotation marks."""
    plain = rf"[^{quote}\\]*"
    return rf"{quote * 3}{plain}(?:(?:\\.|{quote}{{1,2}}(?:[^{quote}\\]|\\.)){plain}){{0,{MAX_PIECES}}}{quote * 3}"


@cache
def _token(ascii_only: bool) -> re.Pattern[str]:
    """Return the pattern of a terminal.

    `ascii_only`: for texts without other characters, which are most. To compile the classes of all letters takes 15 ms.
    """
    letters, signs = ("", "") if ascii_only else (_FURTHER_LETTERS, _FURTHER_SIGNS)
    base = "A-Za-z" + letters
    start = base + "_"
    chars = start + "0-9" + signs + r"\-"
    # The length limit keeps matching linear: without a colon, each word would be searched to the end of the text.
    prefix = rf"(?:[{base}](?:[{chars}.]{{0,200}}[{chars}])?)?:"
    local = rf"(?:(?:[{start}:0-9]|{_PLX})(?:(?:[{chars}.:]|{_PLX})*(?:[{chars}:]|{_PLX}))?)?"
    strings = "|".join(made(quote) for made in (_long_string, _string) for quote in "\"'")
    pattern = "|".join(
        (
            r"(?P<skip>[\x20\t\r\n]+|\#[^\r\n]*)",
            f"(?P<string>{strings})",
            r'(?P<iri><(?:[^\x00-\x20<>"{}|^`\\]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*>)',
            rf"(?P<var>[?$][{start}0-9][{start}0-9{signs}]*)",
            rf"(?P<blank>_:[{start}0-9](?:[{chars}.]*[{chars}])?)",
            rf"(?P<name>{prefix}{local})",
            r"(?P<lang>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)",
            r"(?P<number>(?:[0-9]++(?>(?:\.[0-9]*+)?)|\.[0-9]++)[eE][+-]?[0-9]++|[0-9]*+\.[0-9]++|[0-9]++)",
            # `a1` means `a 1`: white space is optional there, because no keyword continues like that.
            r"(?P<word>a(?=[0-9])|[A-Za-z_][A-Za-z_0-9]*)",
            r"(?P<punct>\^\^|<<\(|\)>>|<<|>>|&&|\|\||!=|<=|>=|[{}()\[\].,;=<>!+\-*/^|?~@])",
        )
    )
    return re.compile(pattern, re.DOTALL)


class Token(NamedTuple):
    """One terminal: its kind (the group's name in the grammar above), text and position in the request."""

    kind: str
    text: str
    start: int
    end: int

    def word(self) -> str:
        """Return the keyword in upper case, or an empty string if the token is not a word."""
        return self.text.upper() if self.kind == "word" else ""


def tokenize(text: str) -> list[Token]:
    """Return the terminals of a request, without white space and comments.

    Raises `SparqlError` for a character that begins no terminal, and `LimitOfText` for brackets nested deeper
    than `MAX_DEPTH`.
    """
    tokens: list[Token] = []
    context = _Context()
    pattern = _token(text.isascii())
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        kind, end = match.lastgroup or "", match.end()
        if kind != "skip":
            if text[position] == "<" and context.compares(tokens):
                kind, end = "punct", position + (2 if text.startswith("<=", position) else 1)
            tokens.append(Token(kind, text[position:end], position, end))
            if kind in ("punct", "word"):
                context.follow(tokens, len(tokens) - 1)
                if context.depth() > MAX_DEPTH:
                    fault = Diagnosis(
                        position, f"Brackets are nested deeper than {MAX_DEPTH} levels", "Use fewer levels."
                    )
                    raise LimitOfText(fault.message(text), position, fault.remedy)
        position = end
    return tokens


_LINE_BREAK: Final = re.compile(r"[\r\n]")


def _unreadable(text: str, position: int) -> SparqlError:
    """Return the error for a text in which no token can be read at `position`."""
    sign = text[position]
    if sign in "\"'":
        line = _LINE_BREAK.search(text, position)
        end = len(text) if _is_long(text, position) or line is None else line.start()
        pieces = text.count("\\", position, end) + text.count(sign, position, end)
    else:
        pieces = 0
    if pieces > MAX_PIECES:
        problem = f"A string is not closed, or has more than {MAX_PIECES} escape sequences or quotation marks in it"
        fault = Diagnosis(position, problem, "Use a shorter string.")
        return LimitOfText(fault.message(text), position, fault.remedy)
    return SparqlError(_unreadable_sign(text, position).message(text))


def _is_long(text: str, position: int) -> bool:
    """Whether three quotation marks begin the string. Without an end, the first two are read as an empty string."""
    return text.startswith(text[position] * 3, max(0, position - 2))


def _unreadable_sign(text: str, position: int) -> Diagnosis:
    """Explain why the character at `position` begins no token."""
    sign = text[position]
    if sign in "\"'":
        if _is_long(text, position):
            return Diagnosis(max(0, position - 2), "The string is not closed", f"Add {sign * 3} at its end.")
        remedy = f"Add {sign} at its end, or write {sign * 3} around text that has line breaks."
        return Diagnosis(position, "The string is not closed", remedy)
    if sign == "&":
        return Diagnosis(position, "& is not an operator", "Write && for a logical AND.")
    if sign in "?$":
        return Diagnosis(position, f"{sign} begins a variable, but no name follows", "Write for example ?value.")
    return Diagnosis(position, f"The character {sign!a} cannot stand here", "Remove it, or put it in a string.")


MAX_DEPTH: Final = 100
"""Maximum nesting of brackets. From about 800 on, Oxigraph overflows the stack, which crashes the process."""

_OPENING: Final = frozenset("{([")
_CLOSING: Final = frozenset("})]")
_OTHER_OPENING: Final = frozenset({"{", "[", "<<", "<<("})
_ANY_CLOSING: Final = frozenset({")", "}", "]", ">>", ")>>"})
_OPERANDS: Final = frozenset({"var", "string", "number", "name", "iri", "lang", "blank"})
_IRIS: Final = frozenset({"iri", "name"})
_NO_CALLS: Final = frozenset({"VALUES", "TRUE", "FALSE"})
_EXPRESSIONS: Final = frozenset({"SELECT", "BY", "HAVING"})


class _Context:
    """Parser state that decides whether `<` compares two values or begins an IRI.

    `FILTER(?v<?most&&?v>?least)` contains no IRI, though `<?most&&?v>` could be one.
    """

    def __init__(self) -> None:
        self._brackets: list[bool] = []
        """For each open bracket, whether it contains an expression."""
        self._clause = True

    def compares(self, tokens: Sequence[Token]) -> bool:
        """Whether a `<` at this position is an operator."""
        return self._inside() and _is_operand(tokens[-1])

    def begins_expression(self, tokens: Sequence[Token], index: int) -> bool:
        """Whether the round bracket that opens at `index` contains an expression."""
        return self._clause or self._inside() or _calls_or_constrains(tokens, index)

    def follow(self, tokens: Sequence[Token], index: int) -> None:
        """Process the token at `index`."""
        token = tokens[index]
        if token.kind == "word":
            self._clause = self._clause or token.word() in _EXPRESSIONS
        elif token.text == "(":
            self._brackets.append(self.begins_expression(tokens, index))
        elif token.text in _OTHER_OPENING:
            self._clause = False
            self._brackets.append(False)
        elif token.text in _ANY_CLOSING:
            self._clause = self._clause and token.text == ")"
            if self._brackets:
                self._brackets.pop()

    def depth(self) -> int:
        """Return the number of open brackets."""
        return len(self._brackets)

    def _inside(self) -> bool:
        return bool(self._brackets) and self._brackets[-1]


def _is_operand(token: Token) -> bool:
    return token.kind in _OPERANDS or token.text == ")" or token.word() in ("TRUE", "FALSE")


def _calls_or_constrains(tokens: Sequence[Token], index: int) -> bool:
    """Whether the bracket at `index` belongs to a built-in call, FILTER, BIND or a similar keyword."""
    if not index:
        return False
    before = tokens[index - 1]
    if before.kind == "word":
        # `?s a (1 2)` has a list as its object, not a call.
        return before.text != "a" and before.word() not in _NO_CALLS
    return before.kind in _IRIS and index > 1 and tokens[index - 2].word() == "FILTER"


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the token that closes the bracket at `opening`."""
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
    raise SparqlError(f"The bracket {tokens[opening].text!r} is never closed")


def read_prologue(text: str, tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Return the declarations from token `index` on as text, and the index of the first token after them."""
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
    """Yield the names of variables in order of first appearance."""
    seen: set[str] = set()
    for token in tokens:
        if token.kind == "var" and token.text[1:] not in seen:
            seen.add(token.text[1:])
            yield token.text[1:]


def built_in_calls(tokens: Sequence[Token], name: str) -> Iterator[int]:
    """Yield the indexes of tokens that call the built-in function `name` (upper case)."""
    for index, token in enumerate(tokens):
        if token.text == "(" and index and tokens[index - 1].word() == name:
            yield index - 1


def named_calls(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the indexes of tokens that call a function by IRI.

    Outside expressions, a bracket after an IRI is a list: `?s ex:p (1 2)`.
    """
    if not any(token.text == "(" and before.kind in _IRIS for before, token in pairwise(tokens)):
        return
    context = _Context()
    for index, token in enumerate(tokens):
        if token.text == "(" and index and tokens[index - 1].kind in _IRIS and context.begins_expression(tokens, index):
            yield index - 1
        if token.kind in ("punct", "word"):
            context.follow(tokens, index)


def has_word(tokens: Sequence[Token], word: str) -> bool:
    """Whether a keyword occurs as a token. Prefixed names and strings that contain it do not count."""
    return any(token.kind == "word" and token.text.upper() == word for token in tokens)
