"""The graph store compared with a dictionary of graphs, for random requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from graph_store_client import Store, store_running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples

TRIPLES = [
    "<urn:s> <urn:p> <urn:o> .",
    '<urn:s> <urn:p> "x" .',
    '<urn:s> <urn:q> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .',
    '<urn:t> <urn:p> "x"@en .',
]
GRAPHS = st.sampled_from(["", "urn:g", "http://example.org/h#1"])
CONTENTS = st.frozensets(st.sampled_from(TRIPLES))
CONDITIONS = st.sampled_from(
    ["none", "none", "match any", "match current", "match old", "none match any", "none match"]
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["PUT", "PUT", "POST", "DELETE", "PATCH", "GET"]), GRAPHS, CONTENTS, CONDITIONS),
    min_size=1,
    max_size=12,
)


@dataclass
class Model:
    """Expected content and answers of the graph store."""

    graphs: dict[str, frozenset[str]] = field(default_factory=lambda: {"": frozenset()})
    tags: dict[str, tuple[frozenset[str], str]] = field(default_factory=dict)
    """The last content of each graph that was read, and its entity tag."""

    def refuses(self, graph: str, condition: str) -> bool:
        there, (old, tag) = self.graphs.get(graph), self.tags.get(graph, (None, ""))
        checks: dict[str, Callable[[], bool]] = {
            "none": lambda: False,
            "match any": lambda: there is None,
            "match current": lambda: there is None,
            "match old": lambda: there is None or not tag or there != old,
            "none match any": lambda: there is not None,
            "none match": lambda: there is not None and bool(tag) and there == old,
        }
        return checks[condition]()

    def apply(self, method: str, graph: str, content: frozenset[str]) -> int:
        """Change the model. Returns the expected status."""
        there = self.graphs.get(graph)
        if method == "DELETE":
            if there is None:
                return 404
            del self.graphs[graph]
            self.graphs.setdefault("", frozenset())
            return 204
        if method == "PATCH" and not content and there is None:
            return 204  # an update without triples creates nothing
        before = there or frozenset()
        self.graphs[graph] = content if method == "PUT" else before | content
        return 204 if there is not None else 201


@pytest.fixture(scope="module")
def store():
    with store_running() as store:
        yield store


def headers(model: Model, store: Store, graph: str, condition: str) -> dict[str, str]:
    old = model.tags.get(graph, (frozenset(), '"none"'))[1]
    values: dict[str, Callable[[], dict[str, str]]] = {
        "none": dict,
        "match any": lambda: {"If_Match": "*"},
        "match current": lambda: {"If_Match": store.send("GET", graph).headers.get("etag", '"none"')},
        "match old": lambda: {"If_Match": old},
        "none match any": lambda: {"If_None_Match": "*"},
        "none match": lambda: {"If_None_Match": old},
    }
    return values[condition]()


def check_get(model: Model, store: Store, graph: str) -> None:
    there, answer = model.graphs.get(graph), store.send("GET", graph, Accept="application/n-triples")
    assert answer.status_code == (404 if there is None else 200)
    if there is not None:
        assert frozenset(answer.text.splitlines()) == there
        # The tag of another format, so that changes are compared over all of them.
        model.tags[graph] = there, store.send("GET", graph, Accept="application/rdf+xml").headers["etag"]


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_random_requests_have_the_effect_on_a_dictionary_of_graphs(store: Any, steps):
    store.clear()
    model = Model()
    for method, graph, content, condition in steps:
        if method == "GET":
            check_get(model, store, graph)
            continue
        given_headers = headers(model, store, graph, condition)
        data = "\n".join(sorted(content))
        kind = "application/sparql-update" if method == "PATCH" else "text/turtle"
        body = f"INSERT DATA {{ {data} }}" if method == "PATCH" else data
        answer = store.send(method, graph, body, Content_Type=kind, **given_headers)
        expected = 412 if model.refuses(graph, condition) else model.apply(method, graph, content)
        assert answer.status_code == expected, (answer.text, method, graph, condition)
    for graph in ("", "urn:g", "http://example.org/h#1"):
        check_get(model, store, graph)
