"""A text and the complete text of its tree have the same meaning in Oxigraph, on random data."""

from __future__ import annotations

from collections import Counter

import pyoxigraph as ox
import pytest
from generated_patterns import PREFIX
from generated_sparql import Queries, Updates, seeds
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle import BASE, NaiveEngine, Query, Refused, canonical
from unparser import group_text, quads_text, query_text
from unspecified_results import settled

from edge.engine.sparql.parser import parse_group, parse_quads, parse_query
from edge.engine.sparql.terms_text import Names
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import closing, tokenize
from edge.sparql.tokens import read_prologue
from tests.support.examples import examples

FORMS = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")


def in_full(text: str) -> str:
    """Return a query as the complete text of its tree."""
    return query_text(parse_query(text, tokenize(text), BASE))


def update_in_full(text: str) -> str:
    """Return an update with the complete text of its trees between the braces."""
    tokens = tokenize(text)
    pieces, position, number = [], 0, 0
    prologue, index = read_prologue(text, tokens, 0)
    names = Names(prologue, BASE)
    while index < len(tokens):
        if tokens[index].text == "{":
            end = closing(tokens, index)
            before = [token.word() for token in tokens[:index]]
            inner = tokens[index + 1 : end]
            if before[-1] == "WHERE" and before[-2] != "DELETE":
                new = group_text(parse_group(inner, names))
            else:
                new = quads_text(parse_quads(inner, names)).replace("_:fresh", f"_:fresh{number}")
            pieces.append(f"{text[position : tokens[index].end]} {new} ")
            position, index = tokens[end].start, end
        number += tokens[index].text == ";"
        index += 1
    return "".join(pieces) + text[position:]


def world(seed: int) -> NaiveEngine:
    naive = NaiveEngine()
    naive.update(PREFIX + Updates(seed).seed()[0])
    return naive


def meaning(naive: NaiveEngine, text: str) -> object:
    """Return the result of a query, independent of order, column order and names of new blank nodes."""
    variables, bag = naive.evaluate(Query(text))
    if text.split("CONSTRUCT")[1:]:
        return canonical(ox.Quad(*row) for row in bag)  # type: ignore[misc]
    columns = sorted(range(len(variables)), key=lambda column: variables[column])
    columns = [column for column in columns if variables[column] != "nothing"]
    names = [variables[column] for column in columns]
    rows: Counter[tuple[object, ...]] = Counter()
    for row, count in bag.items():
        rows[tuple(row[column] for column in columns)] += count
    return names, settled(names, rows)


@settings(max_examples=examples(500), deadline=None)
@given(seeds)
def test_a_query_written_in_full_has_the_same_result(seed):
    text = Queries(~seed).query().text
    naive = world(seed)
    try:
        full = in_full(text)
    except ParsingFailed:
        assume(False)
    assert meaning(naive, full) == meaning(naive, text), full


@settings(max_examples=examples(500), deadline=None)
@given(seeds)
def test_an_update_written_in_full_has_the_same_effect(seed):
    text = PREFIX + "; ".join(Updates(~seed).update())
    naive, other = world(seed), NaiveEngine()
    other.replace(naive.store, naive.store.named_graphs())
    refused = False
    try:
        naive.store.update(text, base_iri=BASE)
    except SyntaxError:  # it never reaches the parser
        assume(False)
    except RuntimeError:  # DROP of a graph that does not exist
        refused = True
    try:
        full = update_in_full(text)
    except ParsingFailed:
        assume(False)
    if refused:
        with pytest.raises(Refused):
            other.update(full)
    else:
        other.update(full)
    assert canonical(other.store) == canonical(naive.store), full


operators = st.sampled_from(["+", "-", "-", "*", "/", "=", "!=", "<", ">", "<=", ">=", "&&", "||"])
operands = st.sampled_from(["1", "2", "3.5", "-1", "+2", "?a", "?b", "!?a", "-?b", "(?a-1)", "true", "1e0"])


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(st.tuples(operators, operands), max_size=8), operands, st.sampled_from(["", " "]))
def test_operators_bind_as_they_do_to_oxigraph(chain, first, space):
    text = first + "".join(f"{space}{operator} {operand}" for operator, operand in chain)
    query = f"SELECT ({text} AS ?x) {{ VALUES (?a ?b) {{ (1 2) (5 0.5) (0 true) }} }}"
    naive = NaiveEngine()
    try:
        expected = meaning(naive, query)
    except SyntaxError:  # 1 = 2 = 3
        assume(False)
    assert meaning(naive, in_full(query)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { ?s ex:p ?o OPTIONAL { { ?s ex:q ?x FILTER(?o = ex:b) } } }",
        "SELECT * { ?s ex:p ?o OPTIONAL { ?s ex:q ?x FILTER(?o = ex:b) } }",
        "SELECT * { ?s ex:p ?o { FILTER(!BOUND(?o)) } }",
        "SELECT * { ?s ex:p ?o OPTIONAL { { ?s ex:q ?x } UNION { FILTER(?o = ex:b) } } }",
        "SELECT ?s (COUNT(?o) - COUNT(*) AS ?n) { ?s ex:p ?o } GROUP BY ?s HAVING (MAX(?o) > 1) VALUES ?s { ex:a }",
        "SELECT (COUNT(DISTINCT *) AS ?n) { ?s ex:p [ ex:q ?o ] }",
        "SELECT * { ?s ex:p/^ex:q/(ex:p|ex:q)* ?o , ?x }",
        "SELECT * { ?s !(ex:p|^ex:q) ?o }",
        "SELECT * { ?s ex:p ?o . ?s ex:q ?x MINUS { ?o ex:p ?x } }",
        "SELECT * { ?s ex:p ?o . ?o ex:q ?x BIND(STR(?s) AS ?y) ?x ex:p ?z FILTER(?z != ?y) }",
        "CONSTRUCT WHERE { ?s ex:p ?o }",
    ],
)
def test_precedence_and_scope_follow_the_standard(text):
    naive = NaiveEngine()
    naive.update(PREFIX + "INSERT DATA { ex:a ex:p ex:b, ex:a, 1, 2 ; ex:q ex:a . ex:b ex:q ex:a ; ex:p ex:a }")
    assert meaning(naive, in_full(PREFIX + text)) == meaning(naive, PREFIX + text)
    _, bag = naive.evaluate(Query(PREFIX + text))
    assert bag, "or else it says little"
