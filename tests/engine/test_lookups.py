"""Look-ups in the WHERE clause of an update: the same effect as a search by the operators."""

from __future__ import annotations

import random

import pyoxigraph as ox
import pytest
from engine_client import PREFIX, engine_with, ex
from engine_world import NOW, new_engine, run
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.engine import Engine
from edge.engine.operators.lookups import Lookups
from edge.engine.requests import UpdateRequest
from edge.engine.store.graph import LiveGraph
from edge.engine.updates import straight_line
from edge.engine.updates.update_attempt import LongUpdate, UpdateAttempt
from edge.engine.updates.update_plan import Modify, OperatorWhere
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError
from tests.support.examples import examples

seeds = st.integers(min_value=0, max_value=2**63)
THINGS = ("ex:a", "ex:b", "ex:c")
PREDICATES = ("ex:p", "ex:q", "ex:r")
VARIABLES = ("?x", "?y", "?z")
ACCESSES = (
    ANYBODY,
    ANYBODY,
    Access(client="c", write=frozenset({"http://example.org/g"})),
    Access(client="c", read=frozenset({""})),
    Access(client="c", read=frozenset({"", "http://example.org/g"})),
    Access(client="c", read=frozenset({"http://example.org/g"})),
)


class Author:
    """Author of updates whose patterns are often look-ups."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def seed(self) -> str:
        """Return data in which most subjects have one object for each predicate."""
        lines = [
            f"{subject} {predicate} {self.pick((*THINGS, '1', '2'))}"
            for subject in THINGS
            for predicate in PREDICATES
            for _ in range(self.pick((0, 1, 1, 1, 2)))
        ]
        data = " . ".join(lines)
        return f"{PREFIX} INSERT DATA {{ {data} GRAPH ex:g {{ {' . '.join(lines[::2])} }} }}"

    def pick(self, values: tuple) -> object:  # type: ignore[type-arg]
        return self.random.choice(values)

    def triple(self) -> str:
        predicate = self.pick((*PREDICATES, *PREDICATES, "?y"))
        return f"{self.pick((*THINGS, *VARIABLES))} {predicate} {self.pick((*THINGS, *VARIABLES, *VARIABLES, '1'))}"

    def quads(self) -> str:
        triples = " . ".join(self.triple() for _ in range(self.random.randint(1, 2)))
        return f"GRAPH {self.pick(('ex:g', 'ex:h', '?z'))} {{ {triples} }}" if self.random.random() < 0.2 else triples

    def inserted(self, deleted: str) -> str:
        """Return the quads of INSERT. Often they replace the objects of those of DELETE."""
        if self.random.random() < 0.5 and "{" not in deleted:
            triples = (triple.rsplit(" ", 1)[0] for triple in deleted.split(" . "))
            replaced = [f"{triple} {self.pick((*THINGS, *VARIABLES, '7'))}" for triple in triples]
            return " . ".join([*replaced, self.triple()])
        return self.quads()

    def update(self) -> str:
        optional = "".join(f" OPTIONAL {{ {self.quads()} }}" for _ in range(self.random.randint(0, 2)))
        where = f"{self.quads()}{optional}" if self.random.random() < 0.9 else optional
        using = self.pick(("", "", "", "WITH ex:g "))
        deleted = self.quads()
        return f"{PREFIX} {using}DELETE {{ {deleted} }} INSERT {{ {self.inserted(deleted)} }} WHERE {{ {where} }}"

    def bindings(self) -> dict[str, object]:
        names = self.random.sample(VARIABLES, self.random.randint(0, 2))
        return {name[1:]: ex(str(self.pick(("a", "b", "p", "new")))) for name in names}


def searching(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lookups, "of", classmethod(lambda *_: None))
    patch.setattr(straight_line, "OFTEN", 1_000_000)


@pytest.fixture(scope="module", autouse=True)
def generate_at_once():
    """Generate straight-line code at the first run of an operation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(straight_line, "OFTEN", 1)
        yield


def outcome(engine: Engine, text: str, **more: object) -> object:
    try:
        changes = run(engine, text, **more)
    except EdgeError as error:
        return type(error), error.description
    return set(changes.added), set(changes.removed)


@settings(max_examples=examples(300), deadline=None)
@given(seeds)
def test_look_ups_have_the_effect_of_a_search(seed):
    author = Author(seed)
    data = author.seed()
    found, searched = new_engine(), new_engine()
    for engine in (found, searched):
        run(engine, data)
    for _ in range(4):
        text, more = author.update(), {"bindings": author.bindings(), "access": author.pick(ACCESSES)}
        with pytest.MonkeyPatch.context() as patch:
            searching(patch)
            expected = outcome(searched, text, **more)
        assert outcome(found, text, **more) == expected, (text, more)
    assert_consistent(found.graph)


def assert_consistent(graph: LiveGraph) -> None:
    """Assert that the indexes and the reference counts equal those of a new graph with the same quads."""
    other = LiveGraph()
    for name in graph.named_graphs():
        other.create(other.intern_graph(name))
    other.add_all(other.intern_quads(graph.quads()))
    for name, index in graph.graphs.items():
        copy = other.graphs[other.intern_graph(graph.decode_graph(name))]
        assert (index.size, len(index.spo), len(index.pos)) == (copy.size, len(copy.spo), len(copy.pos))
        assert sorted(index._predicates.values()) == sorted(copy._predicates.values())
    for dictionary in (graph.dictionary, other.dictionary):
        dictionary.sweep()
    counts = [
        {term: dictionary._references[id_] for id_, term in enumerate(dictionary.terms) if type(term) is ox.Literal}
        for dictionary in (graph.dictionary, other.dictionary)
    ]
    assert counts[0] == counts[1]


@settings(max_examples=examples(100), deadline=None)
@given(seeds)
def test_an_update_by_look_ups_can_be_undone(seed):
    author = Author(seed)
    engine = new_engine()
    run(engine, author.seed())
    before = set(engine.graph.quads())
    try:
        executed = engine.execute([engine.prepare(UpdateRequest(author.update()))], NOW)
    except EdgeError:
        return
    engine.undo(executed)
    assert set(engine.graph.quads()) == before
    assert_consistent(engine.graph)


def where(engine: Engine, text: str) -> OperatorWhere:
    (operation,) = engine.prepare(UpdateRequest(PREFIX + text)).plan.operations
    assert isinstance(operation, Modify)
    assert isinstance(operation.where, OperatorWhere)
    return operation.where


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("ex:a ex:p ?x", True),
        ("ex:a ex:p ?x . ?x ex:q ?y . ?z ex:r ?y", True),
        ("ex:a ex:p 1 OPTIONAL { ex:a ex:q ?x . ?x ex:q ?y }", True),
        ("", True),
        ("?x ex:p ?y", False),
        ("ex:a ?p ex:b", False),
        ("?x ex:p ?x", False),
        ("GRAPH ?x { ex:a ex:p 1 }", False),
        ("OPTIONAL { ex:a ex:p ?x } OPTIONAL { ?x ex:q ?y }", False),
        ("ex:a ex:p ?x FILTER(?x > 1)", False),
    ],
)
def test_patterns_that_are_look_ups(pattern, expected):
    text = f"INSERT {{ ex:a ex:new 1 }} WHERE {{ {pattern} }}"
    assert (where(new_engine(), text).lookups is not None) == expected


def test_several_matches_are_searched():
    engine = engine_with("ex:a ex:p ex:b , ex:c . ex:b ex:q 1 . ex:c ex:q 2")
    changes = run(engine, f"{PREFIX} DELETE {{ ?x ex:q ?y }} WHERE {{ ex:a ex:p ?x . ?x ex:q ?y }}")
    assert len(changes.removed) == 2


def test_look_ups_take_steps():
    engine = new_engine()
    run(engine, f"{PREFIX} INSERT DATA {{ ex:a ex:p 1 }}")
    pattern = " ".join(f"OPTIONAL {{ ex:a ex:p ?x{number} }}" for number in range(6))
    text = f"{PREFIX} DELETE {{ ex:a ex:p 1 }} WHERE {{ {pattern} }}"
    prepared = [engine.prepare(UpdateRequest(text))]
    engine.graph.budget.most = 5
    with pytest.raises(LongUpdate):
        engine.execute(prepared, NOW, UpdateAttempt())
    with pytest.raises(EdgeError, match="max_steps"):
        engine.execute(prepared, NOW)


CODE = """DELETE { ex:a ex:p ?old . ?x ex:q ?y } INSERT { ex:a ex:p 5 . ?x ex:q 6 . ex:a ex:r ?x }
WHERE { ex:a ex:to ?x . OPTIONAL { ex:a ex:p ?old } OPTIONAL { ?x ex:q ?y . ?y ex:r ?z } }"""


def test_an_operation_gets_straight_line_code_when_it_runs_often(monkeypatch):
    monkeypatch.setattr(straight_line, "OFTEN", 3)
    engine = engine_with("ex:a ex:to ex:b ; ex:p 1 . ex:b ex:q ex:c . ex:c ex:r 2")
    (operation,) = engine.prepare(UpdateRequest(PREFIX + CODE)).plan.operations
    compiled = []
    monkeypatch.setattr(straight_line._Code, "compile", lambda code: compiled.append(code) or (lambda *_: None))
    for _ in range(5):
        run(engine, PREFIX + CODE)
    assert len(compiled) == 1
    assert operation.code.text.startswith("def modify(")


def test_two_replacements_of_one_predicate_are_not_made_one_after_the_other():
    """The second one would delete what the first one has inserted."""
    engine = engine_with("ex:a ex:p 1 . ex:a ex:q 2")
    text = """DELETE { ex:a ex:p ?x . ex:a ex:q ?y } INSERT { ex:a ex:p ?y . ex:a ex:q ?x }
    WHERE { ex:a ex:p ?x . ex:a ex:q ?y }"""
    run(engine, PREFIX + text)
    same = text.replace("ex:q", "ex:p")
    changes = run(engine, PREFIX + same)
    assert not changes.added
    assert not changes.removed
    assert_consistent(engine.graph)


@pytest.mark.parametrize("text", ["", "?x ex:q 1", "OPTIONAL { ex:a ex:q ?x } OPTIONAL { ex:a ex:r ?y }"])
def test_straight_line_code_is_for_all_look_ups(text):
    (operation,) = (
        new_engine().prepare(UpdateRequest(f"{PREFIX} INSERT {{ ex:a ex:p 1 }} WHERE {{ {text} }}")).plan.operations
    )
    assert operation.code is not None


@pytest.mark.parametrize(
    "text",
    ["INSERT { ex:a ex:p [] } WHERE { ex:a ex:q 1 }", "INSERT { GRAPH ?x { ex:a ex:p 1 } } WHERE { ex:a ex:q ?x }"],
)
def test_operations_without_straight_line_code(text):
    (operation,) = new_engine().prepare(UpdateRequest(f"{PREFIX} {text}")).plan.operations
    assert operation.code is None


@pytest.mark.parametrize("where", ["", "ex:a ex:p 1", "ex:a ex:p ?x . ex:a ex:q 2", "ex:a ex:p 7"])
def test_straight_line_code_takes_the_steps_of_the_interpreter(where, monkeypatch):
    taken = []
    for often in (1, 1_000_000):
        monkeypatch.setattr(straight_line, "OFTEN", often)
        engine = engine_with("ex:a ex:p 1 ; ex:q 2")
        update = UpdateRequest(f"{PREFIX} DELETE {{ ex:a ex:p 1 }} INSERT {{ ex:a ex:p 3 }} WHERE {{ {where} }}")
        attempt = UpdateAttempt()
        engine.execute([engine.prepare(update)], NOW, attempt)
        taken.append(attempt.steps)
    assert taken[0] == taken[1]
