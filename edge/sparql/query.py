"""Complete reading of a query text: validation, algebra, and errors that name the place and the remedy."""

from __future__ import annotations

from edge.sparql.algebra import Query
from edge.sparql.errors import LimitOfText, SparqlError
from edge.sparql.explanation import grammar_fault
from edge.sparql.rule_fault import located, parsed_query
from edge.sparql.terms import OWN_TERMS, TermFactory
from edge.sparql.tokens import tokenize


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
        return parsed_query(text, tokens, base, terms)
    except SparqlError as error:
        fault = located(tokens, error)
        kind = LimitOfText if isinstance(error, LimitOfText) else SparqlError
        raise kind(fault.message(text), fault.position, fault.remedy) from None
