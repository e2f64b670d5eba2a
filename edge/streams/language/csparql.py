"""C-SPARQL: `REGISTER QUERY name COMPUTED EVERY 5s AS SELECT ... FROM STREAM <s> [RANGE 10s STEP 5s] WHERE { ... }`."""

from __future__ import annotations

from typing import Final

from edge.sparql.errors import SparqlError
from edge.sparql.terms_text import Declarations
from edge.sparql.tokens import Token, named_calls
from edge.streams.language.body import Body
from edge.streams.language.durations import short
from edge.streams.language.reader import Reader, local_name, resolved
from edge.streams.language.registration import RegistrationHeader, read_as
from edge.streams.language.window_clause import Times, WindowClause, read_brackets
from edge.streams.model import Language, StreamOperator

_NAME: Final = "Write for example REGISTER QUERY averages AS."
_MAX_NAME: Final = 200
_NO_TIMESTAMP: Final = "Let the elements state their time, for example with sosa:resultTime, and compare that."
_NO_AGGREGATE: Final = "Use the aggregates of SPARQL 1.1: SELECT (COUNT(?x) AS ?n) ... GROUP BY ?y."


def read_registration(reader: Reader, times: Times) -> RegistrationHeader:
    """Read a registration after REGISTER, up to AS. Raises `SparqlError`."""
    is_stream = reader.advance().word() == "STREAM"
    name = _read_name(reader)
    every = 0
    if reader.at_words("UNDER"):
        reader.refuse("UNDER ENTAILMENT is not supported", "Omit it: the streams have no inferred triples.")
    if reader.accept_word("COMPUTED") or reader.accept_word("COMPUTE") or reader.at_words("EVERY"):
        if not reader.accept_word("EVERY"):
            reader.expected("EVERY", "Write for example COMPUTED EVERY 5s.")
        every = reader.duration()
    read_as(reader)

    def read_clause(reader: Reader, named: bool) -> WindowClause | None:
        return _read_clause(reader, named, times)

    def check_form(form: Token) -> None:
        if is_stream and form.word() != "CONSTRUCT":
            problem = f"REGISTER STREAM with {form.word()}: the elements of a stream are graphs"
            raise SparqlError(problem, form.start, "Use CONSTRUCT, or REGISTER QUERY.")

    return RegistrationHeader(
        Language.CSPARQL, name, StreamOperator.RSTREAM, is_stream, read_clause, _check, check_form, every
    )


def _read_name(reader: Reader) -> Token:
    token = reader.token
    if token.kind in ("iri", "name"):
        return reader.advance()
    # Without the name, the next keyword would become the name.
    computed = reader.at_words("COMPUTED", "EVERY") or reader.at_words("COMPUTE", "EVERY")
    if token.kind != "word" or reader.at_words("AS") or computed:
        reader.expected("The name of the query", _NAME)
    name = reader.joined("The name of the query", _NAME)
    if ":" in name.text or "." in name.text:
        reader.refuse(f"{short(name.text)} is not a name", "Use letters, digits, _ and -, or an IRI in < >.", name)
    if len(name.text) > _MAX_NAME:
        reader.refuse(f"The name has more than {_MAX_NAME} characters", "Use a shorter name.", name)
    return name


def _read_clause(reader: Reader, named: bool, times: Times) -> WindowClause | None:
    if reader.token.word() == "WINDOW":
        remedy = (
            "Write FROM NAMED STREAM <stream> [...] and GRAPH <stream>, or register with REGISTER RSTREAM <iri> AS."
        )
        reader.refuse("WINDOW belongs to RSP-QL, and this registration is C-SPARQL", remedy)
    if not reader.accept_word("STREAM"):
        return None
    stream = reader.iri_token("The IRI of a stream", "Write for example FROM STREAM <urn:s> [RANGE 10s STEP 5s].")
    return WindowClause(stream if named else None, stream, read_brackets(reader, times))


def _check(body: Body, declared: Declarations) -> None:
    _refuse_unsupported(body)
    static = {resolved(token, declared) for token in body.named_graphs}
    used = {resolved(token, declared) for token in body.graphs if token.kind != "var"}
    any_graph = any(token.kind == "var" for token in body.graphs)
    seen: set[tuple[bool, str]] = set()
    for window in body.windows:
        stream = resolved(window.stream, declared)
        named = window.name is not None
        if (named, stream) in seen:
            remedy = "Write one window for it. For windows of several sizes use RSP-QL, in which windows have names."
            raise SparqlError(f"The stream {short(stream)} has two windows", window.stream.start, remedy)
        seen.add((named, stream))
        if named and stream in static:
            problem = f"{short(stream)} is a stream and a graph of FROM NAMED"
            raise SparqlError(problem, window.stream.start, "Remove one of the clauses.")
        if named and not any_graph and stream not in used:
            problem = f"The named stream {short(stream)} is not used"
            remedy = f"Write GRAPH {short(window.stream.text)} {{ ... }} around its patterns, or FROM STREAM."
            raise SparqlError(problem, window.stream.start, remedy)


def _refuse_unsupported(body: Body) -> None:
    """Refuse parts of C-SPARQL that the gateway does not evaluate, and WINDOW of RSP-QL."""
    tokens = body.tokens
    for index, token in enumerate(tokens):
        word = token.word()
        calls = index + 1 < len(tokens) and tokens[index + 1].text == "("
        if word == "TIMESTAMP" and calls:
            raise SparqlError("The function timestamp() is not supported", token.start, _NO_TIMESTAMP)
        if word == "AGGREGATE" and index + 1 < len(tokens) and tokens[index + 1].text == "{":
            raise SparqlError("AGGREGATE is not supported", token.start, _NO_AGGREGATE)
        if word == "WINDOW":
            remedy = "Write GRAPH and the IRI of a named stream, or register with REGISTER RSTREAM <iri> AS."
            raise SparqlError("WINDOW belongs to RSP-QL, and this registration is C-SPARQL", token.start, remedy)
    for index in named_calls(tokens):
        if local_name(tokens[index]).lower() == "timestamp":
            problem = f"The function {short(tokens[index].text)} is not supported"
            raise SparqlError(problem, tokens[index].start, _NO_TIMESTAMP)
