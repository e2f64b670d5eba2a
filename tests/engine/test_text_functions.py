"""Growing strings: no request creates or searches one for longer than an evaluation may take."""

from __future__ import annotations

from collections.abc import ValuesView

import pyoxigraph as ox
import pytest
from engine_client import PREFIX, Client, refused, triples, update
from engine_world import NOW, new_engine

from edge.engine.engine import Engine
from edge.engine.operators.text_search import Search
from edge.engine.queries.cost_estimate import is_small, outline
from edge.engine.requests import STORE_DATASET, SubscribeFailed, UpdateRequest
from edge.engine.store.lru_cache import bounded_cache
from edge.engine.store.terms import Dictionary
from edge.protocol.errors import ResultTooLarge
from edge.protocol.syntax import tokenize
from tests.support.settings import query_rules

LENGTH = 10_000
TENFOLD = ", ".join(["?t{0}"] * 10)
CHAIN = " ".join(f"BIND(CONCAT({TENFOLD.format(n)}) AS ?t{n + 1})" for n in range(9))

TOO_LONG = {
    "CONCAT": CHAIN,
    "REPLACE": "BIND(REPLACE(?t0, 'a', ?t0) AS ?x)",
    "REPLACE of nothing": "BIND(REPLACE(?t0, '', ?t0) AS ?x)",
    "REPLACE by groups": f"BIND(REPLACE(?t0, '.*', '{'$0' * 2000}') AS ?x)",
    "ENCODE_FOR_URI": "BIND(ENCODE_FOR_URI(CONCAT(?t0, ?t0, 'é', ?t0, ?t0)) AS ?x)",
    "GROUP_CONCAT": "{ SELECT (GROUP_CONCAT(?t; SEPARATOR='') AS ?x) { ex:big ex:text ?t . ?s ex:is ?n } }",
}
TOO_MUCH = {
    "many texts": "?s ex:is ?n . ?r ex:is ?m FILTER(CONCAT(?t0, STR(?n), STR(?m)) = '')",
    "many texts in a language": "?s ex:is ?n . ?r ex:is ?m FILTER(STRLANG(CONCAT(STR(?n), ?t0, STR(?m)), 'en') = '')",
    "texts that are only read": "?s ex:is ?n . ?r ex:is ?m . ?q ex:is ?l FILTER(STRLEN(?t0) = ?n + ?m + ?l)",
    "a pattern of many states": "FILTER(REGEX(?t0, '(a{1,100}){1,50}b'))",
    "with blanks in it": "FILTER(REGEX(?t0, '(a{1,100}) {1,50} b', 'x'))",
    "with a comment in it": "FILTER(REGEX(?t0, '(a{1,100}) # [\\n {1,50} b', 'x'))",
    "with blanks in it for a while": "FILTER(REGEX(?t0, '(?-x:#)(a{1,100}){1,50}b', 'x'))",
    "with flags of its own": "FILTER(REGEX(?t0, '(?ix)(a{1,100}) {1,50} b'))",
    "one that is computed": "FILTER(REGEX(?t0, CONCAT('(a{1,100})', '{1,50}b')))",
    "one that looks far ahead": "BIND(REPLACE(?t0, '.*b|a', 'x') AS ?x)",
}


@pytest.fixture
def engine() -> Engine:
    engine = new_engine(query_rules(max_query_memory=24 * 100_000, max_steps=200_000))
    numbers = " ".join(f"ex:s{number} ex:is {number} ." for number in range(40))
    update(engine, f"INSERT DATA {{ ex:big ex:text '{'a' * LENGTH}' . {numbers} }}")
    return engine


@pytest.mark.parametrize("part", TOO_LONG.values(), ids=TOO_LONG)
def test_a_text_that_would_be_too_long_is_not_made(engine: Engine, part: str) -> None:
    where = f"ex:big ex:text ?t0 {part}"
    text = f"{PREFIX} INSERT {{ ex:x ex:y ?n }} WHERE {{ {where} }}"
    assert "engine.max_query_memory" in refused(engine, text, ResultTooLarge)
    with pytest.raises(ResultTooLarge, match=r"engine\.max_query_memory"):
        Client(engine, f"SELECT * {{ {where} }}")
    assert engine.spus.spus == 0
    update(engine, "INSERT { ex:x ex:y ?n } WHERE { ex:big ex:text ?t BIND(STRLEN(CONCAT(?t, ?t)) AS ?n) }")
    assert any(triple.startswith(f'x y "{2 * LENGTH}"') for triple in triples(engine))


@pytest.mark.parametrize("part", TOO_MUCH.values(), ids=TOO_MUCH)
def test_operations_on_texts_cost_steps(engine: Engine, part: str) -> None:
    where = f"ex:big ex:text ?t0 . {part}"
    text = f"{PREFIX} INSERT {{ ex:x ex:y ?n }} WHERE {{ {where} }}"
    assert "engine.max_steps" in refused(engine, text, ResultTooLarge)
    with pytest.raises(ResultTooLarge, match=r"engine\.max_steps"):
        Client(engine, f"SELECT * {{ {where} }}")


@pytest.mark.parametrize(
    "condition",
    [
        "REGEX(?t0, '^(a+)+$')",
        "REGEX(?t0, 'A{3}', 'i')",
        "REPLACE(?t0, 'a+', 'x') = 'x'",
        "STRLEN(REPLACE(?t0, '[^b]', 'xy')) = 20000",
        "STRLEN(ENCODE_FOR_URI(CONCAT(?t0, 'é'))) = 10006",
        "CONTAINS(UCASE(?t0), 'AAA')",
    ],
)
def test_usual_operations_on_a_long_text_are_allowed(engine: Engine, condition: str) -> None:
    assert len(Client(engine, f"SELECT ?s {{ ?s ex:text ?t0 FILTER({condition}) }}").last.delta.added) == 1


def test_a_subscription_with_a_text_that_grows_too_long_ends_alone(engine: Engine) -> None:
    growing = Client(engine, "SELECT (GROUP_CONCAT(?t; SEPARATOR='') AS ?x) { ?s ex:part ?t }")
    counting = Client(engine, "SELECT (COUNT(?t) AS ?n) { ?s ex:part ?t }")
    for number in range(12):
        update(engine, f"INSERT {{ ex:p{number} ex:part ?t }} WHERE {{ ex:big ex:text ?t }}")
    failure = growing.items[-1]
    assert isinstance(failure, SubscribeFailed)
    assert "engine.max_query_memory" in failure.description
    assert len(growing.items) == 12  # the first, ten that fit, and the end
    assert len(counting.items) == 13
    assert engine.spus.subscriptions == 1


def test_a_text_that_grew_too_long_and_is_taken_back_leaves_no_trace(engine: Engine) -> None:
    """The update that made the string too long is rolled back, as after a disk error."""
    client = Client(engine, "SELECT (STRLEN(GROUP_CONCAT(?t; SEPARATOR='')) AS ?n) { ?s ex:part ?t }")
    update(engine, "INSERT DATA { ex:a ex:part 'abc' }")
    client.items.clear()
    text = "INSERT { ?s ex:part ?t } WHERE { ex:big ex:text ?t . ?s ex:is ?n }"
    executed = engine.execute([engine.prepare(UpdateRequest(PREFIX + text))], NOW)
    engine.undo(executed)
    update(engine, "INSERT DATA { ex:b ex:part 'de' }")
    assert client.news() == ([("5",)], [("3",)])


@pytest.mark.parametrize("tail", ["", "LIMIT 1000"], ids=["delta rules", "re-evaluated"])
def test_a_result_that_holds_a_long_text_often_is_refused(tail: str) -> None:
    engine = new_engine(query_rules(max_query_memory=1_000_000))
    numbers = " ".join(f"ex:s{number} ex:is {number} ." for number in range(40))
    update(engine, f"INSERT DATA {{ ex:big ex:text '{'a' * LENGTH}' . {numbers} }}")
    with pytest.raises(ResultTooLarge, match=r"engine\.max_query_memory"):
        Client(engine, f"SELECT ?t ?n {{ ex:big ex:text ?t . ?s ex:is ?n }} {tail}")
    client = Client(engine, f"SELECT ?t ?n {{ ex:big ex:text ?t . ?s ex:is ?n FILTER(?n < 20) }} {tail}")
    assert len(client.last.delta.added) == 20
    update(engine, "INSERT { ?s ex:is ?m } WHERE { ?s ex:is ?n BIND(?n / 100 AS ?m) }")
    assert isinstance(client.items[-1], SubscribeFailed)


@pytest.mark.parametrize(
    "text",
    ["INSERT { ?s ex:text ?t } WHERE { ex:big ex:text ?t . ?s ex:is ?n }", "ADD ex:g TO ex:h"],
    ids=["copies", "a graph"],
)
def test_a_short_update_cannot_fill_the_disk(text: str) -> None:
    engine = new_engine(query_rules(max_query_memory=1_000_000))
    numbers = " ".join(f"ex:s{number} ex:is {number} ." for number in range(40))
    update(engine, f"INSERT DATA {{ ex:big ex:text '{'a' * LENGTH}' . {numbers} }}")
    update(engine, "INSERT { GRAPH ex:g { ?s ex:text ?t } } WHERE { ex:big ex:text ?t . ?s ex:is ?n FILTER(?n < 20) }")
    update(engine, "INSERT { GRAPH ex:g { ?s ex:text ?t } } WHERE { ex:big ex:text ?t . ?s ex:is ?n FILTER(?n >= 20) }")
    assert "The inserted text" in refused(engine, PREFIX + text, ResultTooLarge)
    update(engine, "CLEAR ALL")
    assert triples(engine) == set()


# Queries


def small(engine: Engine, text: str) -> bool:
    return is_small(outline(text, tokenize(text), "urn:base:"), engine.graph, STORE_DATASET)


@pytest.mark.parametrize(
    "expression",
    [
        "CONCAT(CONCAT(?t, ?t, ?t), CONCAT(?t, ?t, ?t), CONCAT(?t, ?t, ?t))",
        "REPLACE(?t, 'a', ?t)",
        f"REPLACE(?t, 'a', '{'b' * 100}')",
        "REPLACE(?t, '.*b|a', 'x')",
        "REGEX(?t, '(a{1,100}){1,50}b')",
        "REGEX(?t, CONCAT('(a{1,100})', '{1,50}b'))",
        "ENCODE_FOR_URI(ENCODE_FOR_URI(ENCODE_FOR_URI(?t)))",
    ],
)
def test_a_query_is_small_while_all_texts_are_short(expression: str) -> None:
    engine = new_engine()
    text = f"SELECT ({expression} AS ?x) {{ <http://example.org/big> <http://example.org/text> ?t }}"
    update(engine, "INSERT DATA { ex:big ex:text 'aaa' }")
    assert small(engine, text)
    long = "a" * 1_000_000
    update(engine, f"INSERT DATA {{ ex:other ex:comment '{long}', '{long}b' }}")
    assert not small(engine, text)
    update(engine, f"DELETE DATA {{ ex:other ex:comment '{long}b' }}")
    assert not small(engine, text)
    update(engine, "DELETE { ex:other ex:comment ?c } WHERE { ex:other ex:comment ?c }")
    assert small(engine, text)


def test_a_query_that_touches_no_text_is_small_for_all_stored_data() -> None:
    engine = new_engine()
    numbers = " ".join(f"ex:s{number} ex:is {number} ." for number in range(1000))
    update(engine, f"INSERT DATA {{ ex:big ex:text '{'a' * 1_000_000}' . {numbers} }}")
    assert small(engine, "SELECT * { ?s ?p ?o }")
    assert small(engine, "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")


# Components


@pytest.mark.parametrize(
    "term",
    [
        ox.Literal("x" * 5000),
        ox.Literal("x" * 5000, language="en"),
        ox.NamedNode("urn:" + "x" * 4996),
        ox.Literal("", datatype=ox.NamedNode("urn:" + "x" * 4996)),
        ox.Literal("x" * 1000, language="en-x" + "-abc" * 999),
    ],
    ids=["text", "text with a language", "IRI", "datatype", "language"],
)
def test_the_dictionary_knows_its_long_terms(term: ox.Literal | ox.NamedNode) -> None:
    dictionary = Dictionary()
    short = dictionary.longest
    term_id = dictionary.intern(term)
    assert (dictionary.long, dictionary.longest) == ({term_id: 5000}, 5000)
    dictionary.retain(term_id)
    dictionary.sweep()
    assert dictionary.longest == 5000
    dictionary.release(term_id)
    dictionary.sweep()
    assert (dictionary.long, dictionary.longest) == ({}, short)


class Lengths(dict[int, int]):
    """Counts how often all lengths are read."""

    reads = 0

    def values(self) -> ValuesView[int]:
        self.reads += 1
        return super().values()


def test_a_sweep_reads_the_lengths_once_however_many_terms_of_the_longest_length_it_forgets() -> None:
    dictionary = Dictionary()
    dictionary.long = lengths = Lengths()
    dictionary.retain(dictionary.intern(ox.Literal("x" * 400)))
    dictionary.sweep()
    for number in range(1_000):
        dictionary.intern(ox.Literal(f"{number:05}" + "x" * 495))
    dictionary.sweep(300)
    assert (len(lengths), dictionary.longest, lengths.reads) == (701, 500, 1)
    dictionary.sweep()
    assert (len(lengths), dictionary.longest, lengths.reads) == (1, 400, 2)
    dictionary.sweep()
    assert (dictionary.longest, lengths.reads) == (400, 2)


def test_the_cache_of_long_texts_is_bounded() -> None:
    calls: list[str] = []

    @bounded_cache(1000, len)
    def double(text: str) -> str:
        calls.append(text[:3])
        return text * 2

    for number in range(10):
        assert double(f"{number:03}") == double(f"{number:03}")
    assert len(calls) == 10
    for number in range(10, 50):
        double(f"{number:03}" * 1_000_000)
    assert double.cache_info().currsize <= 6
    assert double("000") == "000000"
    assert calls.count("000") == 2


@pytest.mark.parametrize(
    ("simple", "harder"),
    [
        ("a{2}", "a{200}"),
        ("(a{1,9}){1,9}", "(a{1,99}){1,9}"),
        ("(a{1,9}){1,9}", "(a{1,9}){1,99}"),
        ("[ab]{5}", r"\w{5}"),
        ("[ab]{5}", r"[\w]{5}"),
        ("abc", "[a]b{10}[c]"),
        (r"a\{100}", "a{100}"),
        (r"\(a\){100", "(aa){100}"),
        ("a{2}", "a{ 200 }"),
        ("(aa){20}", "((aa){2}){20}"),
    ],
)
def test_repetitions_and_classes_count(simple: str, harder: str) -> None:
    assert Search(simple, "", all_=False).steps(1000) < Search(harder, "", all_=False).steps(1000)


@pytest.mark.parametrize("pattern", ["a+", r"\s+", "[^a-z]+", "abc", "a{3,5}"])
def test_replacing_a_pattern_with_bounded_lookahead_is_linear(pattern: str) -> None:
    search = Search(pattern, "", all_=True)
    assert search.steps(100_000) < 11 * search.steps(10_000)


@pytest.mark.parametrize("pattern", [".*b|a", "(a+b)?a", "a{2,}b|a"])
def test_replacing_a_pattern_with_unbounded_lookahead_is_not_linear(pattern: str) -> None:
    search = Search(pattern, "", all_=True)
    assert search.steps(100_000) > 50 * search.steps(10_000)


@pytest.mark.parametrize(
    ("verbose", "plain"),
    [
        ("^ Kit chen $", "^Kitchen$"),
        ("a { 2, 3 } # twice [ or (more\n b", "a{2,3}b"),
        ("[ a-z \\# ] + \\ x", r"[a-z\#]+\ x"),
        ("( a{1,100} ) {1,50}", "(a{1,100}){1,50}"),
        ("a # and no line after it", "a"),
        ("[a #]\n b] c", "[ab]c"),
        ("(?ix) a b", "(?ix)ab"),
    ],
)
def test_blanks_and_comments_cost_nothing_to_search(verbose: str, plain: str) -> None:
    for all_ in (False, True):
        given, same = (
            Search(pattern, flags, all_=all_).steps(1000) for pattern, flags in ((verbose, "x"), (plain, ""))
        )
        assert given - same == len(verbose) - len(plain)


@pytest.mark.parametrize("verbose", ["(?-x: #)(a{1,100}){1,50}", "( ?i-x:#) (a{1,100}){1,50}"])
def test_a_pattern_that_switches_blanks_off_is_not_read(verbose: str) -> None:
    assert Search(verbose, "x", all_=False).steps(1000) > 1_000_000


def test_a_subscription_searches_many_rows_with_the_flag_x() -> None:
    engine = new_engine()
    client = Client(engine, "SELECT ?s { ?s ex:name ?n FILTER(REGEX(?n, '^ lamp (1|2) 0 # of the house', 'x')) }")
    update(
        engine, "INSERT DATA { " + " ".join(f"ex:s{number} ex:name 'lamp{number}' ." for number in range(1000)) + "}"
    )
    added, removed = client.items[-1].delta.added, client.items[-1].delta.removed
    assert (len(client.items), len(added), removed) == (2, 22, ())
