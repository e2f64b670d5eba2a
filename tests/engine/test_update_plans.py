"""Plans of updates, shared by texts with the same fingerprint: an earlier compilation does not affect an update."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pyoxigraph as ox
import pytest
from engine_client import EX, PREFIX, engine_with, ex, refused, triples
from engine_world import new_engine, no_loader, run
from generated_patterns import LITERALS, PREDICATES, RESOURCES, VARIABLES
from generated_sparql import Updates
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.engine import Engine
from edge.engine.requests import Dataset, UpdateRequest
from edge.engine.sparql import plan_cache
from edge.engine.updates.update_processor import UpdateProcessor
from edge.protocol.errors import EdgeError, ParsingFailed
from edge.protocol.syntax import tokenize
from tests.support.examples import examples


@pytest.fixture(scope="module", autouse=True, params=[1, 1_000_000], ids=["moulds", "no moulds"])
def often(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use text templates from the second text on, or never."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_cache, "_OFTEN", request.param)
        yield


seeds = st.integers(min_value=0, max_value=2**63)
CONSTANT = re.compile(r"""(?<!PREFIX )ex:\w+|<rel>|(?<![\w?])-?\d[\w.]*|"[^"]*"(?:@[\w-]+|\^\^\w+:\w+)?""")


def outcome(engine: Engine, text: str, **more: object) -> object:
    """Return the effect of an update, or its error. Blank nodes count as equal."""
    try:
        changes = run(engine, text, **more)
    except EdgeError as error:
        return type(error)
    return [sorted(re.sub(r"_:\w+", "_:b", str(one)) for one in some) for some in changes._key()]


def engine_and_update(seed: int) -> tuple[list[str], str]:
    """Return an initial state and an update."""
    updates = Updates(seed)
    return updates.seed(), " ; ".join(updates.update())


def new(data: list[str]) -> Engine:
    engine = new_engine()
    for text in data:
        run(engine, PREFIX + text)
    return engine


def forget_plans(engine: Engine) -> None:
    engine._updates = UpdateProcessor(engine.spus._world, no_loader)


def variant(source: random.Random, text: str) -> str:
    """Return a text with the same fingerprint, or nearly, and other constants."""

    def other(match: re.Match[str]) -> str:
        if source.random() < 0.5:
            return match[0]
        like = RESOURCES + PREDICATES if match[0][0] in "e<" else (*LITERALS, "1", "2", '"x"')
        return source.choice(like if source.random() < 0.95 else ("ex:a", '"x"', "5"))

    return CONSTANT.sub(other, text)


@settings(max_examples=examples(150), deadline=None)
@given(seeds)
def test_updates_with_a_shared_plan_have_the_same_effect(seed):
    source = random.Random(seed)
    data, text = engine_and_update(seed)
    shared, alone = new(data), new(data)
    for _ in range(5):
        each = PREFIX + text
        forget_plans(alone)
        assert outcome(shared, each) == outcome(alone, each), each
        text = variant(source, text)


def with_term(text: str, name: str, term: ox.NamedNode | ox.Literal) -> str:
    """Return a text with a term in place of a variable."""
    for token in reversed(tokenize(text)):
        if token.text == name:
            text = f"{text[: token.start]}{term}{text[token.end :]}"
    return text


@settings(max_examples=examples(150), deadline=None)
@given(seeds)
def test_a_forced_binding_is_the_term_in_place_of_the_variable(seed):
    source = random.Random(seed)
    data, _ = engine_and_update(seed)
    text = PREFIX + Updates(seed).modify()
    name = source.choice(VARIABLES)
    terms = [ex("a"), ex("b"), ex("p"), ox.Literal(1), ox.Literal("x"), ox.Literal("x", language="en")]
    bound, written = new(data), new(data)
    for term in source.sample(terms, 3):
        expected = outcome(written, with_term(text, name, term))
        if not isinstance(expected, list):  # the term is not permitted there
            break
        assert outcome(bound, text, bindings={name[1:]: term}) == expected, (text, term)


LAMP = """PREFIX : <http://example.org/>
DELETE { :lamp0 :dim ?d }
INSERT { :lamp0 :dim "0"^^<http://www.w3.org/2001/XMLSchema#integer> } WHERE { :lamp0 :dim ?d }"""


def plans_of(engine: Engine, *requests: UpdateRequest) -> int:
    """Return the number of plans that these updates share."""
    return len({id(engine.prepare(request).plan) for request in requests})


def test_texts_that_differ_in_constants_share_a_plan():
    engine = new_engine()
    texts = [LAMP.replace("lamp0", f"lamp{n}").replace('"0"', f'"{n}"') for n in range(5)]
    assert plans_of(engine, *map(UpdateRequest, texts)) == 1
    texts = [f"INSERT DATA {{ <{EX}s{n}> <{EX}p> {n}.5 ; <{EX}q> 'v{n}' }}" for n in range(5)]
    assert plans_of(engine, *map(UpdateRequest, texts)) == 1


def test_requests_of_several_operations_share_a_plan():
    engine = engine_with("ex:a ex:p 1 . ex:b ex:p 1")
    for name in ("a", "b"):
        text = f"{PREFIX} DELETE WHERE {{ ex:{name} ex:p 1 }} ; WITH ex:{name} INSERT {{ ex:{name} ex:q ?o }} "
        run(
            engine,
            text + f"WHERE {{ VALUES ?o {{ '{name}' }} }} ; INSERT DATA {{ GRAPH ex:{name} {{ ex:x ex:y -3 }} }}",
        )
    assert triples(engine) == {
        *('a q "a" a', 'b q "b" b'),
        *('x y "-3"^^integer a', 'x y "-3"^^integer b'),
    }


def test_constants_of_a_clause_that_the_mirror_evaluates_are_its_own():
    engine = engine_with("ex:a ex:p ex:b . ex:b ex:p ex:c")
    for name, hits in (("a", {"a", "b", "c"}), ("b", {"b", "c"})):
        changes = run(engine, f"{PREFIX} INSERT {{ ?o ex:from{name} ex:{name} }} WHERE {{ ex:{name} ex:p* ?o }}")
        assert {quad.subject for quad in changes.added} == set(map(ex, hits))
        assert {quad.object for quad in changes.added} == {ex(name)}


def test_bindings_of_one_kind_share_a_plan():
    engine = new_engine()
    text = "INSERT { ?s <a:p> ?v } WHERE { }"
    same = [UpdateRequest(text, bindings={"s": ex(f"s{n}"), "v": ox.Literal(n)}) for n in range(3)]
    assert plans_of(engine, *same) == 1
    assert plans_of(engine, *same, UpdateRequest(text, bindings={"s": ex("s"), "v": ex("v")})) == 2


def test_a_dataset_has_plans_of_its_own():
    engine = engine_with("GRAPH ex:g { ex:a ex:p 1 }")
    text = f"{PREFIX} INSERT {{ ?s ex:hit ?o }} WHERE {{ ?s ex:p ?o }}"
    assert not run(engine, text)
    assert run(engine, text, dataset=Dataset((EX + "g",), ())).sizes == (1, 0, 0, 0)
    assert not run(engine, text, dataset=Dataset((), (EX + "g",)))
    assert not run(engine, text)


@pytest.mark.parametrize(
    "value", ["<http://[bad>", "u:x", '"a\\qb"', '"x"@x', '"\ud800"', '"x"^^u:t', "<a b>", "<a{b>"]
)
def test_a_known_fingerprint_with_an_invalid_constant_is_refused(value):
    engine = engine_with("ex:a ex:p 1")
    for good in ("1", "ex:a", "'x'", "<rel>"):
        run(engine, f"{PREFIX} INSERT DATA {{ ex:a ex:p {good} }}")
    text = f"{PREFIX} INSERT DATA {{ ex:a ex:p {value} }}"
    assert refused(engine, text, ParsingFailed) == refused(new_engine(), text, ParsingFailed)


def test_a_new_identifier_for_each_solution():
    engine = engine_with("ex:a ex:p 1 , 2 , 3")
    for bind, distinct in (("?s ex:p ?o BIND(UUID() AS ?u)", 3), ("{ BIND(UUID() AS ?u) } ?s ex:p ?o", 1)):
        changes = run(engine, f"{PREFIX} INSERT {{ ?u ex:of ?o }} WHERE {{ {bind} }}")
        assert len({quad.subject for quad in changes.added}) == distinct
        assert len(changes.added) == 3
