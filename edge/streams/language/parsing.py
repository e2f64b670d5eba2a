"""Parsing of a registration in either language: `parse`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NoReturn

from edge.protocol.errors import LimitExceeded, ParsingFailed
from edge.protocol.syntax import tokenize
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.errors import LimitOfText, SparqlError
from edge.sparql.terms_text import Declarations, declarations_of
from edge.sparql.tokens import Token, read_prologue
from edge.streams.language import csparql, rspql
from edge.streams.language.body import Body, read_body, sparql_text
from edge.streams.language.reader import Reader, resolved
from edge.streams.language.registration import RegistrationHeader, read_form
from edge.streams.language.validation import check_grammar, check_prologue, check_rules
from edge.streams.language.window_clause import Times, WindowClause
from edge.streams.model import ContinuousQuery, NamedWindow, QueryForm, ReportPolicy, StreamOperator, WindowDefinition

MAX_TEXT: Final = 65_536
"""Maximum characters of a registration, which is parsed in the time of one request."""

BASE: Final = "http://localhost/"
"""Default of the setting `engine.base_iri`."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REGISTER: Final = re.compile("register", re.IGNORECASE)
_EXAMPLES: Final = "Write REGISTER QUERY name AS (C-SPARQL) or REGISTER RSTREAM <iri> AS (RSP-QL) before the query."


def parse(text: str, *, t0: int = 0, now: int = 0, base: str = BASE) -> ContinuousQuery:
    """Parse a continuous query in C-SPARQL or RSP-QL, which its first keywords tell apart.

    `t0`: a time at which time windows without START end; `now`: beginning of windows with LANDMARK NOW; both in
    microseconds since 1970. `base`: IRI that resolves relative IRIs without BASE; it must be that of the engine that
    evaluates the query. Raises `ParsingFailed`, and `LimitExceeded` for a text that is too long or nested too deeply.
    """
    if len(text) > MAX_TEXT:
        problem = f"The text has {len(text):,} characters, more than {MAX_TEXT:,}"
        _report(text, LimitOfText(problem, MAX_TEXT, "Move its data to a graph, and use FROM or GRAPH."))
    found = None if text.isascii() else _SURROGATE.search(text)
    if found is not None:
        problem = f"{found[0]!a} is half of a character (a surrogate)"
        _report(text, SparqlError(problem, found.start(), "Write the character itself, or \\U and eight digits."))
    tokens = tokenize(text)
    try:
        return _parsed(text, tokens, Times(t0, now), base)
    except SparqlError as error:
        _report(text, error)


def is_registration(text: str) -> bool:
    """Return whether a text registers a continuous query, rightly or not. Quick for texts without the word REGISTER.

    A text that is longer than `MAX_TEXT` does not.
    """
    if len(text) > MAX_TEXT or _REGISTER.search(text) is None:
        return False
    try:
        tokens = tokenize(text)
    except ParsingFailed:
        return False
    _, begin = read_prologue(text, tokens, 0)
    return begin < len(tokens) and tokens[begin].word() == "REGISTER"


def _report(text: str, error: SparqlError) -> NoReturn:
    """Raise the error of the protocol, with line and column."""
    position = len(text) if error.position is None else error.position
    message = Diagnosis(position, str(error), error.remedy).message(text)
    raise (LimitExceeded if isinstance(error, LimitOfText) else ParsingFailed)(message) from None


def _parsed(text: str, tokens: Sequence[Token], times: Times, base: str) -> ContinuousQuery:
    reader = Reader(tokens)
    begin, registration = _read_registration(reader, text, tokens, times)
    query = reader.index
    registered = (tokens[begin].start, tokens[query - 1].end)
    _, after = read_prologue(text, tokens, query)
    check_prologue(text, tokens[query:after])
    prologue = [*tokens[:begin], *tokens[query:after]]
    reader.move_to(after)
    form = read_form(reader)
    registration.check_form(form)
    body = read_body(reader, registration.read_clause, with_windows=registration.with_windows)
    whole = [*prologue, *body.tokens]
    declared = declarations_of(prologue, base)
    registration.check(body, declared)
    check_grammar(text, whole, body)
    if not body.windows:
        clause = "FROM NAMED WINDOW" if registration.with_windows else "FROM STREAM"
        raise SparqlError("The query has no window", form.start, f"Add {clause}, or send it as a SPARQL query.")
    sparql = sparql_text(text, [registered, *body.removed], body.replaced)
    check_rules(text, sparql, whole, base)
    default, named = _dataset(body, declared)
    return ContinuousQuery(
        name=registration.name.text if registration.name.kind == "joined" else resolved(registration.name, declared),
        language=registration.language,
        text=text,
        form=QueryForm(form.word()),
        operator=registration.operator,
        windows=tuple(_window(clause, declared, registration.every) for clause in body.windows),
        sparql=sparql,
        default_graphs=default,
        named_graphs=named,
        is_stream=registration.is_stream,
    )


def _read_registration(
    reader: Reader, text: str, tokens: Sequence[Token], times: Times
) -> tuple[int, RegistrationHeader]:
    """Read the registration up to AS. Returns the index of REGISTER, too."""
    _, begin = read_prologue(text, tokens, 0)
    check_prologue(text, tokens[:begin])
    reader.move_to(begin)
    if not reader.accept_word("REGISTER"):
        reader.expected("REGISTER", _EXAMPLES)
    kind = reader.token.word()
    if kind in ("QUERY", "STREAM"):
        return begin, csparql.read_registration(reader, times)
    if kind in frozenset(StreamOperator):
        return begin, rspql.read_registration(reader, times)
    return reader.expected("QUERY, STREAM, RSTREAM, ISTREAM or DSTREAM", _EXAMPLES)


def _window(clause: WindowClause, declared: Declarations, every: int) -> NamedWindow:
    definition = replace(clause.definition, stream=resolved(clause.stream, declared))
    if every and every != _step(definition):
        definition = replace(definition, report=ReportPolicy.PERIODIC, period=every)
    return NamedWindow("" if clause.name is None else resolved(clause.name, declared), definition)


def _step(definition: WindowDefinition) -> int:
    """Return the microseconds between the reports of a window; 0 if they depend on its elements."""
    return definition.step if definition.kind in ("time", "landmark") else 0


def _dataset(body: Body, declared: Declarations) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the graphs of FROM and FROM NAMED. With one of both, the other is empty (SPARQL 1.1 Query, 13.2)."""
    if not body.default_graphs and not body.named_graphs:
        return None, None
    return (
        tuple(dict.fromkeys(resolved(token, declared) for token in body.default_graphs)),
        tuple(dict.fromkeys(resolved(token, declared) for token in body.named_graphs)),
    )
