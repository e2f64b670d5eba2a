"""Repeated patterns: they count once, are planned once, and do not change results."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from engine_world import ask, current, new_engine, run
from hypothesis import given
from hypothesis import strategies as st
from oracle import Query

from edge.engine.queries.oxigraph_queries import QueryRules, check_query
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.sparql.oxigraph_text import edited
from edge.engine.sparql.repeated_patterns import repeated, without_repeated
from edge.engine.start import open_engine
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import tokenize

PREFIX = "PREFIX : <urn:> "


def reduced(text: str) -> str:
    return " ".join(token.text for token in tokenize(edited(text, repeated(tokenize(text)))))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{ ?s :p ?o . ?s :p ?o }", "{ ?s :p ?o . }"),
        ("{ ?s :p ?o . ?s :p ?o . ?s :q ?o }", "{ ?s :p ?o . ?s :q ?o }"),
        ("{ ?s a 'x'@en , 'x'@en ; a 'x'@en . }", "{ ?s a 'x' @en . }"),
        ("{ ?s :p 1 ; :q 2 . ?s :q 2 ; :p 1 , 3 ; . }", "{ ?s :p 1 ; :q 2 . ?s :p 3 . }"),
        ("{ ?s :p '1'^^:t . ?s :p '1'^^:u . ?s :p '1'^^:t }", "{ ?s :p '1' ^^ :t . ?s :p '1' ^^ :u . }"),
        ("{ _:b :p true . _:b :p true . }", "{ _:b :p true . }"),
        ("{ ?s :p ?o . { ?s :p ?o } ?s :p ?o }", "{ ?s :p ?o . { ?s :p ?o } ?s :p ?o }"),
        ("{ ?s :p ?o . OPTIONAL { ?s :p ?o } }", "{ ?s :p ?o . OPTIONAL { ?s :p ?o } }"),
        ("{ ?s :p/:q ?o . ?s :p/:q ?o }", "{ ?s :p / :q ?o . ?s :p / :q ?o }"),
        ("{ ?s :p [] . ?s :p [] }", "{ ?s :p [ ] . ?s :p [ ] }"),
        ("{ ?s :p -1 . ?s :p -1 }", "{ ?s :p - 1 . ?s :p - 1 }"),
        ("{ ?s :p ?o FILTER(?o > 1) ?s :p ?o }", "{ ?s :p ?o FILTER ( ?o > 1 ) ?s :p ?o }"),
        ("{ VALUES ?s { :a :b :c } VALUES ?s { :a :b :c } }", "{ VALUES ?s { :a :b :c } VALUES ?s { :a :b :c } }"),
    ],
)
def test_only_repeated_patterns_are_removed(text, left):
    assert reduced(text) == left
    assert len(list(without_repeated(tokenize(text)))) <= len(tokenize(text))


def same(count: int) -> str:
    return "?s :p ?o . " * count


def different(count: int) -> str:
    return " ".join(f"?s :p{number} ?o{number} ." for number in range(count))


def test_repeated_patterns_count_once():
    check_query(f"{PREFIX} SELECT * {{ {same(200)} {different(90)} }}", QueryRules())
    with pytest.raises(ParsingFailed, match="max_steps"):
        check_query(f"{PREFIX} SELECT * {{ {same(200)} {different(91)} }}", QueryRules())
    engine = new_engine()
    run(engine, f"{PREFIX} INSERT DATA {{ :s :p 1 }}")
    run(engine, f"{PREFIX} INSERT {{ ?s :q ?o }} WHERE {{ {same(200)} }}")
    assert len(engine.graph) == 2
    run(engine, f"{PREFIX} INSERT {{ ?s :r ?o }} WHERE {{ {same(200)} ?s :p* ?x }}")
    assert len(engine.graph) >= 3


@pytest.mark.parametrize("tail", ["", "LIMIT 10"], ids=["incremental", "re-evaluated"])
def test_a_text_with_repeated_patterns_shares_no_plan_with_one_in_which_they_differ(tail):
    """Both texts have the same fingerprint, because plans leave constants open."""
    engine = new_engine()
    run(engine, f"{PREFIX} INSERT DATA {{ :s :p 1 , 2 }}")
    for numbers, there in (([1] * 40, 1), ([1, 2] * 20, 1), ([1, 3] * 20, 0), ([3] * 40, 0), ([2] * 40, 1)):
        text = f"{PREFIX} SELECT ?s {{ {' '.join(f'?s :p {number} .' for number in numbers)} }} {tail}"
        assert len(ask(engine, text).rows) == there
        assert sum(current(engine, Query(text))[1].values()) == there
        where = text[text.index("{") : text.rindex("}") + 1]
        before = len(engine.graph)
        run(engine, f"{PREFIX} INSERT {{ ?s :q {before} }} WHERE {where}")
        assert len(engine.graph) - before == there
        run(engine, f"{PREFIX} DELETE DATA {{ :s :q {before} }}")


def test_repeated_patterns_take_no_time_to_plan():
    scheduler = open_engine(None, EngineSettings())
    scheduler.update([UpdateRequest(f"{PREFIX} INSERT DATA {{ :s :p 1 }}")]).result(20)
    query = QueryRequest(f"{PREFIX} SELECT * {{ {same(240)} }}")
    began = time.process_time()
    assert len(scheduler.query(query).result(60).rows) == 1
    assert time.process_time() - began < 5, "240 patterns would take Oxigraph more than 20 s"
    scheduler.close()


TERMS = st.sampled_from(["?a", "?b", ":x", ":y", "_:n"])
STATEMENTS = st.lists(st.tuples(TERMS, st.sampled_from([":p", ":q", "?r"]), TERMS), min_size=1, max_size=6)


@given(STATEMENTS, st.lists(st.integers(0, 5), max_size=12), st.lists(st.tuples(TERMS, TERMS), max_size=6))
def test_the_result_is_that_of_the_whole_text(statements, again, data):
    engine = new_engine()
    triples = " ".join(f"<urn:{s.strip('?:_')}> :p <urn:{o.strip('?:_')}> ." for s, o in data)
    run(engine, f"{PREFIX} INSERT DATA {{ {triples} }}")
    patterns = [*statements, *(statements[index % len(statements)] for index in again)]
    text = f"{PREFIX} SELECT ?a ?b ?r {{ {' . '.join(map(' '.join, patterns))} }}"
    whole, short = ask(engine, text), ask(engine, edited(text, repeated(tokenize(text))))
    assert Counter(whole.rows) == Counter(short.rows)
