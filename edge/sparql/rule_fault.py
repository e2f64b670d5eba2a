"""Violations of the rules beyond the grammar: on variables, aggregates, blank nodes, VALUES, IRIs and characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
    return next(broken_characters(tokens), None)


def located(tokens: Sequence[Token], error: SparqlError) -> Diagnosis:
    """Return the diagnosis of an error of the parser."""
    # A string that the parser cannot read has no exact place in its error.
    found = next(broken_characters(tokens), None)
    if found is not None:
        return found
    return Diagnosis(tokens[-1].end if error.position is None else error.position, str(error), error.remedy)
