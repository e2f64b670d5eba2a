"""Size limits: too large texts cause a clear error, and all others fit Python's stack in every operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from engine_world import NOW, ask, new_engine, run

from edge.engine.queries.oxigraph_queries import QueryRules, check_query
from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.sparql.size_limits import MAX_ARGUMENTS, MAX_LEVELS, MAX_OPERATORS, check_size, measured
from edge.engine.start import open_engine
from edge.protocol.errors import LimitExceeded, ParsingFailed
from edge.protocol.syntax import tokenize
from tests.support.settings import query_rules

T = TypeVar("T")
Form = Callable[[int], str]

FRAMES = 200
"""Python frames of the callers, besides those of pytest: more than asyncio, a gate and a thread have."""


def chain(part: str) -> Form:
    """Return `part` n times, with `%` replaced by the number."""
    return lambda n: " ".join(part.replace("%", str(i)) for i in range(n))


def nest(opening: str, middle: str, closing: str) -> Form:
    return lambda n: "".join(opening.replace("%", str(i)) for i in range(n)) + middle + closing * n


def within(before: str, form: Form, after: str) -> Form:
    return lambda n: before + form(n) + after


def expression(opening: str, closing: str = "") -> Form:
    return within("FILTER(", nest(opening, "?o", closing), ")")


FORMS: dict[str, Form] = {
    "triples": chain(". ?s <a:p> ?v%"),
    "optionals": chain("OPTIONAL { ?s <a:p> ?v% FILTER(?v% > 0) }"),
    "minuses": chain("MINUS { ?s <a:q%> ?o }"),
    "binds": chain("BIND(?o + % AS ?v%)"),
    "filters": chain("FILTER(?o > -%)"),
    "filters of an optional": within("OPTIONAL { ?s <a:p> ?w ", chain("FILTER(?w > -%)"), "}"),
    "ands of an optional": within("OPTIONAL { ?s <a:p> ?w FILTER(true", chain("&& ?w > -%"), ") }"),
    "values": chain("VALUES ?v% { 1 }"),
    "columns": within("{ SELECT ?s ", chain("(?o + % AS ?v%)"), "{ ?s <a:p> ?o } }"),
    "keys": within("{ SELECT (COUNT(*) AS ?n) { ?s <a:p> ?o } GROUP BY ", chain("(?o + % AS ?v%)"), "}"),
    "keys without names": within("{ SELECT (COUNT(*) AS ?n) { ?s <a:p> ?o } GROUP BY ", chain("STR(?o)"), "}"),
    "having": within("{ SELECT ?s (1 AS ?n) { ?s <a:p> ?o } GROUP BY ?s HAVING (1)", chain("(?s != %)"), "}"),
    "unions": within("{}", chain("UNION { ?s <a:p%> ?o }"), ""),
    "alternatives": within(". ?s <a:p>", chain("|<a:p%>"), " ?x"),
    "steps": within(". ?s <a:p>", chain("/^<a:p>"), " ?x"),
    "groups": nest("{ ?s <a:p> ?v% ", "", "}"),
    "empty groups": nest("{", "", "}"),
    "filtered groups": nest("{ ?s <a:p> ?o FILTER(?u% > 1 || ?o > 0) ", "", "}"),
    "groups with a bind": nest("{ ?s <a:p> ?o BIND(?o + 1 AS ?w%) ", "", "}"),
    "optional in optional": nest("OPTIONAL { ?s <a:p> ?v% ", "", "}"),
    "optional with a bind": nest("{ ?s <a:p> ?o OPTIONAL { ?s <a:p> ?w% BIND(?w% + 1 AS ?u%) ", "", "}}"),
    "minus in minus": nest("MINUS { ?s <a:p> ?o ", "", "}"),
    "union in union": nest("{ ?s <a:p> ?o } UNION { ?s <a:p> ?o ", "", "}"),
    "graph in graph": nest("GRAPH ?g% { ?s <a:p> ?o ", "", "}"),
    "exists in exists": nest("FILTER EXISTS { ?s <a:p> ?o ", "", "}"),
    "exists in an expression": nest("FILTER(?o < -1 || (?o > 0 && !(NOT EXISTS { ?s <a:p> ?o ", "", "})))"),
    "sub-queries": nest("{ SELECT ?s { ?s <a:p> ?o ", "", "}}"),
    "distinct sub-queries": nest("{ SELECT DISTINCT ?s ?o { ?s <a:p> ?o ", "", "}}"),
    "groupings": nest("{ SELECT ?s (SUM(?o) AS ?n%) { ?s <a:p> ?o ", "", "} GROUP BY ?s HAVING(SUM(?o) > 0) }"),
    "alternatives in sequences": within(". ?s ", nest("(<a:p>|<a:q>/", "<a:p>", ")"), " ?x"),
    "sequences in alternatives": within(". ?s ", nest("(", "<a:p>", "|<a:q>)/<a:p>"), " ?x"),
    "inverses": within(". ?s ", nest("^(", "<a:p>", ")"), " ?x"),
    "stars": within(". ?s ", nest("(", "<a:p>", ")*"), " ?x"),
    "blank nodes": within(". ?s <a:p> ", nest("[ <a:p> ", "1", "]"), ""),
    "collections": within(". ?s <a:p> ", nest("(", "1", ")"), ""),
    "triple terms": within(". ?s <a:p> ", nest("<<( <a:a> <a:p> ", "1", ")>>"), ""),
    "sum": within("FILTER(?o", chain("+%"), ")"),
    "sum to the right": expression("(1+", ")"),
    "sum of an aggregate": within("{ SELECT (SUM(", nest("(1+", "?o", ")"), ") AS ?n) { ?s <a:p> ?o } }"),
    "order": within("{ SELECT ?s { ?s <a:p> ?o } ORDER BY ", nest("(1+", "?o", ")"), "}"),
    "brackets": expression("(", ")"),
    "nots": expression("!"),
    "minus signs": expression("-(", ")"),
    "calls": expression("STRLEN(STR(", "))"),
    "casts": expression("<http://www.w3.org/2001/XMLSchema#integer>(", ")"),
    "ifs": expression("IF(1 = 1 || ?o > 1 && ?o > 0,", ", 1)"),
    "coalesce": expression("COALESCE(?u,", ")"),
    "in": expression("?o IN (3, ", ")"),
    "not in": expression("1=1 && 3+4*?o NOT IN (3, ", ")"),
    "and in or": expression("(?o=1 || ?o=2 && ", "+1)"),
    "ors": within("FILTER(?o=1", chain("||?o=%"), ")"),
    "ands": within("FILTER(?o=1", chain("&&?o<9%"), ")"),
}
"""Texts of any length, to be put behind `?s <a:p> ?o`."""


def where(form: Form, n: int) -> str:
    return f"{{ ?s <a:p> ?o {form(n)} }}"


def is_allowed(form: Form, n: int) -> bool:
    try:
        check_size(text := "SELECT * " + where(form, n), tokenize(text))
    except ParsingFailed:
        return False
    return True


def largest(form: Form) -> str:
    """Return the longest of these texts that is accepted."""
    least, most = 1, 1100
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if is_allowed(form, middle) else (least, middle)
    return where(form, least)


def deep(run_: Callable[[], T], frames: int = FRAMES) -> T:
    """Run a function with this number of frames below it."""
    return run_() if not frames else deep(run_, frames - 1)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_has_a_limit(form):
    assert is_allowed(FORMS[form], 8)
    assert not is_allowed(FORMS[form], 1100)
    with pytest.raises(ParsingFailed, match=r"Split it|fewer levels"):
        check_query("SELECT * " + where(FORMS[form], 1100), QueryRules())


@pytest.mark.parametrize("form", FORMS)
def test_the_largest_subscription_fits_the_stack(form):
    text = largest(FORMS[form])
    engine = new_engine()
    run(engine, "INSERT DATA { <a:a> <a:p> 1 . GRAPH <a:g> { <a:a> <a:p> 1 } }")
    received: list[SubscriberNotification | SubscribeFailed] = []

    def whole_life() -> None:
        query = QueryRequest("SELECT ?s ?o " + text)
        subscription = engine.subscribe(query, received.append, None, NOW)
        run(engine, "INSERT DATA { <a:b> <a:p> 7 . <a:c> <a:q> 1 . GRAPH <a:g> { <a:b> <a:p> 7 } }")
        run(engine, "DELETE DATA { <a:a> <a:p> 1 }")
        engine.explain(query)
        engine.unsubscribe(subscription.spuid)

    deep(whole_life)
    assert all(isinstance(each, SubscriberNotification) for each in received)
    assert not engine.spus.subscriptions


@pytest.mark.parametrize("form", FORMS)
def test_the_largest_where_and_the_largest_query_fit_the_stack(form):
    text = largest(FORMS[form])
    engine = new_engine()
    run(engine, "INSERT DATA { <a:a> <a:p> 1 . GRAPH <a:g> { <a:a> <a:p> 1 } }")
    expected = deep(lambda: ask(engine, "ASK " + text))
    deep(lambda: run(engine, f"INSERT {{ <a:found> <a:s> ?s }} WHERE {text}"))
    assert ask(engine, "ASK { <a:found> <a:s> ?s }") is expected


def joined(count: int) -> str:
    return "SELECT * {" + " ".join(f"?s <a:p{i}> ?v{i} ." for i in range(count)) + "}"


def test_limits_are_exact():
    check_query(joined(91), QueryRules())
    with pytest.raises(ParsingFailed, match=r"engine\.max_steps"):
        check_query(joined(92), QueryRules())
    check_query("SELECT * " + "{" * (MAX_LEVELS // 2) + "}" * (MAX_LEVELS // 2), QueryRules())
    with pytest.raises(ParsingFailed, match="nested deeper"):
        check_query("SELECT * " + "{" * (MAX_LEVELS // 2 + 1) + "}" * (MAX_LEVELS // 2 + 1), QueryRules())
    check_query("SELECT * { FILTER(1" + "+1" * (MAX_LEVELS - 3) + ")}", QueryRules())
    with pytest.raises(ParsingFailed, match="nested deeper"):
        check_query("SELECT * { FILTER(1" + "+1" * (MAX_LEVELS - 2) + ")}", QueryRules())
    check_query("SELECT * { FILTER(1" + "||1" * (MAX_OPERATORS - 3) + ")}", QueryRules())
    with pytest.raises(ParsingFailed, match="More than"):
        check_query("SELECT * { FILTER(1" + "||1" * (MAX_OPERATORS - 2) + ")}", QueryRules())
    check_query(
        "SELECT (CONCAT(?a" + ",?a" * (MAX_ARGUMENTS - 1) + ") AS ?b) { ?s ?p ?a FILTER(?a IN (1, 2)) }", QueryRules()
    )
    check_query("SELECT * { ?s ?p ?a FILTER(?a IN (1" + ",1" * MAX_ARGUMENTS + "))}", QueryRules())
    with pytest.raises(LimitExceeded, match="arguments in one function call"):
        check_query("SELECT (CONCAT(?a" + ",?a" * MAX_ARGUMENTS + ") AS ?b) { ?s ?p ?a }", QueryRules())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("?s ?p ?o", 1),
        ("?s ?p ?o .", 1),
        ("?s ?p ?o , ?q ; ?x ?y ; .", 3),
        ('?s ?p "x"@en , "y"^^<a:t>, true . ?s a a', 4),
        ("[ <a:a> 1 ; <a:b> 2 ] <a:c> 3 . [] a <a:x> . ?s ?p [ <a:q> [ <a:r> 1 ] ]", 7),
        ("?s ?p (1 2 <a:a>) . (3) ?p ?o", 10),
        ("?s <a:a>/<a:b>/<a:c> ?o . ?s (<a:a>|^<a:b>)* ?o", 4),
        ("?s ((<a:a>|(<a:b>/<a:c>))/<a:d>) ?o", 3),
        ("{ ?s ?p ?o . ?a ?b ?c } { ?s ?p ?o } {} GRAPH ?g { ?x ?y ?z }", 5),
        ("{ ?s ?p ?o . ?a ?b ?c } UNION { ?s ?p ?o . ?s ?p ?o } ?x ?y ?z", 2),
        ("OPTIONAL { ?s ?p ?o . ?s ?p ?o . ?s ?p ?o } ?s ?p ?o . ?s ?p ?o", 3),
        ("{ SELECT ?x { ?s ?p ?o . ?x ?p ?o . ?y ?p ?o } } ?x ?y ?z", 3),
        ("FILTER(?s = 1) ?a ?b ?c FILTER ex:f(?s) ?d ?e ?f BIND(1 AS ?z) ?g ?h ?i FILTER NOT EXISTS { ?s ?p ?o }", 3),
        ("VALUES ?x { 1 2 } ?a ?b ?c VALUES (?x ?y) { (1 2) (UNDEF 3) } ?d ?e ?f", 4),
        ("FILTER regex(?x, 'a', 'i') ?s ?p ?o SERVICE SILENT <a:x> { ?s ?p ?o . ?s ?p ?o }", 2),
    ],
)
def test_joined_patterns_are_counted(text, count):
    assert measured(tokenize(f"SELECT * {{ {text} }}")).joined == count
    assert measured(tokenize(f"CONSTRUCT {{ {'?s ?p ?o .' * 200} }} WHERE {{ {text} }}")).joined == count


def test_the_setting_limits_the_number_of_joined_patterns():
    engine = open_engine(None, EngineSettings(max_steps=1000))
    where = joined(11).removeprefix("SELECT * ")
    try:
        assert engine.query(QueryRequest(joined(10).replace("SELECT *", "ASK"))).result(20) is False
        for work in (
            lambda: engine.query(QueryRequest(f"ASK {where}")),
            lambda: engine.update([UpdateRequest(f"DELETE WHERE {where}")]),
            lambda: engine.subscribe(QueryRequest(f"SELECT * {where}"), lambda _: None),
        ):
            with pytest.raises(ParsingFailed, match=r"More than 1000 steps .* up to 11 "):
                work().result(20)
        engine.update([UpdateRequest("INSERT DATA { <a:a> <a:p> 1, 2, 3, 4 }")]).result(20)
    finally:
        assert engine.close()


@pytest.mark.parametrize("form", ["alternatives in sequences", "groupings"])
def test_nesting_that_doubles_the_planning_time_is_limited(form):
    """Each level of these doubles the planning time of Oxigraph."""
    assert not is_allowed(FORMS[form], 18)


LARGE = " ".join(f"?s <a:p{number}> ?v{number} ." for number in range(60))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (" UNION ".join([f"{{ {LARGE} }}"] * 4), True),
        (" UNION ".join([f"{{ {LARGE} }}"] * 7), False),
        (" ".join([f"OPTIONAL {{ {LARGE} }}"] * 7), False),
        (" ".join([f"FILTER EXISTS {{ {LARGE} }}"] * 7), False),
        ("{" * 7 + LARGE + "}" * 7, True),
        ("{ SELECT * " * 7 + "{" + LARGE + "}" * 8, True),
        (" UNION ".join(["{ ?s ?p ?o . ?o ?q ?r . ?r ?t ?u }"] * 60), True),
    ],
)
def test_number_of_large_groups_is_limited(text, allowed):
    query = f"SELECT * {{ {text} }} LIMIT 1"
    if allowed:
        check_query(query, QueryRules())
        return
    with pytest.raises(ParsingFailed, match=r"engine\.max_steps"):
        check_query(query, QueryRules())
    check_query(query, query_rules(max_steps=10_000_000))


def test_checking_a_query_plans_nothing():
    """Oxigraph would need minutes to plan this query."""
    check_query(joined(330), query_rules(max_steps=10**9))


def test_a_query_that_overflows_the_stack_is_refused(monkeypatch):
    engine = new_engine()
    text = where(FORMS["brackets"], 90)
    for work in (
        lambda: engine.subscribe(QueryRequest("SELECT * " + text), lambda _: None, None, NOW),
        lambda: run(engine, f"INSERT {{ ?s <a:q> 1 }} WHERE {text}"),
    ):
        for module in ("queries.query_plans.parse_query", "updates.modify_compiler.parse_group"):
            monkeypatch.setattr(f"edge.engine.{module}", _overflow)
        with pytest.raises(ParsingFailed, match="fewer levels"):
            work()


def _overflow(*_: object, **__: object) -> None:
    _overflow()
