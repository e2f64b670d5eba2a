"""The SPARQL front end, compared with Oxigraph's parser; its algebra as text and back."""

import re

import pytest
from algebra_text import query_text, renamed
from generated_sparql import Queries, seeds
from hypothesis import assume, given, settings

from edge.sparql.errors import LimitOfText, SparqlError
from edge.sparql.query import read_query
from tests.sparql.test_grammar import QUERIES, P, accepts
from tests.support.examples import examples

BASE = "urn:base:"
NAMED_VARIABLE = re.compile(r"GROUP BY .*\(\?\w+ AS \?")
"""`GROUP BY (?x AS ?y)` is valid, but Oxigraph ignores the name and then misses it in SELECT."""


def is_valid(text):
    try:
        read_query(text, BASE)
    except SparqlError:
        return False
    return True


@settings(max_examples=examples(500), deadline=None)
@given(seeds)
def test_generated_queries_are_accepted_as_by_oxigraph(seed):
    text = Queries(~seed)._any_query().text
    assume(not NAMED_VARIABLE.search(text))
    assert is_valid(text) == accepts("Query", text), text


@settings(max_examples=examples(500), deadline=None)
@given(seeds)
def test_the_algebra_as_text_is_parsed_to_an_equal_tree(seed):
    query = read_query(Queries(~seed).query().text, BASE)
    text = query_text(query)
    assert renamed(read_query(text)) == renamed(query), text


@pytest.mark.parametrize("text", QUERIES)
def test_all_syntax_is_parsed_to_an_equal_tree(text):
    query = read_query(P + text, BASE)
    assert renamed(read_query(query_text(query))) == renamed(query), query_text(query)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * {\n  ?s ?p ?o BIND(1 AS ?o) }", "?o already occurs in this group, so BIND cannot assign it (line 2"),
        ("SELECT ?s {\n ?s ?p ?o } GROUP BY ?o", "?s is neither in GROUP BY nor in an aggregate (line 1, column 8)"),
        ("SELECT (1 AS ?s) { ?s ?p ?o }", "?s already has a value, so AS cannot assign it (line 1, column 14)"),
        ("SELECT (1 AS ?x) ?x { }", "?x occurs twice in SELECT (line 1, column"),
        ("SELECT * { ?s ?p ?o } GROUP BY ?s", "SELECT * cannot be used with GROUP BY (line 1, column 8)"),
        ("SELECT * { _:a ?p ?o { _:a ?q ?r } }", "The blank node label _:a is already used in another group (line 1,"),
        ("SELECT * { VALUES (?x ?x) { (1 2) } }", "?x occurs twice in VALUES (line 1"),
        ("SELECT * { ?s <rel> ?o }", "a relative IRI without a base"),
        ("SELECT * { ?s <http://a/%z> ?o }", "<http://a/%z> is not a valid IRI: '%z' cannot stand in an IRI; write %"),
        ("SELECT * { ?s ?p 'a'@toolonglanguage }", "'a'@toolonglanguage is not a valid literal: subtags of a language"),
        ("SELECT (COUNT(DISTINCT *) AS ?n) { ?s ?p - 1 } GROUP BY ?s", "a term expected instead of '-' (line 1, colum"),
        ("SELECT * { FILTER(COUNT(*) > 1) }", "COUNT is an aggregate and cannot stand in FILTER (line 1, column 19)"),
    ],
)  # fmt: skip
def test_errors_name_place_and_remedy(text, message):
    with pytest.raises(SparqlError) as raised:
        read_query(text)
    assert message in str(raised.value)


def test_limits_are_reported_as_limits():
    for text in ("ASK { FILTER(" + "(" * 200 + "1" + ")" * 200 + ") }", f"ASK {{ FILTER({'1 + ' * 200}1) }}"):
        with pytest.raises(LimitOfText):
            read_query(text)
