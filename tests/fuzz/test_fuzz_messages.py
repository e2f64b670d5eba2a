"""Requests of the fuzzer do not change the data of other clients.

Many clients do not wait for their answers, and delayed updates run later. So such a request may run while another
client checks its own data.
"""

from __future__ import annotations

from contextlib import suppress

import pyoxigraph as ox
import pytest
from hypothesis import given, settings

from tests.fuzz.concurrent_clients import QUERY, UPDATE
from tests.fuzz.messages import SPARQL, TEXTS
from tests.support.examples import examples


def spares_the_neighbour(text: str) -> bool:
    """Return whether the data of the other client survives an update. An invalid text changes nothing."""
    store = ox.Store()
    store.update(UPDATE.format("ws", 1))
    store.update("INSERT DATA { <urn:s> <urn:p> 'o' . GRAPH <urn:g> { <urn:s> <urn:p> 1 } }")
    with suppress(SyntaxError, OSError, RuntimeError, ValueError):
        store.update(text)
    found = store.query(QUERY % "ws")
    assert isinstance(found, ox.QuerySolutions)
    return [row["n"].value for row in found] == ["1"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_request_and_its_parts_do_not_affect_other_clients(text):
    words = text.split()
    for first in range(len(words)):
        for last in range(first, min(first + 3, len(words))):
            assert spares_the_neighbour(" ".join(words[:first] + words[last:]))


@settings(max_examples=examples(300), deadline=None)
@given(SPARQL)
def test_no_request_affects_other_clients(text):
    assert spares_the_neighbour(text.encode("utf-8", "replace").decode())
