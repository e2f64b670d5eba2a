"""The query after a registration: its windows and dataset, and the tokens of its SPARQL query.

Window clauses become FROM clauses, and WINDOW becomes GRAPH, so the grammar of SPARQL can check the query with the
positions of the client's text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from edge.sparql.tokens import Token
from edge.streams.language.reader import Reader
from edge.streams.language.window_clause import WindowClause

ReadClause: TypeAlias = Callable[[Reader, bool], WindowClause | None]
"""Reads a window clause after FROM; True: after FROM NAMED. None: it is a FROM clause of SPARQL."""

_OPENING: Final = frozenset("{([")
_CLOSING: Final = frozenset("})]")
_IRIS: Final = frozenset({"iri", "name"})


@dataclass(slots=True)
class Body:
    """Parts of a query. Names are unresolved."""

    windows: list[WindowClause] = field(default_factory=list)
    default_graphs: list[Token] = field(default_factory=list)
    named_graphs: list[Token] = field(default_factory=list)
    used: list[Token] = field(default_factory=list)
    """IRIs after WINDOW."""
    graphs: list[Token] = field(default_factory=list)
    """IRIs and variables after GRAPH."""
    replaced: list[Token] = field(default_factory=list)
    """Keywords WINDOW that become GRAPH."""
    removed: list[tuple[int, int]] = field(default_factory=list)
    """Positions in the text from and to which the SPARQL query has blanks."""
    tokens: list[Token] = field(default_factory=list)
    """Tokens of the SPARQL query, with a FROM clause for each window."""


def read_body(reader: Reader, read_clause: ReadClause, *, with_windows: bool) -> Body:
    """Read a query up to the end. `with_windows`: whether WINDOW may stand in it. Raises `SparqlError`."""
    body = Body()
    depth = 0
    while not reader.at_end:
        token = reader.token
        word = token.word()
        if word == "FROM":
            if depth:
                reader.refuse("FROM is not allowed within brackets", "Close the brackets, and write it before WHERE.")
            _read_from(reader, read_clause, body)
            continue
        if word == "WINDOW" and with_windows:
            _read_window(reader, body)
            continue
        if word == "GRAPH" and reader.following().kind in ("iri", "name", "var"):
            body.graphs.append(reader.following())
        if token.kind == "punct":
            depth += (token.text in _OPENING) - (token.text in _CLOSING and depth > 0)
        body.tokens.append(reader.advance())
    return body


def _read_from(reader: Reader, read_clause: ReadClause, body: Body) -> None:
    """Read a FROM clause with or without a window."""
    kept = [reader.advance()]
    start = kept[0].start
    named = reader.token.word() == "NAMED"
    if named:
        kept.append(reader.advance())
    window = read_clause(reader, named)
    if window is not None:
        body.windows.append(window)
        kept.append(window.name or window.stream)
    elif reader.token.kind in _IRIS:
        (body.named_graphs if named else body.default_graphs).append(reader.token)
        kept.append(reader.advance())
    body.tokens += kept
    body.removed.append((start, reader.before.end))


def _read_window(reader: Reader, body: Body) -> None:
    """Read WINDOW and the name after it."""
    keyword = reader.advance()
    if reader.token.kind == "var":
        problem = f"WINDOW {reader.token.text}: the window must be named"
        reader.refuse(problem, "Write WINDOW and the IRI of a window, and one such group for each window.")
    name = reader.iri_token("The IRI of a window", "Write for example WINDOW <urn:w> { ... }.")
    body.used.append(name)
    body.replaced.append(keyword)
    body.tokens += [Token("word", "GRAPH", keyword.start, keyword.end), name]


def sparql_text(text: str, removed: Sequence[tuple[int, int]], replaced: Sequence[Token]) -> str:
    """Return the SPARQL query of a registration, in which each token has the position that it has in `text`.

    `removed`: parts to replace by blanks, in any order, without overlaps.
    """
    edits = [(start, end, _blanks(text[start:end])) for start, end in removed]
    edits += [(token.start, token.end, "GRAPH".ljust(token.end - token.start)) for token in replaced]
    pieces = []
    position = 0
    for start, end, edit in sorted(edits):
        pieces += [text[position:start], edit]
        position = end
    return "".join([*pieces, text[position:]])


def _blanks(text: str) -> str:
    return "".join(sign if sign in "\r\n" else " " for sign in text)
