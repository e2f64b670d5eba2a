"""EXPLAIN describes the real evaluation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_client import EX, PREFIX, Client, engine_with, update
from engine_world import NOW, new_engine, no_loader, run
from generated_patterns import PREFIX as GENERATED
from generated_sparql import Queries, Updates, seeds
from hypothesis import given

from edge.engine.engine import Engine
from edge.engine.operators.operators import Scan
from edge.engine.requests import Dataset, QueryRequest
from edge.engine.subscriptions.explanation import Explanation, PatternExplained
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu
from edge.protocol.errors import Forbidden, ParsingFailed
from tests.support.settings import query_rules

LAMPS = 60
CITY = " . ".join(
    f"ex:road{n % 3} ex:has ex:lamp{n} . ex:lamp{n} a ex:Lamp ; ex:dim {n} ; ex:broken 0 ; ex:in ex:zone"
    for n in range(LAMPS)
)


def explain(engine: Engine, text: str, dataset: Dataset | None = None) -> Explanation:
    return engine.explain(QueryRequest(PREFIX + text, dataset or Dataset()))


def patterns(reported: Explanation) -> list[PatternExplained]:
    return [pattern for part in reported.parts for pattern in part]


def effects(reported: Explanation) -> list[str]:
    return [pattern.effect for pattern in patterns(reported)]


EFFECTS = {
    "SELECT ?v { ex:a ex:p ?v }": ["direct"],
    "SELECT ?v { ex:a ex:p ?v FILTER(?v > 3) }": ["direct"],
    "SELECT * { ?s ex:p ?o . ?o ex:q ?x }": ["exact", "exact"],
    "SELECT * { ?s ex:p/ex:q ?x }": ["exact", "exact"],
    "SELECT * { ?s ex:p ?o OPTIONAL { ?s ex:q ?x } }": ["exact", "restricted"],
    "SELECT * { ?s ex:p ?o OPTIONAL { ?y ex:q ?x } }": ["exact", "everything"],
    "SELECT * { ?s ex:p ?o MINUS { ?s ex:q ?x } }": ["exact", "restricted"],
    "SELECT * { ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x } }": ["exact", "restricted"],
    "SELECT * { ?s ex:p ?o FILTER NOT EXISTS { ex:a ex:q 1 } }": ["exact", "everything"],
    "SELECT * { { ?s ex:p ?o } UNION { ?s ex:q ?o } }": ["direct", "direct"],
    "SELECT * { ?s ex:p|ex:q ?o }": ["restricted", "restricted"],
    "SELECT * { ?s ex:p|(ex:q/ex:r) ?o }": ["restricted", "restricted", "restricted"],
    "SELECT * { ?s ex:p ?o { SELECT ?s (COUNT(*) AS ?n) { ?s ex:q ?x } GROUP BY ?s } }": ["exact", "restricted"],
    "SELECT * { ?s ex:p ?o { SELECT (COUNT(*) AS ?n) { ?s ex:q ?x } } }": ["exact", "everything"],
    "SELECT ?s (AVG(?v) AS ?a) { ?s ex:p ?v } GROUP BY ?s": ["direct"],
    "SELECT * { GRAPH ?g { ?s ex:p ?o } }": ["direct"],
    "ASK { ex:a ex:p 1 . ex:b ex:p 1 }": ["exact", "exact"],
}


@pytest.mark.parametrize("text", EFFECTS)
def test_the_effect_of_a_changed_triple_is_explained(text):
    reported = explain(new_engine(), text)
    assert (reported.kept, reported.reason) == ("incremental", "")
    assert effects(reported) == EFFECTS[text]
    for pattern in patterns(reported):
        assert bool(pattern.warning) == (pattern.effect == "everything")
        assert pattern.text
        assert bool(pattern.inside) == (pattern.effect not in ("direct", "exact"))
    assert ("warning" in reported.summary) == ("everything" in effects(reported))


# Explanation and behaviour


@pytest.fixture
def looked_at(monkeypatch) -> Iterator[list[None]]:
    """Return one item for each triple that a triple pattern matched."""
    found: list[None] = []
    solutions = Scan.solutions

    def counted(self, frame):
        for _ in solutions(self, frame):
            found.append(None)
            yield

    monkeypatch.setattr(Scan, "solutions", counted)
    return found


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("SELECT * { ?l ex:dim ?d FILTER(?d > 3) }", "INSERT DATA { ex:lamp5 ex:dim 1000 }"),
        ("SELECT * { ?r ex:has ?l . ?l ex:dim ?d . ?l a ex:Lamp }", "INSERT DATA { ex:lamp5 ex:dim 1000 }"),
        ("SELECT * { ?r ex:has ?l . ?l ex:dim ?d . ?l a ex:Lamp }", "DELETE DATA { ex:lamp5 ex:dim 5 }"),
        ("SELECT * { ?l ex:dim ?d OPTIONAL { ?l ex:broken ?b } }", "INSERT DATA { ex:lamp5 ex:broken 1 }"),
        ("SELECT * { ?l ex:dim ?d OPTIONAL { ?x ex:broken ?b } }", "INSERT DATA { ex:lamp5 ex:broken 1 }"),
        ("SELECT * { ?l ex:dim ?d MINUS { ?l ex:broken ?b } }", "INSERT DATA { ex:lamp5 ex:broken 1 }"),
        ("SELECT * { ?l ex:dim ?d FILTER NOT EXISTS { ?l ex:broken ?b } }", "INSERT DATA { ex:lamp5 ex:broken 1 }"),
        ("SELECT * { ?l ex:dim ?d FILTER NOT EXISTS { ?x ex:broken ?b } }", "INSERT DATA { ex:lamp5 ex:broken 1 }"),
        ("SELECT * { ?l ex:dim ?d { SELECT ?l { ?l ex:broken ?b } } }", "INSERT DATA { ex:lamp5 ex:broken 1 }"),
        (
            "SELECT * { ?l ex:dim ?d { SELECT (COUNT(*) AS ?n) { ?l ex:broken ?b } } }",
            "INSERT DATA { ex:a ex:broken 1 }",
        ),
        ("SELECT ?r (AVG(?d) AS ?a) { ?r ex:has ?l . ?l ex:dim ?d } GROUP BY ?r", "INSERT DATA { ex:lamp5 ex:dim 9 }"),
    ],
)
def test_all_data_is_read_only_for_patterns_explained_as_everything(looked_at, text, change):
    engine = engine_with(CITY)
    reported = explain(engine, text)
    verb = change.split()[4]
    (hit,) = [pattern for pattern in patterns(reported) if verb in pattern.pattern]
    assert not looked_at, "EXPLAIN evaluates nothing"
    Client(engine, text)
    assert len(looked_at) >= LAMPS
    looked_at.clear()
    update(engine, change)
    if hit.effect == "direct":
        assert len(looked_at) <= 1
    elif hit.effect == "everything":
        assert len(looked_at) >= LAMPS
    else:
        assert 0 < len(looked_at) <= 20


@pytest.mark.parametrize(
    ("text", "many"),
    [
        ("SELECT ?d { ?l ex:dim ?d FILTER(?l = ex:lamp%d) }", "one"),
        ("SELECT ?l ?d { ex:zone%d ex:of ?r . ?r ex:has ?l . ?l ex:dim ?d }", "together"),
        ("SELECT ?l ?d { ex:zone%d ex:of ?r . ?l ex:dim ?d }", "each"),
    ],
)
def test_the_cost_of_queries_that_differ_in_a_constant_is_explained(looked_at, text, many):
    costs = []
    for members in (10, 40):
        engine = engine_with(CITY + "".join(f" . ex:zone{n} ex:of ex:road1" for n in range(members)))
        reported = explain(engine, text % 7)
        (hit,) = [pattern for pattern in patterns(reported) if "ex:dim" in pattern.pattern]
        assert hit.many == many
        assert (reported.sharing.queries, reported.sharing.subscribers) == (0, 0)
        for number in range(members):
            Client(engine, text % number)
        Client(engine, text % 7)
        reported = explain(engine, text % 7)
        assert (reported.sharing.queries, reported.sharing.subscribers) == (members, 2)
        assert (hit.pattern in reported.sharing.text) == (many == "each")
        looked_at.clear()
        update(engine, "INSERT DATA { ex:none ex:dim 1000 }")
        costs.append(len(looked_at))
    fewer, more = costs
    assert (more >= 3 * fewer > 0) if many == "each" else (more == fewer)


RE_EVALUATED = {
    "SELECT * { ?s ex:p ?o } LIMIT 5": "LIMIT",
    "SELECT * { { SELECT * { ?s ex:p ?o } OFFSET 1 } }": "OFFSET",
    "DESCRIBE ex:a": "DESCRIBE",
    "SELECT * { ?s ex:p ?t FILTER(?t < NOW()) }": "NOW",
    "SELECT ?s (RAND() AS ?r) { ?s ex:p ?o }": "RAND",
    "SELECT * { ?s ex:p+ ?o }": "path of any length",
    "SELECT * { ?s !ex:p ?o }": "negated property set",
    "SELECT * { { SELECT REDUCED ?s { ?s ex:p ?o } } }": "REDUCED",
    "SELECT * { ?s ex:p ?o OPTIONAL { ?s ex:q ?x } FILTER EXISTS { ?s ex:r ?y { ?y a ?z OPTIONAL { ?z a ?x } } } }": (
        "unbound"
    ),
    "SELECT * { ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x MINUS { ?x ex:r ?y } } }": "MINUS inside EXISTS",
    "SELECT * { ?s ex:p ?o FILTER EXISTS { ?s ex:q|ex:r ?x } }": "inside EXISTS",
    "SELECT * { ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x BIND(1 AS ?o) } }": "inside EXISTS",
    "SELECT ?s (COUNT(*) AS ?n) { ?s ex:p ?o } GROUP BY ?s HAVING(EXISTS { ?s ex:q ?x })": "EXISTS in HAVING",
    "SELECT * { GRAPH ?g { OPTIONAL { ?s ex:p ?o } } }": "GRAPH",
    "SELECT * FROM ex:g FROM NAMED ex:h { ?s ex:p ?o GRAPH ?g { ?s ex:q ?o } }": "variable in a dataset",
    "SELECT * FROM ex:g FROM NAMED ex:h { ?s ex:p ?o GRAPH ex:i { ?s ex:q ?o } }": "not in the dataset",
    "SELECT * " + " ".join(f"FROM ex:g{n}" for n in range(17)) + " { ?s ex:p ?o }": "16 default graphs",
}


@pytest.mark.parametrize("text", RE_EVALUATED)
def test_reevaluated_queries_are_explained_with_the_reason(text):
    engine = new_engine()
    reported = explain(engine, text)
    assert reported.kept == "re-evaluated"
    assert RE_EVALUATED[text] in reported.reason
    assert reported.advice, "what could be written instead"
    assert reported.parts[0], "what it is watched for"
    assert "result" in reported.memory
    assert isinstance(spu_of(engine, Client(engine, text)), ReevaluatedSpu)
    reported = explain(engine, text)
    assert (reported.sharing.subscribers, reported.sharing.queries) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT (MIN(?o) AS ?first) { ?s ex:p ?o }",
        "SELECT * { { ?a ex:p ?b } UNION { ?a ex:p/ex:p ?b } }",
        "SELECT * { ?s ?p ?o FILTER(?p NOT IN (ex:p)) }",
        "CONSTRUCT { ex:a ?p ?o } WHERE { ex:a ?p ?o }",
        "SELECT * { GRAPH ex:g { ?s ex:p ?o } }",
        "SELECT * FROM ex:g { ?s ex:p ?o }",
        "SELECT * FROM ex:g FROM NAMED ex:h { ?s ex:p ?o GRAPH ex:h { ?s ex:q ?o } }",
        "SELECT * { ?s ex:p ?o FILTER EXISTS { { ?s ex:q ?x } UNION { ?s ex:r ?x } } }",
        "SELECT * { ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x FILTER NOT EXISTS { ?x ex:r ?y } } }",
        "SELECT * { ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x BIND(1 AS ?one) FILTER(?one = ?o) } }",
        "SELECT ?s (COUNT(*) AS ?n) { ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x } } GROUP BY ?s",
        "SELECT * { { SELECT ?s (COUNT(*) AS ?n) { ?s ex:p ?o } GROUP BY ?s } FILTER EXISTS { ?s ex:q ?x } }",
    ],
)
def test_the_suggested_rewriting_is_incremental(text):
    assert explain(new_engine(), text).kept == "incremental"


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (query_rules(default_graph_as_union=True), "engine.default_graph_as_union"),
        (query_rules(booster="re-evaluate"), "engine.booster"),
        (query_rules(allow_service=True), "SERVICE"),
    ],
)
def test_settings_that_force_reevaluation_are_explained(rules, reason):
    engine = Engine(rules, no_loader)
    reported = explain(
        engine, "SELECT * { ?s ex:p ?o SERVICE <http://x/> { ?o ex:q ?x } }" if "SERV" in reason else "ASK {}"
    )
    assert reported.kept == "re-evaluated"
    assert reason in reported.reason
    assert reported.advice


def spu_of(engine: Engine, client: Client) -> object:
    return engine.spus.registry.by_spuid[client.spuid]


@given(seeds)
@pytest.mark.integration
def test_any_query_is_explained_as_it_is_served(seed):
    engine = new_engine()
    for text in Updates(seed).seed():
        run(engine, GENERATED + text)
    terms = len(engine.graph.dictionary)
    query = Queries(seed).query()
    request = QueryRequest(query.text, Dataset(query.default_graphs, query.named_graphs))
    try:
        reported = engine.explain(request)
    except ParsingFailed:
        with pytest.raises(ParsingFailed):
            engine.subscribe(request, lambda _: None, None, NOW)
        return
    assert len(engine.graph.dictionary) == terms, "nothing is left behind"
    assert (engine.spus.subscriptions, engine.spus.spus) == (0, 0)
    assert reported.kept_rows is None
    spuid = engine.subscribe(request, lambda _: None, None, NOW).spuid
    kind = IncrementalSpu if reported.kept == "incremental" else ReevaluatedSpu
    assert isinstance(engine.spus.registry.by_spuid[spuid], kind)
    again = engine.explain(request)
    assert again.sharing.subscribers == 1
    assert again.kept_rows is not None
    if reported.kept == "incremental":
        assert (again.parts, again.steps) == (reported.parts, reported.steps)
    engine.unsubscribe(spuid)
    assert len(engine.graph.dictionary) == terms


# Texts of the explanation


def test_patterns_are_written_as_in_the_query():
    engine = engine_with(CITY)
    reported = explain(
        engine,
        "SELECT * { ?road ex:has/ex:dim 5 . ?l a ex:Lamp ; ex:label 'x'@en , '2'^^xsd:byte , <urn:x y> }".replace(
            " y", ""
        ),
    )
    assert [pattern.pattern for pattern in patterns(reported)] == [
        "?road ex:has _:1",
        "_:1 ex:dim 5",
        "?l a ex:Lamp",
        '?l ex:label "x"@en',
        "?l ex:label 2",
        "?l ex:label <urn:x>",
    ]
    assert [pattern.matches for pattern in patterns(reported)] == [LAMPS, 1, LAMPS, 0, 0, 0]


def test_a_constant_from_a_filter_is_watched():
    reported = explain(engine_with(CITY), "SELECT * { ?r ex:has ?l . ?l ex:dim ?d FILTER(?r = ex:road1) }")
    first, second = patterns(reported)
    assert (first.pattern, first.watched, first.matches) == ("?r ex:has ?l", "ex:road1 ex:has ?l", LAMPS // 3)
    assert (second.watched, second.known) == (second.pattern, ("?l", "?d"))
    assert reported.sharing.open == ("ex:road1",)


def test_graphs_are_explained():
    engine = new_engine()
    run(engine, f"INSERT DATA {{ <{EX}a> <{EX}p> 1 . GRAPH <urn:g> {{ <{EX}a> <{EX}p> 1 , 2 }} }}")
    for text, dataset, pattern, matches in [
        ("ASK { ?s ex:p ?o }", None, "?s ex:p ?o", 1),
        ("ASK { GRAPH ?g { ?s ex:p ?o } }", None, "GRAPH ?g { ?s ex:p ?o }", 2),
        ("ASK FROM <urn:g> { ?s ex:p ?o }", None, "GRAPH <urn:g> { ?s ex:p ?o }", 2),
        ("ASK { ?s ex:p ?o }", Dataset(("urn:g",)), "GRAPH <urn:g> { ?s ex:p ?o }", 2),
        ("DESCRIBE ex:a", None, "ex:a ?predicate ?object in any graph", 2),
    ]:
        (reported,) = patterns(explain(engine, text, dataset))
        assert reported.watched == pattern
        assert reported.matches == matches
    assert any("named graph" in advice for advice in explain(engine, "ASK { GRAPH ?g { } }").advice)


def test_equal_constants_are_one():
    reported = explain(new_engine(), "SELECT * { ex:a ex:p ?x . ?x ex:q ex:a }")
    assert reported.sharing.open == ("ex:a",)


def test_steps_and_their_state_are_explained():
    engine = engine_with(CITY)
    for text, names, memory, kept in [
        ("SELECT ?l { ?l ex:dim ?d }", ["SELECT ?l"], "nothing of the result", 0),
        ("SELECT DISTINCT ?z { ?l ex:in ?z }", ["SELECT ?z", "DISTINCT"], "each different row, with a count", 1),
        ("ASK { ?l ex:dim ?d }", ["ASK"], "one number", 0),
        ("CONSTRUCT { ?z ex:of ?l } { ?l ex:in ?z }", ["CONSTRUCT"], "each triple of the result, with a count", LAMPS),
        (
            "SELECT ?r (AVG(?d) AS ?a) (MAX(?d) AS ?m) { ?r ex:has/ex:dim ?d } GROUP BY ?r HAVING(AVG(?d) > 1)",
            ["GROUP BY ?r", "SELECT ?r ?a ?m"],
            "each group with its aggregates, and for MAX(?d) the different values",
            3,
        ),
        ("SELECT (COUNT(*) AS ?n) { ?l ex:dim ?d }", ["one group", "SELECT ?n"], "the aggregates", 1),
    ]:
        assert explain(engine, text).kept_rows is None
        Client(engine, text)
        reported = explain(engine, text)
        assert [step.name for step in reported.steps] == names
        assert (reported.memory, reported.kept_rows) == (memory, kept)
    (groups, _) = explain(engine, text.replace("COUNT(*)", "GROUP_CONCAT(DISTINCT STR(?d))")).steps
    assert "GROUP_CONCAT(DISTINCT …)" in groups.text
    assert "built again" in groups.text


def test_patterns_that_share_no_variable_are_pointed_out():
    engine = new_engine()
    advice = " ".join(explain(engine, "SELECT * { ?a ex:p ?x . ?b ex:q ?y . ?y ex:r ?z FILTER(?x = ?z) }").advice)
    assert "{ ?a ex:p ?x } and { ?b ex:q ?y . ?y ex:r ?z } share no variable" in advice
    for joined in (
        "SELECT * { ?a ex:p ?x . ?b ex:q ?y . ?x ex:r ?y }",
        "SELECT * { ?a ex:p ?x . ex:b ex:q 1 }",
        "SELECT * { ?a ex:p ?x . ?b ex:q ?y . VALUES (?a ?b) { (ex:a ex:b) } }",
        "SELECT * { ?a ex:p ?x . ?b ex:q ?y . { SELECT ?a ?b { ?a ex:r ?b } } }",
        "SELECT * { { ?a ex:p ?x } UNION { ?b ex:q ?y } }",
    ):
        assert explain(engine, joined).advice == ()
    assert "ORDER BY" in explain(engine, "SELECT * { ?a ex:p ?x } ORDER BY ?x").advice[0]


def test_a_query_refused_for_subscriptions_is_not_explained():
    engine = new_engine()
    for text, dataset, error in [
        ("SELEKT *", None, ParsingFailed),
        ("SELECT * { SERVICE <http://x/> { ?s ?p ?o } }", None, Forbidden),
        ("SELECT * { ?s ?p ?o }", Dataset(("not absolute",)), ParsingFailed),
    ]:
        with pytest.raises(error):
            explain(engine, text, dataset)
