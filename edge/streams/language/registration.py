"""The head of a registration, and the rules of its language for the query after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edge.sparql.terms_text import Declarations
from edge.sparql.tokens import Token
from edge.streams.language.body import Body, ReadClause
from edge.streams.language.reader import Reader
from edge.streams.model import Language, QueryForm, StreamOperator

_FORMS: Final = frozenset(QueryForm)


@dataclass(frozen=True, slots=True)
class RegistrationHeader:
    """A registration up to AS, and the rules of its language for the query."""

    language: Language
    name: Token
    """An IRI, a prefixed name, or an identifier (kind "joined")."""
    operator: StreamOperator
    is_stream: bool
    read_clause: ReadClause
    check: Callable[[Body, Declarations], None]
    """Checks the names of windows and their use. Raises `SparqlError`."""
    check_form: Callable[[Token], None]
    """Checks the first keyword of the query. Raises `SparqlError`."""
    every: int = 0
    """Period of C-SPARQL in microseconds; 0: none."""
    with_windows: bool = False
    """Whether the language has the keyword WINDOW."""


def read_as(reader: Reader) -> None:
    """Move over AS."""
    if not reader.accept_word("AS"):
        reader.expected("AS", "Write AS between the registration and the query.")


def read_form(reader: Reader) -> Token:
    """Return the first keyword of the query, at which the cursor stays."""
    if reader.token.word() not in _FORMS:
        reader.expected("SELECT, ASK, CONSTRUCT or DESCRIBE", "A continuous query is a SPARQL query after AS.")
    return reader.token
