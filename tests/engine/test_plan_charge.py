"""The charge for the plan of a subscription: long lists take many times the memory of their texts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from edge import allocator
from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.requests import QueryRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.errors import TooManyRequests

COUNT = 50_000
EMPTY = "''"
LISTS = {
    "numbers": f"VALUES ?s {{ {' '.join(map(str, range(COUNT)))} }} ?s <urn:p> ?o",
    "the same number": f"VALUES ?s {{ {'7 ' * COUNT} }} ?s <urn:p> ?o",
    "IRIs": f"VALUES ?s {{ {''.join(f'<urn:{number}>' for number in range(COUNT))} }} ?s <urn:p> ?o",
    "strings": f"VALUES ?s {{ {COUNT * EMPTY} }} ?s <urn:p> ?o",
    "rows": f"VALUES (?s ?q) {{ {''.join(f'(1 {number})' for number in range(COUNT // 2))} }} ?s <urn:p> ?o",
    "IN": f"?s <urn:p> ?o FILTER(?o IN ({','.join(map(str, range(COUNT)))}))",
}


@pytest.fixture
def quota() -> ByteQuota:
    return ByteQuota(100_000_000, 200_000_000)


@pytest.fixture
def engine(quota) -> Iterator[Any]:
    engine = open_engine(None, EngineSettings(), quota=quota)
    yield engine
    engine.close()


def subscribe(engine: Any, sparql: str) -> str:
    spuid: str = engine.subscribe(QueryRequest(sparql, source="one"), lambda _: None).result(60).spuid
    return spuid


def resident() -> int:
    gc.collect()
    allocator.trim()
    return allocator.resident()


@pytest.mark.parametrize("pattern", LISTS.values(), ids=LISTS.keys())
def test_a_long_list_is_charged_its_memory(engine, quota, pattern):
    subscribe(engine, "SELECT ?o { VALUES ?s { 1 2 } ?s <urn:p> ?o }")
    before, counted = resident(), quota.total
    spuid = subscribe(engine, f"SELECT ?o {{ {pattern} }}")
    assert resident() - before < 2 * (quota.total - counted)
    engine.unsubscribe(spuid).result(60)
    assert quota.total == counted


def test_a_text_that_is_too_long_is_refused_before_compilation(engine, quota):
    with pytest.raises(TooManyRequests, match=r"limits\.max_client_bytes"):
        subscribe(engine, f"SELECT ?o {{ VALUES ?s {{ {'7 ' * 400_000} }} ?s <urn:p> ?o }}")
    assert not quota.total


def test_a_usual_query_counts_its_text(engine, quota):
    text = "SELECT ?o { ?s <urn:p> ?o ; <urn:q> ?r FILTER(?r > 3 && ?o IN (1, 2, 3)) }"
    subscribe(engine, text)
    assert quota.total < 4 * (1024 + 100 + len(text))


def test_long_prose_in_one_string_is_within_the_limit(engine):
    subscribe(engine, f"SELECT ?o {{ ?s <urn:p> ?o FILTER(?o != '{'word ' * 10_000}') }}")
