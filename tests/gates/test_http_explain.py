"""`/explain`: the cost of a subscription, requested like a query."""

from __future__ import annotations

import threading
from urllib.parse import urlencode

import pytest
from gate_server import running

from edge.engine.requests import QueryRequest
from tests.support.waiting import eventually

QUERY = "SELECT ?in { ?s <urn:in> ?in FILTER(?s = <urn:a>) }"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def http(gateway):
    await gateway.update("INSERT DATA { <urn:a> <urn:in> 1 GRAPH <urn:g> { <urn:a> <urn:in> 1, 2, 3 } }")
    async with gateway.http() as client:
        yield client


async def every_way(http, query: str, *parameters: tuple[str, str]):
    """Send the query with each of the three operations of the SPARQL 1.1 Protocol."""
    yield await http.get("/explain?" + urlencode([("query", query), *parameters]))
    text = urlencode([("query", query), *parameters])
    yield await http.post("/explain", content=text, headers={"Content-Type": FORM})
    url = "/explain?" + urlencode(parameters)
    yield await http.post(url, content=query, headers={"Content-Type": "application/sparql-query"})


async def test_explain_accepts_the_requests_of_a_query(http):
    async for answer in every_way(http, QUERY):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        received = answer.json()
        assert (received["form"], received["kept"], received["reason"]) == ("SELECT", "incremental", "")
        (((pattern,),), sharing) = received["parts"], received["sharing"]
        assert (pattern["pattern"], pattern["watched"]) == ("?s <urn:in> ?in", "<urn:a> <urn:in> ?in")
        assert (pattern["matches"], pattern["effect"], pattern["known"]) == (1, "direct", ["?s", "?in"])
        assert (sharing["open"], sharing["queries"], sharing["subscribers"]) == (["<urn:a>"], 0, 0)


async def test_the_dataset_counts(http):
    async for answer in every_way(http, QUERY, ("default-graph-uri", "urn:g")):
        (((pattern,),)) = answer.json()["parts"]
        assert pattern["matches"] == 3
    async for answer in every_way(http, QUERY, ("default-graph-uri", "urn:g"), ("default-graph-uri", "urn:h")):
        ((merged,),) = (answer.json()["parts"],)
        assert [pattern["matches"] for pattern in merged] == [3, 0]
        assert answer.json()["kept"] == "incremental"
    named = QUERY.replace("{", "{ GRAPH ?g {", 1) + " }"
    async for answer in every_way(http, named, ("named-graph-uri", "urn:g")):
        assert answer.json()["kept"] == "re-evaluated"


async def test_explain_counts_the_subscribers(gateway, http):
    for _ in range(2):
        await (await gateway.client()).subscribe(QUERY)
    await (await gateway.client()).subscribe(QUERY.replace("urn:a", "urn:b"))
    sharing = (await http.get("/explain", params={"query": QUERY})).json()["sharing"]
    assert (sharing["subscribers"], sharing["queries"]) == (2, 2)
    assert gateway.engine.subscriptions == 3, "nothing was subscribed"


@pytest.mark.parametrize(
    ("query", "more", "status", "error"),
    [
        ("SELEKT *", [], 400, "parsing_failed"),
        ("INSERT DATA { <urn:a> <urn:b> 1 }", [], 400, "parsing_failed"),
        (QUERY, [("default-graph-uri", "not absolute")], 400, "parsing_failed"),
        (QUERY, [("using-graph-uri", "urn:g")], 400, "invalid_request"),
        ("SELECT * { SERVICE <http://x/> { ?s ?p ?o } }", [], 403, "forbidden"),
    ],
)
async def test_errors_are_those_of_a_query(http, query, more, status, error):
    answer = await http.get("/explain?" + urlencode([("query", query), *more]))
    assert (answer.status_code, answer.json()["status_code"], answer.json()["error"]) == (status, status, error)
    assert answer.json()["error_description"]


async def test_a_text_that_is_not_a_query_is_refused(http):
    assert (await http.get("/explain")).json()["error"] == "invalid_request"
    assert (await http.post("/explain", content=b"x")).json()["error"] == "unsupported_media_type"
    update = {"Content-Type": "application/sparql-update"}
    assert (await http.post("/explain", content=b"CLEAR ALL", headers=update)).json()[
        "error"
    ] == "unsupported_media_type"
    answer = await http.delete("/explain")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")


async def test_explain_waits_no_longer_than_a_query(engine):
    busy, go_on = threading.Event(), threading.Event()
    async with running(engine, query_timeout=0.2) as gateway, gateway.http() as http:
        engine.on_writer(lambda: (busy.set(), go_on.wait(60)))
        try:
            # Before the writer has begun, it might do the request for an explanation first.
            await eventually(busy.is_set, "the writer is busy")
            answer = await http.get("/explain", params={"query": QUERY})
        finally:
            go_on.set()
        assert (answer.status_code, answer.json()["error"]) == (408, "timeout")
        assert (await http.get("/explain", params={"query": QUERY})).status_code == 200
    assert engine.explain(QueryRequest(QUERY)).result(20).form == "SELECT"
