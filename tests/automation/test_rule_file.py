"""Rules as their authors write them: their meaning, and the faults."""

from __future__ import annotations

import pytest

from edge.automation.errors import RuleError
from edge.automation.rule_file import read_rule
from edge.sparql.query import read_query

WATCHED = 'observation = "edge:cellar/humidity"\n'


def fault(text: str) -> str:
    with pytest.raises(RuleError) as found:
        read_rule(text, "test")
    return str(found.value)


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        ("above = 70", "FILTER(?value > 70.0)"),
        ("below = -0.5", "FILTER(?value < -0.5)"),
        ("above = 1\nbelow = 2", "FILTER(?value > 1.0 && ?value < 2.0)"),
        ("above = 1e3", "?value > 1000.0"),
        ("equals = true", "FILTER(?value = true)"),
        ("equals = 3", "FILTER(?value = 3.0)"),
        ("equals = 'o\"p\\n'", 'STR(?value) = "o\\"p\\\\n"'),
        ('silent = "PT1H"', "inXSDDateTimeStamp ?time"),
    ],
)
def test_conditions_become_queries(condition, part):
    found = read_rule(WATCHED + condition, "test")
    assert part in found.query
    assert read_query(found.query).form == "SELECT"
    assert [each.name for each in read_query(found.query).variables] == list(found.variables)
    assert "<urn:sepa-edge:cellar/humidity>" in found.query
    assert read_query(found.observations).form == "SELECT"


def test_a_rule_about_a_property_in_a_place():
    found = read_rule('property = "edge:property:humidity"\nplace = "edge:cellar"\nabove = 70', "damp")
    assert "sosa:observedProperty <urn:sepa-edge:property:humidity>" in found.query
    assert "sosa:hasFeatureOfInterest <urn:sepa-edge:cellar>" in found.query
    assert (found.label, found.key) == ("damp", ["observation"])


def test_a_rule_with_a_query():
    text = 'query = """\nSELECT ?o ?v { ?o sosa:hasResult ?v }"""\nkey = ["o"]\nfor = "PT10M"\nend_for = "PT1M"\n'
    found = read_rule(text + 'update = "INSERT { ?o edge:was ?v } WHERE {}"', "test")
    assert (found.key, found.lasts, found.end_lasts) == (["o"], 600_000_000, 60_000_000)
    assert found.query.startswith("PREFIX sosa: <http://www.w3.org/ns/sosa/> ")
    assert found.update.startswith("PREFIX edge: <urn:sepa-edge:> ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("above = ", ["Not TOML"]),
        ("label = 1\nabove = =", ["line 2", "Not TOML"]),
        (WATCHED + "abov = 3", ["line 2", "abov", "Did you mean above?"]),
        (WATCHED, ["needs one of above, below, equals, silent"]),
        ("above = 3", ['"observation", a "property" or a "query"']),
        (WATCHED + "above = 'x'", ["line 2: above"]),
        (WATCHED + "above = nan", ["line 2: above"]),
        (WATCHED + "above = 1\nequals = 2", ["line 3: equals", "exclude"]),
        (WATCHED + "equals = [1]", ["line 2: equals: It must be true, false, a number or a text."]),
        (WATCHED + 'property = "edge:p"\nabove = 1', ["observation", "leave them out"]),
        (WATCHED + 'above = 1\nfor = "10 minutes"', ["line 3: for", "PT30S"]),
        (WATCHED + 'silent = "PT0S"', ["silent", "longer than zero"]),
        (WATCHED + 'silent = "PT1H"\nfor = "PT1H"', ["for", "leave"]),
        (WATCHED + 'silent = "PT1H"\nend_for = "PT1H"', ["line 3: end_for", "next value"]),
        (WATCHED + "above = 10\nbelow = 5", ["below", "No number", "two rules"]),
        ('observation = "kitchen"\nabove = 1', ["line 1: observation", "neither an IRI nor"]),
        ('observation = "nobody:kitchen"\nabove = 1', ["line 1: observation", "prefix"]),
        (WATCHED + 'query = "SELECT ?s { ?s ?p ?o }"', ["observation", "exclude"]),
        ('query = "SELECT ?s { ?s ?p }"', ["query", "line 1"]),
        ('query = "ASK { ?s ?p ?o }"', ["must be a SELECT"]),
        ('query = "SELECT ?_x { ?_x ?p ?o }"', ["reserved", "?_x"]),
        ('query = "SELECT ?s { ?s ?p ?o }"\nkey = ["o"]', ["line 2: key", "does not select ?o"]),
        ('query = "SELECT ?s { ?s ?p ?o }"\nkey = []', ["line 2: key"]),
        ('query = "SELECT ?s { ?s ?p ?o }"\nsilent = "PT1H"', ["key", "restarts"]),
        ("a = 1\nb = 2", ["line 1: a: Unknown key", "line 2: b: Unknown key"]),
        (f'label = "{"x" * 201}"\n{WATCHED}above = 1', ["label", "200"]),
    ],
)
def test_faults_name_line_and_remedy(text, words):
    found = fault(text)
    for word in words:
        assert word in found, found


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "\ud800 = 1", "x = 1e999999999999", "\0"])
def test_hostile_texts_are_faults(text):
    assert fault(text)
