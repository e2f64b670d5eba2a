"""Complete reading of a query text: validation, algebra, and errors that name the place and the remedy."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from edge.sparql.algebra import Query
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.errors import LimitOfText, SparqlError
from edge.sparql.explanation import grammar_fault
from edge.sparql.query_parser import QueryParser, all_of
from edge.sparql.rules import broken_rules
from edge.sparql.scope import ScopeError, check_scope
from edge.sparql.terms import OWN_TERMS, TermFactory
from edge.sparql.terms_text import read_declarations
from edge.sparql.tokens import Token, read_prologue, tokenize


def read_query(text: str, base: str | None = None, terms: TermFactory = OWN_TERMS) -> Query:
    """Return the algebra of a query. `base`: IRI that resolves relative IRIs if the query has no BASE.

    Raises `SparqlError` with problem, line, column and remedy for a text that is not a SPARQL 1.1 query, and
    `LimitOfText` for one that is nested too deeply.
    """
    tokens = tokenize(text)
    # Without Oxigraph, the grammar decides whether the text is valid (docs/adr/0010).
    fault = grammar_fault("query", text, tokens, rdf12=False)
    if fault is not None:
        raise SparqlError(fault.message(text), fault.position, fault.remedy)
    try:
        prologue, index = read_prologue(text, tokens, 0)
        declared = read_declarations(prologue, base, terms)
        parser = QueryParser(tokens[index:], declared, {})
        query = all_of(parser, parser.query)
        check_scope(query)
    except LimitOfText:
        raise
    except SparqlError as error:
        fault = _explained(tokens, error)
        raise SparqlError(fault.message(text), fault.position, fault.remedy) from None
    return replace(query, base=declared.base)


def _explained(tokens: list[Token], error: SparqlError) -> Diagnosis:
    """Return the diagnosis of an error of the parser, at the first place that breaks a known rule if there is one."""
    found = next(broken_rules(tokens), None)
    if found is not None:
        return found
    position = error.position
    if isinstance(error, ScopeError):
        places = [
            token.start
            for before, token in pairwise(tokens)
            if token.kind == "var"
            and token.text[1:] == error.variable.name
            and (not error.assigned or before.word() == "AS")
        ]
        position = (places[-1] if error.assigned else places[0]) if places else None
    return Diagnosis(tokens[-1].end if position is None else position, str(error), error.remedy)
