"""Reader of the tokens of a registration: terminals that SPARQL does not have, and positions for errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from edge.sparql.cursor import NO_PARAMETERS, Cursor
from edge.sparql.errors import SparqlError
from edge.sparql.explanation import NAMESPACES
from edge.sparql.terms_text import Declarations, string_value
from edge.sparql.tokens import Token
from edge.streams.language.durations import UNITS, InvalidValueError, read_duration, read_time, short

MAX_COUNT: Final = 1_000_000
"""Largest size and step of a window that counts elements or triples."""

_IRIS: Final = frozenset({"iri", "name"})
_JOINED: Final = frozenset({"word", "number", "name"})
_DATE_TIMES: Final = frozenset({"dateTime", "dateTimeStamp"})


class Reader(Cursor):
    """Reads registrations and window clauses. Every method raises `SparqlError` if the expected token is missing.

    IRIs stay tokens: declarations that resolve them may follow.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens, Declarations({}, None), NO_PARAMETERS)

    @property
    def index(self) -> int:
        """Index of the token at the cursor."""
        return self._index

    @property
    def before(self) -> Token:
        """The token before the cursor."""
        return self._tokens[max(0, self._index - 1)]

    @property
    def at_end(self) -> bool:
        """Whether all tokens are read."""
        return self.token.kind == "end"

    def move_to(self, index: int) -> None:
        """Move the cursor to a token."""
        self._index = index
        self.token = self._tokens[index]

    def at_words(self, *words: str) -> bool:
        """Return whether these keywords (upper case) are at the cursor, one after the other."""
        following = self._tokens[self._index : self._index + len(words)]
        return tuple(token.word() for token in following) == words

    def accept_words(self, *words: str) -> bool:
        """Move over these keywords if they are at the cursor, one after the other. Returns whether they were."""
        found = self.at_words(*words)
        if found:
            self.move_to(self._index + len(words))
        return found

    def expected(self, phrase: str, remedy: str) -> NoReturn:
        """Raise the error for the token at the cursor, with a remedy."""
        found = f'"{short(self.token.text)}"' if not self.at_end else "the end"
        self.refuse(f"{phrase} expected instead of {found}", remedy)

    def iri_token(self, phrase: str, remedy: str) -> Token:
        """Read an IRI or a prefixed name, unresolved. `phrase`: its role, for the error."""
        if self.token.kind not in _IRIS:
            self.expected(phrase, remedy)
        return self.advance()

    def joined(self, phrase: str, remedy: str) -> Token:
        """Read tokens without white space between them, which SPARQL separates: 10s, PT1.5S, a-name."""
        if self.token.kind not in _JOINED and self.token.text not in ("-", "+", "."):
            self.expected(phrase, remedy)
        first = self.advance()
        parts = [first.text]
        while self.token.start == self.before.end and (self.token.kind in _JOINED or self.token.text in ("-", ".")):
            parts.append(self.advance().text)
        return Token("joined", "".join(parts), first.start, self.before.end)

    def duration(self) -> int:
        """Read a duration, and return its microseconds."""
        token = self.joined("A duration", "Write for example PT10S or 10s.")
        text = token.text
        if token.text[-1].isdigit() and self.token.text.lower() in UNITS:
            text += self.advance().text
        try:
            return read_duration(text)
        except InvalidValueError as error:
            self.refuse(str(error), error.remedy, token)

    def count(self) -> int:
        """Read a number of elements or triples."""
        token = self.joined("A number", "Write for example 10.")
        if not (token.text.isdecimal() and len(token.text) <= 15 and 1 <= int(token.text) <= MAX_COUNT):
            self.refuse(
                f"{short(token.text)} is not a number of elements or triples", f"Use 1 to {MAX_COUNT:,}.", token
            )
        return int(token.text)

    def time(self) -> int:
        """Read a time as a string, with or without its datatype, and return its microseconds since 1970."""
        token = self.token
        if token.kind != "string":
            self.expected("A time in quotes", 'Write for example "2026-01-31T12:00:00Z".')
        self.advance()
        if self.accept("^^"):
            datatype = self.iri_token("A datatype", "Write xsd:dateTime, or omit the datatype.")
            if local_name(datatype) not in _DATE_TIMES:
                self.refuse(
                    f"{short(datatype.text)} is not the datatype of a time", "Use xsd:dateTime, or omit it.", datatype
                )
        try:
            return read_time(string_value(token.text))
        except InvalidValueError as error:
            self.refuse(str(error), error.remedy, token)
        except SparqlError as error:
            self.refuse(str(error), "Write the time without escapes.", token)


def local_name(token: Token) -> str:
    """Return the part of an IRI or prefixed name after its last #, / or colon."""
    text = token.text[1:-1] if token.kind == "iri" else token.text
    return text[max(text.rfind(sign) for sign in "#/:") + 1 :]


def resolved(token: Token, declared: Declarations) -> str:
    """Return the absolute IRI of a token. Raises `SparqlError` with its position."""
    prefix = token.text.partition(":")[0]
    if token.kind == "name" and prefix not in declared.prefixes:
        remedy = f"Add: PREFIX {prefix}: <{NAMESPACES.get(prefix, 'the IRI that it stands for')}>"
        raise SparqlError(f'The prefix "{prefix}:" is not declared', token.start, remedy)
    try:
        return str(declared.iri(token.text).value)
    except SparqlError as error:
        raise SparqlError(str(error), token.start) from None
