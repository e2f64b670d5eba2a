"""The text of a PATCH with the name of its graph in each operation."""

from __future__ import annotations

import tracemalloc

import pytest

from edge.gates.http.graph_patch import limited_to
from edge.protocol.errors import TooLarge

LIMIT = 10_000


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ("CLEAR DEFAULT", "CLEAR SILENT GRAPH <urn:g>"),
        ("clear  silent default ;", "clear  silent GRAPH <urn:g> ;"),
        ("CLEAR # DEFAULT\nDEFAULT", "CLEAR # DEFAULT\nSILENT GRAPH <urn:g>"),
        ("DELETE { ?s ?p ?o } WHERE {}", "WITH <urn:g> DELETE { ?s ?p ?o } WHERE {}"),
        ("INSERT DATA { <urn:s> <urn:p> 1 }", "INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 1 } }"),
    ],
)
def test_each_operation_names_the_graph(update, expected):
    assert limited_to("urn:g", update, LIMIT) == expected
    assert limited_to("", update, LIMIT) == update


@pytest.mark.parametrize("graph", ["urn:g", "urn:é"])
@pytest.mark.parametrize("operation", ["INSERT", "CLEAR DEFAULT", "LOAD <urn:d>", "DELETE DATA { }", "DELETE WHERE {}"])
def test_the_limit_is_for_the_bytes_of_the_text(graph, operation):
    update = f"# é\n{';'.join([operation] * 50)}"
    size = len(limited_to(graph, update, LIMIT).encode())
    assert len(limited_to(graph, update, size).encode()) == size
    with pytest.raises(TooLarge):
        limited_to(graph, update, size - 1)


def test_a_long_name_and_many_operations_do_not_take_the_memory_of_their_product():
    graph, update = f"urn:{'x' * 100_000}", "INSERT;" * 500
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            limited_to(graph, update, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
