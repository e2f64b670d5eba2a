"""Functions and operators of the live graph. The same calls are tested on the history."""

from __future__ import annotations

import pytest
from expression_world import World

from edge.engine.sparql.parser import parse_query
from edge.protocol.syntax import tokenize
from edge.sparql.algebra import Extend, Project
from tests.support.function_cases import CASES, PREFIXES, wanted


@pytest.mark.parametrize("call", CASES)
def test_the_result_of_a_call(call: str) -> None:
    text = f"{PREFIXES} SELECT ({call} AS ?result) {{}}"
    query = parse_query(text, tokenize(text), None)
    assert isinstance(query.pattern, Project)
    assert isinstance(query.pattern.pattern, Extend)
    found = World({}, base_iri=query.base or "").evaluate(query.pattern.pattern.expression)
    assert (None if found is None else str(found)) == wanted(CASES[call])
