"""Whatever a client sends, both gates answer with flat errors and live."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.protocol.errors import EdgeError
from edge.protocol.messages import SubscribeMessage, UnsubscribeMessage, UpdateMessage, parse_message

NAMES = st.sampled_from(
    ["subscribe", "unsubscribe", "sparql", "alias", "spuid", "timeout", "authorization", "default-graph-uri", "x"]
)
SPARQL = st.sampled_from(
    ["ASK {}", "SELECT * { ?s ?p ?o }", "SELECT", "CLEAR ALL", "\ud800", "SELECT * { ?s ?p ?o } LIMIT 1"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | SPARQL
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=12
)
MESSAGES = (
    JSON.map(json.dumps)
    | st.fixed_dictionaries({"subscribe": st.dictionaries(NAMES, JSON, max_size=6)}).map(json.dumps)
    | st.fixed_dictionaries({"unsubscribe": st.dictionaries(NAMES, JSON, max_size=3)}).map(json.dumps)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
    | st.binary(max_size=50)
)


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Examples for a test that runs in an event loop, which `given` cannot."""
    found: list[Any] = []

    @settings(max_examples=count, deadline=None, database=None)
    @given(strategy)
    def draw(example):
        found.append(example)

    draw()
    return found


def is_flat_error(message: dict[str, Any]) -> bool:
    return (
        isinstance(message["error"], str)
        and isinstance(message["error_description"], str)
        and isinstance(message["status_code"], int)
        and set(message) <= {"error", "error_description", "status_code", "alias", "spuid"}
    )


@settings(max_examples=300, deadline=None)
@given(MESSAGES)
def test_a_message_is_a_request_or_an_error(message):
    try:
        result: object = parse_message(message)
    except EdgeError as error:
        result = json.loads(error.to_json())
    assert isinstance(result, SubscribeMessage | UnsubscribeMessage | UpdateMessage) or is_flat_error(result)


async def test_the_websocket_gate_answers_anything(gateway):
    client = await gateway.client()
    for message in drawn(MESSAGES, 300):
        answer = await client.ask(message)
        assert "notification" in answer or is_flat_error(answer), (message, answer)
        assert answer.get("error") != "internal_error", (message, answer)
        if "notification" in answer:
            ended = await client.ask({"unsubscribe": {"spuid": answer["notification"]["spuid"]}})
            assert "unsubscribed" in ended
    assert (await client.subscribe())["sequence"] == 0


WORDS = st.sampled_from(
    ["query", "update", "default-graph-uri", "using-graph-uri", "ASK {}", "urn:g", "=", "=", "&", "%", "%ff", "+"]
)
TYPES = st.sampled_from(
    ["application/x-www-form-urlencoded", "application/sparql-query", "application/sparql-update", "a;b", ""]
)
TEXTS = st.lists(WORDS, max_size=8).map("".join)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "POST", "PUT", "OPTIONS"]),
    TEXTS,
    TYPES,
    st.binary(max_size=40) | TEXTS.map(str.encode),
    st.sampled_from(["*/*", "", "text/csv", ";", "a/b;q=z", "text/turtle,*/*;q=0.1"]),
)


@pytest.mark.parametrize("path", ["/query", "/update", "/sparql"])
async def test_the_http_gate_answers_anything(gateway, path):
    async with gateway.http() as http:
        for method, query, media_type, body, accept in drawn(REQUESTS, 120):
            headers = {"Content-Type": media_type, "Accept": accept}
            answer = await http.request(method, f"{path}?{query}", headers=headers, content=body)
            assert answer.status_code < 500, (method, query, media_type, body, answer.text)
            if answer.status_code >= 400:
                assert is_flat_error(answer.json())
        assert (await http.get("/health")).status_code == 200
