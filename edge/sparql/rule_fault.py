"""Violations of the rules beyond the grammar: on variables, aggregates, blank nodes, VALUES, IRIs and characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, Literal

from edge.sparql.algebra import Query
from edge.sparql.characters import broken_characters
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.errors import LimitOfText, SparqlError
from edge.sparql.query_parser import QueryParser, all_of
from edge.sparql.terms import OWN_TERMS, TermFactory
from edge.sparql.terms_text import declarations_of
from edge.sparql.tokens import Token, read_prologue
from edge.sparql.update_parser import check_update

_BASE: Final = "http://localhost/"
"""Base IRI for the check of a text; no IRI of it is used."""


def parsed_query(text: str, tokens: Sequence[Token], base: str | None, terms: TermFactory = OWN_TERMS) -> Query:
    """Return the algebra of a query that follows the grammar. Raises `SparqlError` if it breaks another rule."""
    _, index = read_prologue(text, tokens, 0)
    declared = declarations_of(tokens[:index], base, terms)
    parser = QueryParser(tokens[index:], declared)
    return replace(all_of(parser, parser.query), base=declared.base)


def rule_fault(form: Literal["query", "update"], text: str, tokens: Sequence[Token]) -> Diagnosis | None:
    """Explain the first violation in a text that follows the grammar. None: the parser finds none.

    The parser also gives up at RDF 1.2 and at a limit of its own, which are not reasons to reject a text.
    """
    try:
        if form == "query":
            parsed_query(text, tokens, _BASE)
        else:
            check_update(text, tokens, _BASE)
    except LimitOfText:
        return None
    except SparqlError as error:
        return located(tokens, error)
    return next(broken_characters(tokens), None) or next(_repeated_variables(tokens), None)


def _repeated_variables(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Explain variables that a SELECT names twice.

    SPARQL permits `SELECT ?s ?s`, and the parser accepts it. Oxigraph rejects it, for sub-selects without the reason.
    """
    for start, select in enumerate(tokens):
        if select.word() != "SELECT":
            continue
        named: set[str] = set()
        depth, before = 0, select
        for token in islice(tokens, start + 1, None):
            if depth == 0 and (token.text == "{" or token.word() in ("FROM", "WHERE")):
                break
            if token.text in ("(", "{"):
                depth += 1
            elif token.text in (")", "}"):
                depth -= 1
            # Deeper variables belong to an expression, except the one that AS assigns.
            elif token.kind == "var" and (depth == 0 or (depth == 1 and before.word() == "AS")):
                # `?s` and `$s` are the same variable.
                if token.text[1:] in named:
                    yield Diagnosis(token.start, f"{token.text} occurs twice in SELECT", "Name each variable once.")
                named.add(token.text[1:])
            before = token


def located(tokens: Sequence[Token], error: SparqlError) -> Diagnosis:
    """Return the diagnosis of an error of the parser."""
    # A string that the parser cannot read has no exact place in its error.
    found = next(broken_characters(tokens), None)
    if found is not None:
        return found
    return Diagnosis(tokens[-1].end if error.position is None else error.position, str(error), error.remedy)
