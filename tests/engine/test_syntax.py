"""SPARQL text as tokens: complete, without crashes, in bounded time."""

from __future__ import annotations

import contextlib
import time

import pytest
from generated_sparql import query_text
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.queries.oxigraph_queries import QueryRules, check_query
from edge.engine.store.graph import LiveGraph
from edge.engine.updates.update_compiler import UpdateCompiler
from edge.protocol.errors import Forbidden, ParsingFailed
from edge.protocol.syntax import closing, tokenize
from edge.sparql.tokens import built_in_calls, has_word, named_calls, read_prologue, variables
from tests.support.examples import examples
from tests.support.settings import query_rules


def compile_update(text: str) -> None:
    UpdateCompiler(LiveGraph(), QueryRules()).compile(text, None, {})


SPARQL_BITS = st.sampled_from(
    [
        *"{}()[]<>.,;\"'\\#?$@:_^|/*+-!=&%\n\r\t éa1",
        "SELECT",
        "WHERE",
        "?x",
        "ex:p",
        "<a:b>",
        '"""',
        "'''",
        "\\u0041",
        "1e5",
    ]
)
arbitrary = st.one_of(st.text(max_size=60), st.lists(SPARQL_BITS, max_size=30).map("".join))


def texts(text: str) -> list[str]:
    return [token.text for token in tokenize(text)]


@settings(max_examples=examples(400), deadline=None)
@given(arbitrary)
def test_arbitrary_text_is_tokens_or_refused(text):
    try:
        tokens = tokenize(text)
    except ParsingFailed:
        return
    end = 0
    for token in tokens:
        assert token.text == text[token.start : token.end] != ""
        gap = text[end : token.start]
        assert gap.strip(" \t\r\n") == "" or "#" in gap
        end = token.end


@settings(max_examples=examples(300), deadline=None)
@given(arbitrary)
def test_arbitrary_text_is_never_more_than_refused(text):
    for judge in (lambda: check_query(text, QueryRules()), lambda: compile_update(text)):
        with contextlib.suppress(ParsingFailed, Forbidden):
            judge()


@settings(max_examples=examples(100), deadline=None)
@given(query_text)
def test_tokens_joined_are_the_same_tokens(text):
    joined = " ".join(texts(text))
    assert texts(joined) == texts(text)


@pytest.mark.parametrize(
    "text",
    [
        "1" * 200_000,
        "." * 100_000,
        "a." * 50_000,
        "é." * 50_000,
        "ex:a" + "." * 100_000,
        "_:a" + "." * 100_000,
        "<a" * 50_000,
        "<" * 100_000,
        '"' * 100_001,
        '"""a' * 30_000,
        "'''" + "a" * 200_000,
        '"' + "\\" * 100_001,
        ".1e" * 30_000,
        "1." * 50_000,
        ":%20" * 30_000,
        "@a-" * 30_000,
        "#" * 100_000,
        "?" * 100_000,
        "{" * 100_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_hostile_text_takes_no_time(text):
    began = time.process_time()
    with contextlib.suppress(ParsingFailed):
        tokenize(text)
    assert time.process_time() - began < 5.0


DEEP = {
    "groups": ("SELECT * ", "{", "", "}"),
    "brackets": ("SELECT * { FILTER(", "(", "1", ")"),
    "calls": ("SELECT * { FILTER(", "STR(", "1", ")"),
    "exists": ("SELECT * {", "FILTER EXISTS {", "", "}"),
    "sub-queries": ("SELECT * {", "{ SELECT * {", "", "}}"),
    "blank nodes": ("SELECT * { ?s ?p ", "[ <a:p> ", "1", "]"),
    "triple terms": ("SELECT * { ?s ?p ", "<<( <a:a> <a:p> ", "1", ")>>"),
}


@pytest.mark.parametrize("shape", DEEP)
def test_deep_nesting_is_refused_and_does_not_end_the_process(shape):
    start, opening, middle, end = DEEP[shape]
    with pytest.raises(ParsingFailed, match="nested deeper"):
        check_query(start + opening * 20_000 + middle + end * 20_000, QueryRules())
    with pytest.raises(ParsingFailed, match="nested deeper"):
        compile_update(f"INSERT {{}} WHERE {{ {opening * 20_000}")


LONG = {
    "sums": ("SELECT * { ?s ?p ?o FILTER(1", "+1", ")}"),
    "ands": ("SELECT * { ?s ?p ?o FILTER(?s = 1", "&&?s=1", ")}"),
    "nots": ("SELECT * { FILTER(", "!", "1)}"),
    "unions": ("SELECT * { {?s ?p ?o}", "UNION{?s ?p ?o}", "}"),
    "optionals": ("SELECT * { ?s ?p ?o ", "OPTIONAL{?s ?p ?o}", "}"),
    "filters": ("SELECT * { ?s ?p ?o ", "FILTER(?s=1)", "}"),
    "triples": ("SELECT * { ?s ?p ?o ", ".?s ?p ?o", "}"),
    "objects": ("SELECT * { ?s ?p ?o ", ",?o", "}"),
    "minus": ("SELECT * { ?s ?p ?o ", "MINUS{?s ?p ?o}", "}"),
    "paths": ("SELECT * { ?s <a:p>", "/<a:p>", " ?o }"),
    "path signs": ("SELECT * { ?s <a:p>", "*", " ?o }"),
}


@pytest.mark.parametrize("shape", LONG)
def test_long_chains_are_refused_and_do_not_end_the_process(shape):
    start, part, end = LONG[shape]
    with pytest.raises(ParsingFailed, match="More than"):
        check_query(start + part * 20_000 + end, QueryRules())


def test_long_chains_in_updates_are_refused_too():
    with pytest.raises(ParsingFailed, match="More than"):
        compile_update("INSERT { <a:a> <a:p> 1 } WHERE { FILTER(1" + "+1" * 20_000 + ") }")
    with pytest.raises(ParsingFailed, match="More than"):
        compile_update("DELETE WHERE { " + "?s ?p ?o ." * 20_000 + " }")


def test_long_flat_text_is_accepted():
    numbers = " ".join(f"-{number}" for number in range(5_000))
    check_query(f"SELECT * {{ VALUES ?x {{ {numbers} }} }}", QueryRules())
    check_query("SELECT * { ?s ?p ?o FILTER(?o IN (1" + ",1" * 5_000 + ")) }", QueryRules())
    triples = " ".join(f"<a:s> <a:p> {number} ." for number in range(5_000))
    compile_update(f"INSERT DATA {{ {triples} }}")
    compile_update(f"INSERT {{ {triples} }} WHERE {{}}")


def test_less_than_between_variables_is_not_an_iri():
    assert texts("FILTER(?v<?most&&?v>?least)") == ["FILTER", "(", "?v", "<", "?most", "&&", "?v", ">", "?least", ")"]
    assert texts("FILTER(?v<<a:b>())") == ["FILTER", "(", "?v", "<", "<a:b>", "(", ")", ")"]
    assert texts("{ BIND(?v<7&&?w>5 AS ?x) }")[4:7] == ["<", "7", "&&"]
    assert texts("{ FILTER ex:f(?a<=?b,?c>?d) }")[5] == "<="
    assert texts("SELECT (?a<?b&&?c>?d AS ?x) {}")[3] == "<"
    assert texts("SELECT * {} ORDER BY (?a<?b&&?c>?d)")[8] == "<"


def test_an_iri_after_a_variable_is_an_iri():
    assert texts("{ ?s<a:p>?o }") == ["{", "?s", "<a:p>", "?o", "}"]
    assert texts("{ ?s <a:p>(?x<a:q>) }") == ["{", "?s", "<a:p>", "(", "?x", "<a:q>", ")", "}"]
    assert texts("{ FILTER EXISTS { ?s<a:p>?o } }")[4:7] == ["?s", "<a:p>", "?o"]
    assert texts("{ FILTER(?x IN(<a:p>,<a:q>)) }")[6:9] == ["<a:p>", ",", "<a:q>"]
    assert texts("VALUES (?a ?b) { (<a:p><a:q>) }")[7:9] == ["<a:p>", "<a:q>"]


def test_keywords_are_words_and_nothing_else_is():
    text = (
        'SELECT ?service { ex:SERVICE ?p "SERVICE" , "x"@service . SERVICE:x ?p _:service # SERVICE\n . <SERVICE> a 1 }'
    )
    assert not has_word(tokenize(text), "SERVICE")
    assert has_word(tokenize("SELECT * { ?s ?p 1.SERVICE<a:b>{} }"), "SERVICE")
    assert has_word(tokenize("SELECT * { service <a:b> {} }"), "SERVICE")
    assert has_word(tokenize("SELECT * { ?s ?p '#' . SERVICE <a:b> {} }"), "SERVICE")


def test_unicode_names_escapes_and_strings():
    assert texts("?été ex:naïve ex:a\\,b ex:%20x _:a.b ex:a.b.") == [
        "?été",
        "ex:naïve",
        "ex:a\\,b",
        "ex:%20x",
        "_:a.b",
        "ex:a.b",
        ".",
    ]
    assert texts("'it\\'s' \"a\\\"b\" '''a'b''c''' \"\"\"a\"b\"\"c\"\"\"") == [
        "'it\\'s'",
        '"a\\"b"',
        "'''a'b''c'''",
        '"""a"b""c"""',
    ]
    assert texts("<http://e/\\u00e9> 1.5e-3 .5 5. -1") == ["<http://e/\\u00e9>", "1.5e-3", ".5", "5", ".", "-", "1"]


def test_the_error_names_the_position():
    with pytest.raises(ParsingFailed, match="line 2, column 3"):
        tokenize("SELECT\n* \\")


def test_closing_prologue_variables_and_calls():
    tokens = tokenize("{ ( [ ] ) { } } }")
    assert closing(tokens, 0) == 7
    with pytest.raises(ParsingFailed, match="never closed"):
        closing(tokenize("{ ( }"), 0)
    text = "BASE <a:> PREFIX ex: <b:> # {\n SELECT"
    assert read_prologue(text, tokenize(text), 0) == ("BASE <a:> PREFIX ex: <b:>\n", 5)
    assert list(variables(tokenize("?b $a ?b '?c' ?a"))) == ["b", "a"]
    assert list(built_in_calls(tokenize("NOW() now ( ) ex:NOW() 'NOW()' ?now"), "NOW")) == [0, 3]


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("SELECT (ex:f() AS ?x) { ?s ex:p () , (ex:q (1 2)) , ex:r (3) FILTER ex:g(?s) }", "ex:f ex:g"),
        (
            "SELECT (SUM(<a:f>(?x)) AS ?y) {} GROUP BY ex:g(?s) HAVING ex:h (?y) ORDER BY ex:i(1)",
            "<a:f> ex:g ex:h ex:i",
        ),
        ("ASK { BIND(ex:f(ex:g(1), <a:h> #(\n ()) AS ?x) ?s a (ex:q (1)) ; ex:p (true (ex:q (1)))}", "ex:f ex:g <a:h>"),
        ("INSERT { ?s ex:p (ex:q (1)) } WHERE { VALUES (?s) { (ex:q) (<a:f>) } ?s ex:q/(ex:q|^ex:q) (1) }", ""),
        ("ASK { ?s ?p ?o FILTER(?o<ex:f(1)&&<a:f>(2)>?o) } VALUES (?s) { (ex:q) }", "ex:f <a:f>"),
    ],
)
def test_a_function_is_called_in_expressions_and_elsewhere_a_list_begins(text, called):
    tokens = tokenize(text)
    assert [tokens[index].text for index in named_calls(tokens)] == called.split()


LISTS = st.recursive(
    st.sampled_from(["()", "(1 l:i)", "(true ())", "(?x l:i ())"]),
    lambda inner: st.builds("(l:i {} {})".format, inner, inner),
    max_leaves=3,
)
TRIPLES = st.builds("{} {} {} .".format, LISTS, st.sampled_from(["l:p", "a", "l:p/(l:q|^l:r)", "?p"]), LISTS)


def _calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds(
        "{} {} {{ {} {} {}({}) }}".format,
        st.sampled_from(["", "!"]),
        st.sampled_from(["EXISTS", "NOT EXISTS"]),
        TRIPLES,
        TRIPLES,
        st.sampled_from(["FILTER", "FILTER c:integer", "FILTER <http://www.w3.org/2001/XMLSchema#string>"]),
        inner,
    )
    return st.one_of(
        st.builds("c:{}{}({})".format, st.sampled_from(["integer", "string"]), st.sampled_from(["", " "]), inner),
        st.builds("IF({}, 1 IN ({}, <l:i>), (c:decimal(2)))".format, inner, inner),
        # `<<` begins a triple term (SPARQL 1.2)
        st.builds("({}<{}&&1>0)".format, inner, inner.filter(lambda text: not text.startswith("<"))),
        groups,
    )


EXPRESSIONS = st.recursive(st.sampled_from(["?x", "1", "<l:i>", "true"]), _calls, max_leaves=4)


@settings(max_examples=examples(200), deadline=None)
@given(TRIPLES, EXPRESSIONS, TRIPLES, EXPRESSIONS, EXPRESSIONS)
def test_no_call_is_missed_and_no_list_is_taken_for_one(before, one, after, other, last):
    """Only casts are calls; everything else is not a function and would be refused if it were read as one."""
    prologue = "PREFIX l: <l:> PREFIX c: <http://www.w3.org/2001/XMLSchema#> "
    text = f"{prologue} SELECT ({last} AS ?r) {{ {before} BIND({one} AS ?v) {after} }} ORDER BY c:integer({other})"
    tokens = check_query(text, query_rules(max_steps=10**11))
    casts = [token.text for token in tokens[6:] if token.text.startswith(("c:", "<http"))]
    assert [tokens[index].text for index in named_calls(tokens)] == casts
