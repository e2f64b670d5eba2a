"""RSP-QL: `REGISTER RSTREAM <out> AS ... FROM NAMED WINDOW <w> ON <s> [RANGE PT10S] WHERE { WINDOW <w> { ... } }`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from edge.sparql.errors import SparqlError
from edge.sparql.terms_text import Declarations
from edge.sparql.tokens import Token
from edge.streams.language.body import Body
from edge.streams.language.durations import short
from edge.streams.language.reader import Reader, resolved
from edge.streams.language.registration import RegistrationHeader, read_as
from edge.streams.language.window_clause import Times, WindowClause, read_brackets, read_report
from edge.streams.model import Language, StreamOperator

_EXAMPLE: Final = "Write for example FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE PT10S STEP PT5S]."


def read_registration(reader: Reader, times: Times) -> RegistrationHeader:
    """Read a registration after REGISTER, up to AS. Raises `SparqlError`."""
    operator = StreamOperator(reader.advance().word())
    name = reader.iri_token("The IRI of the output stream", f"Write for example REGISTER {operator} <urn:out> AS.")
    if reader.at_words("UNDER"):
        reader.refuse("UNDER ENTAILMENT is not supported", "Omit it: the streams have no inferred triples.")
    if reader.token.word() in ("COMPUTED", "COMPUTE", "EVERY"):
        remedy = "Write EVERY and a duration after the brackets of each window."
        reader.refuse(f"{reader.token.text} belongs to C-SPARQL, and this registration is RSP-QL", remedy)
    read_as(reader)

    def read_clause(reader: Reader, named: bool) -> WindowClause | None:
        return _read_clause(reader, named, times)

    def check_form(form: Token) -> None:
        following = reader.following()
        if following.word() in frozenset(StreamOperator):
            problem = f"{following.text} is not allowed after {form.word()}"
            remedy = f"Write REGISTER {following.word()} {short(name.text)} AS {form.word()}."
            raise SparqlError(problem, following.start, remedy)

    return RegistrationHeader(Language.RSPQL, name, operator, True, read_clause, _check, check_form, with_windows=True)


def _read_clause(reader: Reader, named: bool, times: Times) -> WindowClause | None:
    if reader.token.word() == "STREAM":
        reader.refuse("FROM STREAM belongs to C-SPARQL, and this registration is RSP-QL", _EXAMPLE)
    if reader.token.word() != "WINDOW":
        return None
    if not named:
        reader.expected("NAMED", _EXAMPLE)
    reader.advance()
    name = reader.iri_token("The IRI of a window", _EXAMPLE)
    if not reader.accept_word("ON"):
        reader.expected("ON and the IRI of a stream", _EXAMPLE)
    # Some implementations write ON STREAM.
    reader.accept_word("STREAM")
    stream = reader.iri_token("The IRI of a stream", _EXAMPLE)
    definition = read_brackets(reader, times)
    report, period = read_report(reader)
    return WindowClause(name, stream, replace(definition, report=report, period=period))


def _check(body: Body, declared: Declarations) -> None:
    static = {resolved(token, declared) for token in body.named_graphs}
    used = {resolved(token, declared): token for token in reversed(body.used)}
    names: dict[str, Token] = {}
    for window in body.windows:
        assert window.name is not None  # noqa: S101
        resolved(window.stream, declared)
        name = resolved(window.name, declared)
        if name in names or name in static:
            problem = f"The window {short(window.name.text)} is declared twice"
            if name in static:
                problem = f"{short(window.name.text)} is a window and a graph of FROM NAMED"
            raise SparqlError(problem, window.name.start, "Use another name for one of them.")
        names[name] = window.name
    for name, token in used.items():
        if name not in names:
            remedy = f"Add: FROM NAMED WINDOW {short(token.text)} ON <stream> [RANGE PT10S STEP PT5S]"
            raise SparqlError(f"The window {short(token.text)} is not declared", token.start, remedy)
    for token in body.graphs:
        if token.kind != "var" and resolved(token, declared) in names:
            remedy = f"Write WINDOW {short(token.text)} {{ ... }}."
            raise SparqlError(f"{short(token.text)} is a window, not a graph", token.start, remedy)
    for name, token in names.items():
        if name not in used:
            remedy = f"Write WINDOW {short(token.text)} {{ ... }} around its patterns, or remove its clause."
            raise SparqlError(f"The window {short(token.text)} is not used", token.start, remedy)
