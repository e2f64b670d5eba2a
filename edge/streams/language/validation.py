"""Validation of the SPARQL query of a registration. Errors have the positions of the client's text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from edge.engine.queries.oxigraph_queries import parse
from edge.engine.sparql.size_limits import check_size
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.errors import LimitOfText, SparqlError
from edge.sparql.explanation import diagnose, grammar_fault
from edge.sparql.rule_fault import located, parsed_query, rule_fault
from edge.sparql.tokens import Token, tokenize
from edge.streams.language.body import Body


def check_grammar(text: str, tokens: Sequence[Token], body: Body) -> None:
    """Check the grammar. `tokens`: declarations and query. Raises `SparqlError`, and `LimitExceeded` for large ones."""
    # The parsers need the other limits. The engine checks the steps of planning by its settings.
    check_size(text, tokens, sys.maxsize)
    fault = grammar_fault("query", text, tokens, rdf12=False)
    if fault is None:
        return
    if any(keyword.start == fault.position for keyword in body.replaced):
        # The tokens have GRAPH in place of the client's WINDOW.
        fault = fault._replace(problem=fault.problem.replace("GRAPH", "WINDOW"))
    raise _error(fault)


def check_prologue(text: str, tokens: Sequence[Token]) -> None:
    """Check the grammar of declarations. Raises `SparqlError`."""
    fault = grammar_fault("query", text, tokens, rdf12=False)
    # Declarations without a query end too early, which is not a fault here.
    if fault is not None and fault.position < len(text):
        raise _error(fault)


def check_rules(text: str, sparql: str, tokens: Sequence[Token], base: str) -> None:
    """Check the rules beyond the grammar. `sparql`: the query with the same positions. Raises `SparqlError`."""
    try:
        parsed_query(text, tokens, base)
    except SparqlError as error:
        fault = located(tokens, error)
        kind = LimitOfText if isinstance(error, LimitOfText) else SparqlError
        raise kind(fault.problem, fault.position, fault.remedy) from None
    broken = rule_fault("query", text, tokens)
    if broken is not None:
        raise _error(broken)
    message = parse(sparql, base)
    if message is not None:
        raise _error(diagnose("query", sparql, tokenize(sparql), message))


def _error(fault: Diagnosis) -> SparqlError:
    return SparqlError(fault.problem, fault.position, fault.remedy)
