"""The time of a request, `<urn:sepa:function:now>()`, and calls of unknown functions: consistent everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyoxigraph as ox
import pytest
from engine_client import PREFIX, XSD, Client, engine_with, refused, update
from engine_world import NOW, ask, current, new_engine, run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Query

from edge.engine.engine import Engine
from edge.engine.queries.oxigraph_queries import QueryRules, prepare_query
from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.engine.sparql import plan_cache
from edge.engine.updates.update_plan import Modify, OperatorWhere, OxigraphWhere
from edge.protocol.errors import EdgeError, ParsingFailed
from tests.support.examples import examples
from tests.support.settings import query_rules

F = "PREFIX f: <urn:sepa:function:> PREFIX now: <urn:sepa:function:now> "
NATIVE = "?s ex:p ?o"
"""A pattern that the operators evaluate,"""
GENERAL = "?s ex:p* ?o . ?s ex:p ?o"
"""and a pattern that only the mirror evaluates."""

INTEGER = ox.NamedNode(XSD + "integer")
DATE_TIME = ox.NamedNode(XSD + "dateTime")


def written(pattern: str) -> str:
    """Return an update that writes the time in both forms."""
    return (
        f"{F}{PREFIX} INSERT {{ ex:a ex:micros ?m ; ex:moment ?t }} "
        f"WHERE {{ {pattern} BIND(f:now() AS ?m) BIND(NOW() AS ?t) }}"
    )


def added(engine: Engine, text: str, now: int = NOW) -> dict[str, object]:
    """Return the objects that an update adds, by the last part of their predicate."""
    return {quad.predicate.value.rpartition("/")[2]: quad.object for quad in run(engine, text, now).added}


@settings(max_examples=examples(60), deadline=None)
@given(st.one_of(st.integers(0, 4_000_000_000_000_000), st.integers(0, 4_000_000_000).map(lambda s: s * 1_000_000)))
def test_the_now_function_equals_now_to_the_microsecond_in_both_evaluators(now):
    engine = engine_with("ex:a ex:p 1")
    native = added(engine, written(NATIVE), now)
    update(engine, "DELETE WHERE { ?s ex:micros ?m ; ex:moment ?t }")
    general = added(engine, written(GENERAL), now)
    text = F + PREFIX + "SELECT (f:now() AS ?m) (NOW() AS ?t) { ?s ex:p ?o }"
    queried = engine.queries.run(engine.queries.question(QueryRequest(text)), lambda answer: list(answer)[0], now)  # noqa: RUF015
    assert native == general == {"micros": queried["m"], "moment": queried["t"]}
    assert native["micros"] == ox.Literal(str(now), datatype=INTEGER)
    moment = native["moment"]
    assert isinstance(moment, ox.Literal)
    assert moment.datatype == DATE_TIME
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now)
    seconds, _, fraction = moment.value.removesuffix("Z").partition(".")
    assert seconds == instant.strftime("%Y-%m-%dT%H:%M:%S")
    assert int(fraction.ljust(6, "0")) == instant.microsecond


@pytest.mark.parametrize(("pattern", "kind"), [(NATIVE, OperatorWhere), (GENERAL, OxigraphWhere)])
def test_operators_evaluate_now_and_leave_unsupported_calls_to_oxigraph(pattern, kind):
    (operation,) = new_engine().prepare(UpdateRequest(written(pattern))).plan.operations
    assert isinstance(operation, Modify)
    assert isinstance(operation.where, kind)


@pytest.mark.parametrize("pattern", [NATIVE, GENERAL])
def test_now_is_one_value_for_a_request(pattern):
    engine = engine_with("ex:a ex:p 1 , 2 . ex:b ex:p 3")
    text = f"INSERT {{ ?s ?o ?t }} WHERE {{ {pattern.replace('?o', '?v')} BIND(f:now() AS ?t) "
    text += "BIND(IRI(CONCAT('http://example.org/at', STR(?v))) AS ?o) }"
    changes = run(engine, f"{F}{PREFIX} {text} ; {text.replace('/at', '/again')}", now=77)
    assert {quad.object for quad in changes.added} == {ox.Literal(77)}
    assert len(changes.added) == 6


# Forms of a call

CALLS = (
    "<urn:sepa:function:now>()",
    "f:now()",
    "f:now  (\n)",
    "f:now # ( 'f:now()'\n (\t)",
    "now:()",
    r"<urn:sepa:function:n\u006Fw>()",
)

PLACES = (
    "SELECT (@ AS ?t) {}",
    "SELECT ?s (@ - ?o AS ?age) { ?s ex:p ?o }",
    "SELECT ?s { ?s ex:p ?o FILTER(?o<@) }",
    "SELECT ?s { ?s ex:p ?o FILTER(@>?o&&?o>1) }",
    "SELECT * { ?s ex:p ?o BIND(@ AS ?t) }",
    "SELECT * { ?s ex:p ?o OPTIONAL { ?s ex:q ?x FILTER(?x > @) } }",
    "SELECT * { ?s ex:p ?o FILTER(EXISTS { ?s ex:p ?x FILTER(?x IN (1, @)) } || !(@ = @)) }",
    "SELECT ?s (SUM(@ - ?o) AS ?t) { ?s ex:p ?o } GROUP BY ?s",
    "SELECT ?s (MAX(?o) - @ AS ?t) { ?s ex:p ?o } GROUP BY ?s HAVING(MIN(?o) < @)",
    "SELECT (COUNT(DISTINCT @) AS ?n) ?t { ?s ex:p ?o } GROUP BY (@ AS ?t)",
    "SELECT ?n { { SELECT (COUNT(*) AS ?n) { ?s ex:p ?o } GROUP BY @ } }",
    "SELECT ?s { ?s ex:p ?o } ORDER BY DESC(@ - ?o) @ LIMIT 2",
    "SELECT ?s { ?s ex:p ?o } GROUP BY ?s HAVING @",
    "SELECT ?s { ?s ex:p ?o FILTER @ }",
    "SELECT (COALESCE(IF(@ > 5, ?nothing, 1), STR(@)) AS ?x) {}",
    "SELECT * { ?s ex:p ?o BIND(@ AS ?t) BIND(TRIPLE(?s, ex:p, ?o) AS ?term) }",
    "ASK { FILTER(@ > 1) }",
    "SELECT ?s { ?s ex:p ?o MINUS { ?s ex:p ?o FILTER(?o > @) } }",
)


def rows(engine: Engine, text: str) -> object:
    result = ask(engine, text)
    return (result.variables, sorted(map(str, result.rows))) if isinstance(result, Solutions) else result


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.integration
def test_the_now_function_may_be_called_in_every_expression(place):
    engine = engine_with(f"ex:a ex:p 1 , 2 . ex:b ex:p {NOW} , {NOW + 1} ; ex:q {NOW + 2}")
    constant = F + PREFIX + place.replace("@", f'xsd:integer("{NOW}")')
    for call in CALLS:
        text = F + PREFIX + place.replace("@", call)
        assert rows(engine, text) == rows(engine, constant)
        assert current(engine, Query(text)) == current(engine, Query(constant))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("pattern", [NATIVE, GENERAL])
@pytest.mark.parametrize(
    "condition",
    [
        "FILTER(?o < @)",
        "OPTIONAL { ?s ex:q ?x FILTER(?x > @) } FILTER(!BOUND(?x))",
        "FILTER(EXISTS { FILTER(@ > ?o) })",
    ],
)
def test_the_now_function_works_in_the_where_of_an_update(pattern, condition, call):
    engine = engine_with(f"ex:a ex:p 1 . ex:b ex:p {NOW} ; ex:q {NOW + 1} . ex:c ex:p {NOW - 1}")
    text = f"{F}{PREFIX} DELETE {{ ?s ex:p ?o }} WHERE {{ {pattern} {condition.replace('@', call)} }}"
    assert {quad.subject.value[-1] for quad in run(engine, text).removed} == {"a", "c"}


def test_an_iri_that_is_not_called_stays_unchanged():
    engine = engine_with("ex:a <urn:sepa:function:now> () , 'f:now()' , <urn:sepa:function:now>")
    text = "SELECT ?o { ?a <urn:sepa:function:now> () , ?o FILTER(?o IN ('f:now()', f:now, 7)) } # f:now()"
    assert len(ask(engine, F + PREFIX + text).rows) == 2
    text = "INSERT { ?a f:now (f:now ()) } WHERE { ?a f:now () }"
    assert len(run(engine, F + PREFIX + text).added) == 5
    assert len(
        run(engine, F + PREFIX + text.replace("{ ?a f:now () }", "{ ?a f:now () , ?v FILTER(1<f:now()) }")).added
    )


def test_the_variables_of_a_query_beyond_the_grammar_come_in_their_order():
    text = F + PREFIX + "SELECT * { ?s ?z ?o BIND(f:now() AS ?b) BIND(TRIPLE(?s, ex:p, ?o) AS ?a) }"
    assert "?s ?z ?o ?b ?a" in prepare_query(text, QueryRules()).text


# Subscriptions


def test_a_subscription_sees_the_time_of_the_update_that_touches_it():
    engine = engine_with("ex:a ex:at 1000")
    client = Client(engine, "SELECT ?s { ?s ex:at ?t FILTER(?t < <urn:sepa:function:now>()) }")
    assert client.news() == ([("a",)], [])
    run(engine, PREFIX + f"INSERT DATA {{ ex:b ex:at {NOW + 1} }}")
    assert client.news() is None
    run(engine, PREFIX + "INSERT DATA { ex:b ex:other 1 }", now=NOW + 2)
    assert client.news() is None, "time that passes notifies nobody"
    run(engine, PREFIX + f"INSERT DATA {{ ex:c ex:at {NOW + 2} }}", now=NOW + 2)
    assert client.news() == ([("b",)], [])


@pytest.mark.parametrize(
    ("query", "first", "then"),
    [
        ("SELECT (<urn:sepa:function:now>() AS ?t) { ?s ex:p ?o }", ([(str(NOW),)], []), [("5",), ("5",)]),
        ("SELECT (MAX(<urn:sepa:function:now>() + ?o) AS ?t) { ?s ex:p ?o }", ([(str(NOW + 1),)], []), [("7",)]),
        (
            "SELECT (MIN(?o) AS ?t) { ?s ex:p ?o } GROUP BY ?s HAVING(<urn:sepa:function:now>() < 10)",
            ([], []),
            [("1",)],
        ),
        (
            "CONSTRUCT { ?s ex:at ?t } { ?s ex:p ?o BIND(<urn:sepa:function:now>() AS ?t) }",
            ([("a", "at", str(NOW))], []),
            [("a", "at", "5")],
        ),
        ("ASK { ?s ex:p ?o FILTER(?o < <urn:sepa:function:now>()) }", ([("true",)], []), None),
    ],
)
def test_a_subscription_may_use_the_now_function_like_a_query(query, first, then):
    engine = engine_with("ex:a ex:p 1")
    client = Client(engine, query)
    assert client.news() == first
    run(engine, PREFIX + "INSERT DATA { ex:a ex:p 2 }", now=5)
    assert client.news() == (None if then is None else (then, first[0]))


def test_explain_reports_the_now_function_as_reevaluated():
    engine = new_engine()
    received = engine.explain(QueryRequest("SELECT * { ?s ?p ?o FILTER(?o < <urn:sepa:function:now>()) }"))
    assert received.kept == "re-evaluated"
    assert "<urn:sepa:function:now>" in received.reason


# Unknown functions and wrong calls

WRONG = {
    "<urn:sepa:function:now>(1)": "takes no arguments, here it has 1",
    "f:now(?s, CONCAT('a', 'b,'), IF(true, 1, 2))": "takes no arguments, here it has 3",
    "f:now(EXISTS { ?s ex:p 1, 2 })": "takes no arguments, here it has 1",
    "f:NOW()": "<urn:sepa:function:NOW>",
    "<URN:sepa:function:now>()": "<URN:sepa:function:now>",
    "<urn:f>(?s)": "<urn:f>",
    "COALESCE(<urn:f>(), 1)": "<urn:f>",
    "(false && <urn:f>(f:now()))": "<urn:f>",
    "xsd:integer()": "arguments",
    "xsd:integer('1', '2')": "arguments",
    "<relative>('1')": "<http://localhost/relative>",
}


@pytest.mark.parametrize("data", ["", "ex:a ex:p 1"])
@pytest.mark.parametrize("call", WRONG)
def test_a_call_of_an_unknown_function_is_refused_by_all_evaluators(call, data):
    engine = engine_with(data)
    query = QueryRequest(f"{F}{PREFIX} SELECT * {{ ?s ex:p ?o OPTIONAL {{ ?s ex:q ?x FILTER({call}) }} }}")
    ways = [
        lambda: engine.queries.question(query),
        lambda: engine.subscribe(query, lambda _: None, None, NOW),
        lambda: engine.explain(query),
    ]
    for pattern in (NATIVE, GENERAL):
        text = f"{F}{PREFIX} INSERT {{ ?s ex:q ?x }} WHERE {{ {pattern} BIND({call} AS ?x) }}"
        ways += [
            lambda text=text: engine.prepare(UpdateRequest(text)),
            lambda text=text: engine.prepare(UpdateRequest(f"INSERT DATA {{ <urn:a> <urn:b> 1 }} ; {text}")),
        ]
    for way in ways:
        with pytest.raises(ParsingFailed) as caught:
            way()
        assert WRONG[call] in caught.value.description
        assert caught.value.status_code == 400


@pytest.mark.parametrize("call", ["f:now(DISTINCT ?o)", "f:now(*)", "f:now(DISTINCT)", "f:now", "now()(1)"])
def test_the_now_function_is_not_an_aggregate(call):
    engine = engine_with("ex:a ex:p 1")
    with pytest.raises(ParsingFailed):
        ask(engine, f"{F}{PREFIX} SELECT ({call} AS ?x) {{ ?s ex:p ?o }} GROUP BY ?s HAVING {call}")
    refused(engine, f"{F}{PREFIX} INSERT DATA {{ ex:a ex:p f:now() }}", ParsingFailed)


def test_casts_and_extension_functions_are_allowed():
    engine = engine_with("ex:a ex:p 1")
    text = "SELECT (xsd:string(xsd:integer('07')) AS ?a) (xsd:boolean('x') AS ?b) { ?s ex:p (xsd:x (1)) , ?o }"
    assert ask(engine, PREFIX + text.replace("(xsd:x (1)) ,", "")) == Solutions(("a", "b"), ((ox.Literal("7"), None),))
    assert ask(engine, PREFIX + text) == Solutions(("a", "b"), ())


def test_functions_inside_service_are_not_checked():
    service = "SERVICE SILENT <http://127.0.0.1:1/> { ?s <urn:p> ?o FILTER(<urn:f>(?o, f:now(), f:now(1))) }"
    rules = query_rules(allow_service=True)
    prepare_query(f"{F} SELECT * {{ {service} FILTER(f:now() > 1) }}", rules)
    with pytest.raises(ParsingFailed, match="urn:g"):
        prepare_query(f"{F} SELECT * {{ {service} FILTER(<urn:g>() > 1) }}", rules)


# Plans by fingerprint


@pytest.mark.parametrize("often", [1, 1_000_000], ids=["moulds", "no moulds"])
@pytest.mark.parametrize("pattern", [NATIVE, GENERAL])
def test_the_name_of_a_function_is_not_a_plan_parameter(pattern, often, monkeypatch):
    monkeypatch.setattr(plan_cache, "_OFTEN", often)
    engine = engine_with("ex:a ex:p 1 . ex:b ex:p 2")

    def changed(function: str, subject: str, declared: str = "") -> object:
        where = f"{pattern.replace('?s', subject)} BIND({function} () AS ?x)"
        text = f"{declared} {PREFIX} INSERT {{ {subject} ex:at ?x }} WHERE {{ {where} }}"
        return added(engine, text, now=9)["at"]

    for subject in ("ex:a", "ex:b"):
        assert changed("<urn:sepa:function:now>", subject) == ox.Literal(9)
        update(engine, "DELETE WHERE { ?s ex:at ?x }")
    for subject in ("ex:a", "ex:b"):
        for other in ("<urn:sepa:function:nov>", f"<{XSD}integer>"):
            with pytest.raises(EdgeError):
                changed(other, subject)
    for declares in ("PREFIX", "prefix"):
        assert changed("g:now", "ex:a", f"{declares} g: <urn:sepa:function:>") == ox.Literal(9)
        update(engine, "DELETE WHERE { ?s ex:at ?x }")
        with pytest.raises(EdgeError):
            changed("g:now", "ex:a", f"{declares} g: <urn:sepa:functiom:>")
