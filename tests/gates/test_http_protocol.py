"""The SPARQL 1.1 Protocol over HTTP, with the cases of the W3C's protocol test suite."""

from __future__ import annotations

import json
from urllib.parse import quote, urlencode

import pytest

QUERY = "application/sparql-query"
UPDATE = "application/sparql-update"
FORM = "application/x-www-form-urlencoded"
ASK = "ASK {}"


def kind(media_type: str) -> dict[str, str]:
    return {"Content-Type": media_type}


def is_error(answer, status: int, name: str) -> bool:
    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert set(body) == {"error", "error_description", "status_code"}
    assert (answer.status_code, body["status_code"], body["error"]) == (status, status, name), body
    assert body["error_description"]
    return True


@pytest.fixture
async def http(gateway):
    await gateway.update(
        "INSERT DATA { <urn:d> <urn:in> 'default' GRAPH <urn:g> { <urn:s> <urn:in> 'g' } "
        "GRAPH <urn:h> { <urn:s> <urn:in> 'h' } }"
    )
    async with gateway.http() as client:
        yield client


WHERE = "SELECT ?in { ?s <urn:in> ?in }"
WHERE_NAMED = "SELECT ?in { GRAPH ?g { ?s <urn:in> ?in } }"


def found(answer) -> list[str]:
    assert answer.status_code == 200, answer.text
    return sorted(row["in"]["value"] for row in answer.json()["results"]["bindings"])


async def every_query(http, query: str, parameters: list[tuple[str, str]]):
    """Send the query with each of the three operations of section 2.1."""
    yield await http.get("/query?" + urlencode([("query", query), *parameters]))
    yield await http.post("/query", content=urlencode([("query", query), *parameters]), headers=kind(FORM))
    yield await http.post("/query?" + urlencode(parameters), content=query, headers=kind(QUERY))
    yield await http.get("/sparql?" + urlencode([("query", query), *parameters]))
    yield await http.post("/sparql", content=urlencode([("query", query), *parameters]), headers=kind(FORM))
    yield await http.post("/sparql?" + urlencode(parameters), content=query, headers=kind(QUERY))


@pytest.mark.parametrize(
    ("query", "parameters", "expected"),
    [
        (WHERE, [], ["default"]),
        (WHERE, [("default-graph-uri", "urn:g")], ["g"]),
        (WHERE, [("default-graph-uri", "urn:g"), ("default-graph-uri", "urn:h")], ["g", "h"]),
        (WHERE, [("named-graph-uri", "urn:g")], []),
        (WHERE_NAMED, [], ["g", "h"]),
        (WHERE_NAMED, [("named-graph-uri", "urn:g")], ["g"]),
        (WHERE_NAMED, [("named-graph-uri", "urn:g"), ("named-graph-uri", "urn:h")], ["g", "h"]),
        (WHERE, [("default-graph-uri", "urn:g"), ("default-graph-uri", "urn:g")], ["g"]),
        ("SELECT ?in FROM <urn:g> FROM <urn:g> { ?s <urn:in> ?in }", [], ["g"]),
        (WHERE_NAMED, [("default-graph-uri", "urn:g")], []),
        (WHERE_NAMED, [("default-graph-uri", "urn:h"), ("named-graph-uri", "urn:g")], ["g"]),
        ("SELECT ?in FROM <urn:h> { ?s <urn:in> ?in }", [("default-graph-uri", "urn:g")], ["g"]),
        (WHERE, [("default-graph-uri", "")], ["default"]),
    ],
)
async def test_query_by_every_operation_with_its_dataset(http, query, parameters, expected):
    async for answer in every_query(http, query, parameters):
        assert found(answer) == expected


async def every_update(http, update: str, parameters: list[tuple[str, str]]):
    for path in ("/update", "/sparql"):
        yield await http.post(path, content=urlencode([("update", update), *parameters]), headers=kind(FORM))
        yield await http.post(f"{path}?{urlencode(parameters)}", content=update, headers=kind(UPDATE))


async def test_update_by_every_operation_returns_its_counts(http):
    number = 0
    async for answer in every_update(http, "INSERT { <urn:n> <urn:is> ?n } WHERE { BIND(RAND() AS ?n) }", []):
        number += 1
        body = answer.json()
        assert answer.status_code == 200
        assert (body["added"], body["removed"]) == (1, 0)
        assert body["response"]["isJson"] is False
        assert isinstance(body["response"]["body"], str)
    unchanged = await http.post("/update", content="DELETE DATA { <urn:no> <urn:no> 1 }", headers=kind(UPDATE))
    assert (unchanged.json()["added"], unchanged.json()["removed"]) == (0, 0)
    assert (
        len((await http.get("/query", params={"query": "SELECT * { <urn:n> ?p ?o }"})).json()["results"]["bindings"])
        == number
    )


@pytest.mark.parametrize(
    ("where", "parameters", "copied"),
    [
        ("{ ?s <urn:in> ?in }", [("using-graph-uri", "urn:g")], ["g"]),
        ("{ ?s <urn:in> ?in }", [("using-graph-uri", "urn:g"), ("using-graph-uri", "urn:h")], ["g", "h"]),
        ("{ GRAPH ?g { ?s <urn:in> ?in } }", [("using-named-graph-uri", "urn:h")], ["h"]),
        ("{ GRAPH ?g { ?s <urn:in> ?in } }", [("using-graph-uri", "urn:h")], []),
    ],
)
async def test_update_with_its_dataset(http, where, parameters, copied):
    async for answer in every_update(
        http, f"INSERT {{ GRAPH <urn:copy> {{ <urn:c> <urn:in> ?in }} }} WHERE {where}", parameters
    ):
        assert answer.status_code == 200, answer.text
        query = {"query": WHERE, "default-graph-uri": "urn:copy"}
        assert found(await http.get("/query", params=query)) == copied
        await http.post("/update", content="DROP SILENT GRAPH <urn:copy>", headers=kind(UPDATE))


@pytest.mark.parametrize("clause", ["USING <urn:g>", "USING NAMED <urn:g>"])
async def test_update_dataset_conflict_is_refused(http, clause):
    update = f"INSERT {{ <urn:a> <urn:b> 1 }} {clause} WHERE {{}}"
    async for answer in every_update(http, update, [("using-named-graph-uri", "urn:h")]):
        assert 400 <= answer.status_code < 500
    async for answer in every_update(
        http, "WITH <urn:g> INSERT { <urn:a> <urn:b> 1 } WHERE {}", [("using-graph-uri", "urn:h")]
    ):
        assert 400 <= answer.status_code < 500


async def test_methods_that_do_not_apply(http):
    for path, allow in (("/update", "OPTIONS, POST"), ("/query", "GET, HEAD, OPTIONS, POST")):
        for method in ("PUT", "DELETE", "PATCH", *(("GET", "HEAD") if path == "/update" else ())):
            answer = await http.request(method, f"{path}?query={quote(ASK)}&update={quote(ASK)}")
            assert answer.status_code == 405
            assert answer.headers["allow"] == allow
            assert method == "HEAD" or is_error(answer, 405, "method_not_allowed")


@pytest.mark.parametrize(
    ("method", "url", "media_type", "body", "status", "name"),
    [
        ("GET", "/query", None, "", 400, "invalid_request"),
        ("GET", f"/query?query={quote(ASK)}&query={quote(ASK)}", None, "", 400, "invalid_request"),
        ("GET", "/sparql?update=CLEAR%20ALL", None, "", 400, "invalid_request"),
        ("GET", "/query?query=%ff%fe", None, "", 400, "invalid_request"),
        ("GET", "/query?query=SELECT", None, "", 400, "parsing_failed"),
        ("GET", f"/query?query={quote(ASK)}&using-graph-uri=urn:g", None, "", 400, "invalid_request"),
        ("GET", "/query?" + "a=b&" * 2000, None, "", 400, "invalid_request"),
        ("POST", "/query", FORM, f"query={quote(ASK)}&query={quote(ASK)}", 400, "invalid_request"),
        ("POST", "/query", FORM, "update=CLEAR ALL", 400, "invalid_request"),
        ("POST", "/query", FORM, "", 400, "invalid_request"),
        ("POST", "/query", QUERY, "ASK {", 400, "parsing_failed"),
        ("POST", "/query", QUERY, "", 400, "parsing_failed"),
        ("POST", f"/query?query={quote(ASK)}", QUERY, ASK, 400, "invalid_request"),
        ("POST", "/query", "text/plain", ASK, 415, "unsupported_media_type"),
        ("POST", "/query", None, ASK, 415, "unsupported_media_type"),
        ("POST", "/query", UPDATE, ASK, 415, "unsupported_media_type"),
        ("POST", "/query", f"{QUERY}; charset=UTF-16", ASK.encode("utf-16"), 415, "unsupported_media_type"),
        ("POST", "/query", QUERY, b"ASK { <urn:\xe9> ?p ?o }", 400, "invalid_request"),
        ("POST", "/update", FORM, "update=CLEAR ALL&update=CLEAR ALL", 400, "invalid_request"),
        ("POST", "/update", FORM, "query=ASK {}", 400, "invalid_request"),
        ("POST", "/update", UPDATE, "CLEAR", 400, "parsing_failed"),
        ("POST", "/update", QUERY, ASK, 415, "unsupported_media_type"),
        ("POST", "/update", f"{UPDATE}; charset=iso-8859-1", "CLEAR ALL", 415, "unsupported_media_type"),
        ("POST", "/sparql", FORM, "update=CLEAR ALL&query=ASK {}", 400, "invalid_request"),
    ],
)
async def test_bad_requests_get_flat_errors(http, method, url, media_type, body, status, name):
    headers = kind(media_type) if media_type else {}
    assert is_error(await http.request(method, url, content=body, headers=headers), status, name)
    assert found(await http.get("/query", params={"query": WHERE})) == ["default"]


@pytest.mark.parametrize("suffix", ["; charset=utf-8", ";charset=UTF-8", '; charset="utf-8"', "; x=y"])
async def test_a_charset_suffix_is_legal(http, suffix):
    text = "INSERT DATA { <urn:z> <urn:in2> 'größe ☃' }"
    assert (await http.post("/update", content=text.encode(), headers=kind(UPDATE + suffix))).status_code == 200
    query = "SELECT ?in { ?s <urn:in2> ?in }"
    assert found(await http.post("/query", content=query, headers=kind(QUERY + suffix))) == ["größe ☃"]
    assert found(await http.post("/query", content=urlencode({"query": query}), headers=kind(FORM + suffix))) == [
        "größe ☃"
    ]


async def test_head_and_options(http):
    head = await http.head("/query", params={"query": ASK})
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    options = await http.options("/query")
    assert options.status_code == 204
    assert options.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_relative_iris_are_resolved(http):
    await http.post("/update", content="INSERT DATA { <lamp> <is> 'on' }", headers=kind(UPDATE))
    answer = await http.get("/query", params={"query": "SELECT ?s { ?s <is> 'on' }"})
    (row,) = answer.json()["results"]["bindings"]
    assert row["s"]["value"].endswith("/lamp")
    assert "://" in row["s"]["value"]


async def test_select_star_lists_variables_in_order_of_first_appearance(http):
    answer = await http.get("/query", params={"query": "SELECT * { ?z <urn:in> ?a . FILTER(?z != ?b) }"})
    assert answer.json()["head"]["vars"][:2] == ["z", "a"]


async def test_results_are_the_same_json_as_everywhere(http):
    answer = await http.get("/query", params={"query": "SELECT (1 AS ?n) ('a'@en AS ?l) ?u (<urn:x> AS ?i) {}"})
    assert json.loads(answer.text) == {
        "head": {"vars": ["n", "l", "u", "i"]},
        "results": {
            "bindings": [
                {
                    "n": {"type": "literal", "value": "1", "datatype": "http://www.w3.org/2001/XMLSchema#integer"},
                    "l": {"type": "literal", "value": "a", "xml:lang": "en"},
                    "i": {"type": "uri", "value": "urn:x"},
                }
            ]
        },
    }
