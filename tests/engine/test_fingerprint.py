"""Fingerprints and plan caching: a cached plan gives a text the same meaning as a new compilation, or its error."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from typing import Any

import pyoxigraph as ox
import pytest
from generated_constants import EX, PREFIX, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.queries.oxigraph_queries import QueryRules, check_query
from edge.engine.sparql import plan_cache
from edge.engine.sparql.parser import parse_query
from edge.engine.sparql.plan_cache import LONGEST_TEXT, Compiled, PlanCache
from edge.engine.sparql.terms_text import Names
from edge.engine.store.terms import canonical
from edge.protocol.errors import EdgeError, ParsingFailed
from edge.sparql.algebra import Parameter, Query
from edge.sparql.cursor import Parameters
from edge.sparql.fingerprint import fingerprint, places, prologue
from edge.sparql.tokens import read_prologue
from tests.support.examples import examples

RULES = QueryRules()


@pytest.fixture(scope="module", autouse=True, params=[1, 1_000_000], ids=["moulds", "no moulds"])
def often(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use text templates from the second text on, or never."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_cache, "_OFTEN", request.param)
        yield


class Compiler:
    """A compiler of queries to algebra that counts its calls."""

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def __call__(self, text: str, context: str | None, parameters: Parameters) -> Compiled[Query]:
        self.compiled.append(text)
        tokens = check_query(text, RULES)
        query = parse_query(text, tokens, RULES.settings.base_iri, parameters)
        prologue, _ = read_prologue(text, tokens, 0)
        return Compiled(query, list(parameters_of(query)), Names(prologue, RULES.settings.base_iri))


def parameters_of(value: object) -> Iterator[Parameter]:
    if isinstance(value, Parameter):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from parameters_of(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from parameters_of(getattr(value, field.name))


def filled(value: Any, constants: list[ox.NamedNode | ox.Literal]) -> Any:
    """Return an algebra with constants instead of parameters, and all terms in value form."""
    if isinstance(value, Parameter):
        return constants[value.index]
    if isinstance(value, ox.NamedNode | ox.Literal):
        return canonical(value)
    if isinstance(value, tuple):
        return tuple(filled(item, constants) for item in value)
    if is_dataclass(value):
        return type(value)(*(filled(getattr(value, field.name), constants) for field in fields(value)))
    return value


def meaning(cache: PlanCache[str, Query], text: str) -> Any:
    """Return the meaning of a text, or its error."""
    try:
        plan, constants = cache.get(text)
    except EdgeError as error:
        return type(error)
    return filled(plan, list(constants))


def alone(text: str) -> Any:
    try:
        return filled(Compiler()(text, None, {}).plan, [])
    except EdgeError as error:
        return type(error)


# Fingerprints


def test_a_skeleton_keeps_everything_but_constants():
    text = PREFIX + "SELECT ?x5 { _:b1 :p ?x5 ; <q> 'a' , \"b\"@en-GB , '''c'''^^e:t , 1.5e-3 . } LIMIT 5"
    skeleton, constants = fingerprint(text)
    assert constants[-6:] == ["<q>", "'a'", '"b"@en-GB', "'''c'''^^e:t", "1.5e-3", "5"]
    assert "?x5" in skeleton
    assert "".join(a + b for a, b in zip(skeleton.split("\0"), [*constants, ""], strict=True)) == text


@given(st.text(alphabet="<>\"'\\#:.-+^@ae1{}() \n\0é"))
def test_a_text_is_its_skeleton_and_its_constants(text):
    skeleton, constants = fingerprint(text)
    assert "".join(a + b for a, b in zip(skeleton.split("\0"), [*constants, ""], strict=True)) == text


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("PREFIX : <a:> SELECT * { :a :b 1 }", [":a", ":b", "1"]),
        ("BASE <a:> SELECT * { <a> <b> 'x'^^<c> }", ["<a>", "<b>", "'x'^^<c>"]),
        ("SELECT * { ?s :b -5 . ?s :c +5 }", [":b", "5", ":c", "5"]),
        ("SELECT * { ?s :b 5.?s :c 5. }", [":b", ":c", "5"]),
        ("SELECT * { ?s <a>5,:é;:a%41 1 }", ["1"]),
        ("SELECT * { FILTER(?s<5 && ?t>:a||?s=:b) }", ["5", ":b"]),
        ("SELECT * { 'x' @en-:x <p> 1 # :p 2\n }", ["'x'", "<p>", "1"]),
    ],
)
def test_only_independent_constants_are_parameters(text, free):
    assert [text[place.start : place.end] for place in places(text)] == free


# Plans


def test_texts_of_one_shape_are_compiled_once():
    compiler = Compiler()
    cache = PlanCache(compiler, 10)
    for number in range(5):
        text = f'{PREFIX}SELECT * {{ :a{number} <{EX}p> "{number}"^^xsd:integer , -{number}.5 }}'
        assert meaning(cache, text) == alone(text)
    assert len(compiler.compiled) == 1
    assert len(cache) == 1


def test_constants_that_the_parser_keeps_have_plans_of_their_own():
    compiler = Compiler()
    cache = PlanCache(compiler, 10)
    texts = [f"SELECT * {{ ?s <{EX}p{p}> ?o }} LIMIT {limit}" for limit in (1, 2) for p in range(3)]
    for text in texts:
        assert meaning(cache, text) == alone(text)
    assert len(cache) == 2
    assert len(compiler.compiled) == 4, "each first without knowing that the limit is kept"


def test_other_kinds_of_constants_have_plans_of_their_own():
    compiler = Compiler()
    cache = PlanCache(compiler, 10)
    for _ in range(2):
        for value in (f"<{EX}a>", "1", "'a'", ":a"):
            assert meaning(cache, f"{PREFIX}SELECT * {{ ?s ?p {value} }}") == alone(
                f"{PREFIX}SELECT * {{ ?s ?p {value} }}"
            )
    assert len(compiler.compiled) == 2


def test_a_constant_equal_in_all_texts_stays_one_constant():
    compiler = Compiler()
    cache = PlanCache(compiler, 10)
    for number in range(5):
        _, constants = cache.get(f"SELECT * {{ <a:{number}> <a:p> ?v . <a:{number}> <a:q> -1 , -1 , 1 }}")
        assert list(map(str, constants)) == [f"<a:{number}>", "<a:p>", "<a:q>", *map(str, map(ox.Literal, (-1, 1)))]
    assert len(cache) == 1
    for other in ("<a:s> <a:p> ?v . <a:t> <a:q> -1 , -1 , 1", "<a:s> <a:p> ?v . <a:s> <a:p> -1 , -1 , -1"):
        for _ in range(2):
            text = f"SELECT * {{ {other} }}"
            assert meaning(cache, text) == alone(text)


def test_accidentally_equal_constants_create_a_bounded_number_of_plans():
    compiler = Compiler()
    cache = PlanCache(compiler, 100_000)
    drawn = random.Random(1)
    for _ in range(500):
        values = " , ".join(str(drawn.randint(0, 1)) for _ in range(10))
        text = f"SELECT * {{ <a:s> <a:p> {values} }}"
        assert meaning(cache, text) == alone(text)
    assert len(cache) < 12


def test_a_context_has_plans_of_its_own():
    compiler = Compiler()
    cache = PlanCache(compiler, 10)
    for context in (None, "a", "b", None, "a"):
        cache.get("SELECT * { <a:s> <a:p> 1 }", context)
    assert len(compiler.compiled) == 3


def test_plans_are_evicted_when_there_are_too_many():
    compiler = Compiler()
    cache = PlanCache(compiler, 3)
    shapes = [f"SELECT ?v{number} {{ <a:s> <a:p> ?v{number} }}" for number in range(4)]
    for text in shapes[:3]:
        cache.get(text)
    cache.get(shapes[0])
    cache.get(shapes[3])
    assert len(cache) == 3
    del compiler.compiled[:]
    for text in (shapes[0], shapes[2], shapes[3]):
        cache.get(text)
    assert compiler.compiled == []
    cache.get(shapes[1])
    assert compiler.compiled == [shapes[1]]


def test_long_texts_are_not_cached():
    compiler = Compiler()
    cache = PlanCache(compiler, 3)
    text = f"SELECT * {{ ?s ?p '{'x' * LONGEST_TEXT}' }}"
    assert meaning(cache, text) == meaning(cache, text) == alone(text)
    assert len(cache) == 0


@pytest.mark.parametrize(
    "value",
    ["<http://[bad>", "<a{b>", "u:x", '"a\\qb"', '"x"@x', '"\\uD800"', '"\ud800"', "<a:\ud800>", '"x"^^u:t', ":-5"],
)
def test_an_invalid_constant_is_refused(value):
    cache = PlanCache(Compiler(), 10)
    for good in ("<a:b>", "1", "'x'"):
        cache.get(f"{PREFIX}SELECT * {{ ?s ?p {good} }}")
    with pytest.raises(ParsingFailed):
        cache.get(f"{PREFIX}SELECT * {{ ?s ?p {value} }}")


# Any text


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(min_value=0, max_value=2**63))
def test_a_shared_plan_gives_the_result_of_the_text_alone(seed):
    cache: PlanCache[str, Query] = PlanCache(Compiler(), 100)
    for text in texts(seed):
        assert meaning(cache, text) == alone(text), text


def test_random_texts_are_often_valid_and_share_plans():
    """Many of the texts are valid, and a cached plan serves many of them."""
    compiler = Compiler()
    cache: PlanCache[str, Query] = PlanCache(compiler, 10_000)
    drawn = [text for seed in range(100) for text in texts(seed)]
    legal = [text for text in drawn if isinstance(meaning(cache, text), Query)]
    compiled = len(compiler.compiled)
    for text in legal:
        meaning(cache, text)
    assert len(legal) > len(drawn) // 4
    assert len(compiler.compiled) == compiled, "what is legal has a plan"
    assert len(cache) < len(legal) * 0.8


def test_plans_are_created_and_evicted_on_several_threads():
    cache: PlanCache[str, Query] = PlanCache(Compiler(), 2)
    expected = {text: alone(text) for seed in range(12) for text in texts(seed)}

    def ask(order: int) -> list[str]:
        drawn = random.Random(order).choices(list(expected), k=200)
        return [text for text in drawn if meaning(cache, text) != expected[text]]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(4))) == [[], [], [], []]
    assert len(cache) == 2


def test_a_prologue_is_part_of_the_shape():
    compiler = Compiler()
    cache = PlanCache(compiler, 100)
    prologues = [f"PREFIX : <{EX}{number}/>\n" for number in range(12)]  # more than the cache holds
    prologues += [
        f"{prologues[0]}PREFIX e: <{EX}e>\n",
        f"prefix : <{EX}>",
        f"PREFIX : <{EX}a>#c\n",
        f"{prologues[0]}BASE <a:b>",
    ]
    for _ in range(2):
        for declared in prologues:
            for name in ("a", "b"):
                text = f"{declared}SELECT * {{ :{name} ?p <c> }}"
                assert meaning(cache, text) == alone(text)
    assert len(cache) == len(prologues)
    assert len(compiler.compiled) == len(prologues)


def test_declarations_at_the_beginning_are_a_prologue():
    assert prologue(PREFIX + "ASK {}") == PREFIX
    assert prologue("PREFIX a: <b:> PREFIX c:<d:>ASK {}") == "PREFIX a: <b:> "
    assert prologue("ASK {}") == prologue("#PREFIX a: <b:> ") == prologue("PREFIX a: <b c> ASK {}") == ""
