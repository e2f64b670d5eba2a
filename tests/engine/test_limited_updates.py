"""Updates of clients that may read some graphs only: operators and Oxigraph see the same part of the graph."""

from __future__ import annotations

import random

import pytest
from engine_world import NOW, new_engine
from generated_patterns import GRAPH_IRIS, PREFIX
from generated_sparql import Updates
from oracle import EX, canonical

from edge.engine.engine import Engine
from edge.engine.operators.expression import UnsupportedConstruct
from edge.engine.requests import Dataset, UpdateRequest
from edge.engine.updates.modify_compiler import ModifyCompiler
from edge.protocol.access import ACTIONS, Access
from edge.protocol.errors import EdgeError, ParsingFailed

pytestmark = pytest.mark.integration  # long updates fork

STORIES = 150
STEPS = 12


def tell(seed: int) -> list[object]:
    """Run random updates. Return the state of the graph after each."""
    engine, author, updates = new_engine(), random.Random(seed), Updates(seed)
    states: list[object] = []
    for number in range(STEPS):
        operations = updates.update() if number else updates.seed()
        readable = frozenset(author.sample(("", *GRAPH_IRIS), author.randint(1, 3)))
        access = Access("client", ACTIONS, read=readable) if number else Access("client", ACTIONS)
        states.append(after(engine, PREFIX + " ; ".join(operations), access))
    return states


def after(engine: Engine, text: str, access: Access) -> object:
    try:
        engine.publish(engine.execute([engine.prepare(UpdateRequest(text, access=access))], NOW))
    except EdgeError as error:
        return type(error)
    return canonical(engine.graph.quads())


@pytest.mark.parametrize("first", range(0, STORIES, 10))
def test_operators_and_oxigraph_see_the_same_graphs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_operators = [tell(seed) for seed in range(first, first + 10)]

    def refuse(*_: object) -> None:
        raise UnsupportedConstruct("everything")

    monkeypatch.setattr(ModifyCompiler, "_native", refuse)
    assert by_operators == [tell(seed) for seed in range(first, first + 10)]


@pytest.mark.parametrize("where", ["?s ?p ?o", "?s ?p ?o FILTER(RAND() < 2)"])
@pytest.mark.parametrize("dataset", [Dataset(("",)), Dataset(("rel",)), Dataset((), ("rel",)), Dataset((EX + "g", ""))])
def test_a_graph_that_is_no_absolute_iri_is_refused(dataset: Dataset, where: str) -> None:
    engine = new_engine()
    text = f"INSERT {{ <urn:x> <urn:y> ?o }} WHERE {{ {where} }}"
    with pytest.raises(ParsingFailed, match="not an absolute IRI"):
        engine.execute([engine.prepare(UpdateRequest(text, dataset=dataset))], NOW)
