"""Plans of subscribed queries: one compilation per fingerprint, and another where constants of a text are equal."""

from __future__ import annotations

import pytest

from edge.engine.queries import query_plans
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.queries.query_plans import PlanMember, QueryPlans
from edge.engine.requests import QueryRequest
from edge.engine.store.graph import LiveGraph


def test_a_shape_is_compiled_once_and_again_for_equal_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_query = query_plans.compile_query
    monkeypatch.setattr(query_plans, "compile_query", lambda *given: compiled.append(given) or compile_query(*given))
    plans = QueryPlans(LiveGraph(), QueryRules())

    def find(first: int, second: int) -> PlanMember:
        member = plans.find(QueryRequest(f"SELECT ?s {{ ?s <urn:p> {first} ; <urn:q> {second} }}"))
        assert isinstance(member, PlanMember)
        return member

    member = find(1, 2)
    assert find(3, 4).plan is member.plan
    assert len(compiled) == 1
    equal = find(5, 5)
    assert equal.plan is not member.plan
    assert find(6, 6).plan is equal.plan
    assert len(compiled) == 2
