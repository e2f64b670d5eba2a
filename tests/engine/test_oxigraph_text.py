"""The texts of queries for Oxigraph: its results agree with the grammar and with subscriptions."""

from __future__ import annotations

from collections import Counter

import pytest
from engine_client import PREFIX, plain
from engine_world import ask, current, new_engine, run
from oracle import Query

from edge.engine.requests import Solutions
from edge.engine.sparql.oxigraph_text import corrections, edited
from edge.protocol.syntax import tokenize

LEAST = "-9223372036854775808"
DATA = f"""
ex:t ex:moment "2024-01-01T00:00:00Z"^^xsd:dateTime ; ex:day "P1D"^^xsd:dayTimeDuration ;
ex:year "P1Y"^^xsd:yearMonthDuration ; ex:least {LEAST} ; ex:one 1 .
"""


def corrected(text: str) -> str:
    return edited(text, corrections(text, tokenize(text)))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (LEAST, LEAST),
        (f"{LEAST} = ?least", "true"),
        (f"?least IN (1,{LEAST})", "true"),
        (f"{LEAST}/-1", "9223372036854775808"),
        (f"?one {LEAST}", None),
        (f"- {LEAST[1:]}", None),
        ("-" + "9" * 40, "-" + "9" * 40),
        ("-170141183460469231731.687303715884105728", "-170141183460469231731.687303715884105728"),
        ("?moment + ?day", "2024-01-02T00:00:00Z"),
        ("?moment + ?year", "2025-01-01T00:00:00Z"),
        ('?moment + "P1D"^^xsd:dayTimeDuration', "2024-01-02T00:00:00Z"),
        ("(?moment + ?day) + ?day", "2024-01-03T00:00:00Z"),
        ("?day + ?moment", None),
        ('"P1D"^^xsd:dayTimeDuration + ?moment', None),
        ("STR(?day + ?day)", "P2D"),
        ("?one + ?one", "2"),
        ("?least + ?one", "-9223372036854775807"),
        ("?one+1 + ?one*2", "4"),
        ("?moment - ?day", "2023-12-31T00:00:00Z"),
    ],
)
def test_queries_and_subscriptions_follow_the_grammar(expression: str, value: str | None) -> None:
    engine = new_engine()
    run(engine, f"{PREFIX} INSERT DATA {{ {DATA} }}")
    where = "?t ex:moment ?moment ; ex:day ?day ; ex:year ?year ; ex:least ?least ; ex:one ?one"
    for text in (
        f"{PREFIX} SELECT ({expression} AS ?r) {{ {where} }}",
        f"{PREFIX} SELECT ?r {{ {where} BIND({expression} AS ?r) }}",
        f"{PREFIX} SELECT ?r {{ {where} BIND({expression} AS ?r) }} LIMIT 5",
    ):
        result = ask(engine, text)
        assert isinstance(result, Solutions)
        assert [plain(row) for row in result.rows] == [(value,)]
        assert current(engine, Query(text))[1] == Counter(result.rows)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { ?s <p>+ ?o . ?s (<p>/<q>)+ ?o ; ((<p>)+|^<q>)+ ?x , ?y . ?s a (<x> <y>) }",
        "SELECT * { ?s (((<p>)+/<q>)+)+ ?o . [ (<p>)+ ?x ] (<r>)+ ?k }",
        "SELECT * { FILTER EXISTS { ?s (<p>)+ ?z } FILTER(1 + ?x = ?y + 2) }",
        "SELECT * { VALUES (?x ?y) { (+1 -2) (1 +2) } ?s <p> true ; (<w>)+ ?l FILTER(?x +1 = -?a+-?b) }",
        "ASK { { SELECT ?s { ?s (<p>)+ ?o } } ?s (<p>)+ ?o }",
        f"SELECT * {{ ?s <p> ?o FILTER(?o {LEAST} < 0 && 1{LEAST} < -5) }}",
    ],
)
def test_other_texts_are_not_rewritten(text: str) -> None:
    assert corrected(text) == text


def test_sums_are_found_wherever_expressions_stand() -> None:
    text = (
        "SELECT ?r (SUM(?a+?b)+?c AS ?d) { FILTER(?a+?b) FILTER <f>(?a+?b) FILTER STR(?a+?b) BIND(STR(?a)+(?b) AS ?e)"
        " FILTER EXISTS { ?s (<p>)+ ?z FILTER(?z+STR(?z)) } { SELECT (?a+?b AS ?x) { ?s <p>+ ?a } } }"
        " GROUP BY ?r (?q+?r AS ?u) HAVING (?a+?b > 0) ORDER BY (?a+?b) DESC(?c+?d) STR(?a+?b)"
    )
    assert corrected(text) == text.replace("+", " - -").replace(" - - ?z", "+ ?z").replace("<p> - -", "<p>+")
