"""The graph store of a secured gateway: clients read and change the graphs that their rights name."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from secured import Harness

from edge.security.clients import Rights

MINE, SHARED, SECRET = "urn:mine", "urn:shared", "urn:secret"
QUERY, UPDATE, BOTH = frozenset({"query"}), frozenset({"update"}), frozenset({"query", "update"})
CLIENTS = {
    "all": Rights(BOTH),
    "maker": Rights(BOTH, read=frozenset({MINE, SHARED}), write=frozenset({MINE, "urn:new"})),
    "reader": Rights(QUERY),
    "writer": Rights(UPDATE, read=frozenset(), write=frozenset({MINE})),
    "default": Rights(BOTH, read=frozenset({""}), write=frozenset({""})),
}
ONE = "<urn:s> <urn:p> 1 ."
METHODS = ("PUT", "POST", "PATCH", "DELETE")


class Clients:
    """Clients with tokens. `await clients("maker", "GET", MINE)` returns the status."""

    def __init__(self, http: httpx.AsyncClient, tokens: dict[str, str]) -> None:
        self.http = http
        self.tokens = tokens

    async def send(
        self, client: str, method: str, graph: str | None, body: str = ONE, **headers: str
    ) -> httpx.Response:
        kind = "application/sparql-update" if method == "PATCH" else "text/turtle"
        if method == "PATCH" and body == ONE:
            body = f"INSERT DATA {{ {ONE} }}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        where = "" if graph is None else str(httpx.QueryParams({"graph": graph})) if graph else "default"
        return await self.http.request(
            method,
            f"/graph-store?{where}",
            content=None if method in ("GET", "HEAD", "DELETE") else body,
            headers={"Content-Type": kind, "Authorization": f"Bearer {self.tokens[client]}", **named},
        )

    async def __call__(self, client: str, method: str, graph: str | None, body: str = ONE, **headers: str) -> int:
        return (await self.send(client, method, graph, body, **headers)).status_code


@pytest.fixture
async def clients(harness: Harness) -> Any:
    tokens = {name: await harness.member(name, rights) for name, rights in CLIENTS.items()}
    async with harness.http() as http:
        made = Clients(http, tokens)
        for graph in (MINE, SHARED, SECRET, ""):
            assert await made("all", "PUT", graph, f"{ONE} <urn:s> <urn:p> 'of {graph}' .") in (201, 204)
        yield made


async def test_a_graph_that_may_not_be_read_does_not_exist(clients):
    for method in ("GET", "HEAD"):
        assert [await clients("maker", method, graph) for graph in (MINE, SHARED, SECRET, "", "urn:none")] == [
            *(200, 200, 404, 404, 404)
        ]
    hidden, missing = [await clients.send("maker", "GET", graph) for graph in (SECRET, "urn:none")]
    assert hidden.text.replace(SECRET, "") == missing.text.replace("urn:none", "")
    # A graph that is allowed and does not exist is not an empty graph.
    assert await clients("maker", "DELETE", MINE) == 204
    assert await clients("maker", "GET", MINE) == 404
    assert await clients("default", "GET", "") == 200
    assert await clients("default", "GET", MINE) == 404


async def test_only_graphs_that_may_be_changed_are_changed(clients):
    before = {graph: (await clients.send("all", "GET", graph)).text for graph in (SHARED, SECRET, "")}
    for method in METHODS:
        for graph in (SHARED, SECRET, "", "urn:none"):
            answer = await clients.send("maker", method, graph)
            assert answer.status_code == 403, (method, graph)
        assert await clients("reader", method, MINE) == 403
    assert {graph: (await clients.send("all", "GET", graph)).text for graph in before} == before
    assert [await clients("maker", method, MINE) for method in METHODS] == [204, 204, 204, 204]
    assert await clients("maker", "PUT", "urn:new") == 201
    assert await clients("writer", "PUT", MINE) == 201
    assert await clients("writer", "GET", MINE) == 403
    assert [await clients("default", method, "") for method in METHODS] == [204, 204, 204, 204]


async def test_only_a_client_that_may_change_all_graphs_adds_one_without_a_name(clients):
    assert await clients("all", "POST", None) == 201
    for client in ("maker", "default", "writer"):
        answer = await clients.send(client, "POST", None)
        assert answer.status_code == 403
        assert "?graph=" in answer.json()["error_description"]


async def test_a_conditional_change_needs_the_right_to_read_the_graph(clients):
    for condition in ({"If_Match": "*"}, {"If_None_Match": "*"}, {"If_Match": '"x"'}):
        for method in METHODS:
            assert await clients("writer", method, MINE, **condition) == 403
    tag = (await clients.send("maker", "GET", MINE)).headers["etag"]
    assert tag == (await clients.send("all", "GET", MINE)).headers["etag"]
    assert await clients("maker", "PUT", MINE, If_Match=tag) == 204
    assert await clients("maker", "PUT", MINE, If_Match=tag) == 412
    assert await clients("maker", "PUT", MINE, If_Match="*") == 204
    assert await clients("maker", "PUT", "urn:new", If_Match="*") == 403  # it may write this graph, but not read it


@pytest.mark.parametrize("client", ["maker", "all"])
async def test_a_patch_reads_and_changes_its_graph_only(clients, client):
    copy = "INSERT { ?s <urn:copy> ?o } WHERE { ?s ?p ?o }"
    before = {graph: (await clients.send("all", "GET", graph)).text for graph in (SHARED, SECRET, "")}
    assert await clients(client, "PATCH", MINE, copy) == 204
    for hostile in (
        f"INSERT DATA {{ }} }} ; INSERT DATA {{ GRAPH <{SECRET}> {{ {ONE} }} }}",
        f"INSERT DATA {{ {ONE} }} }} ; DROP DEFAULT ; INSERT DATA {{ {{ }}",
        f"INSERT DATA {{ {ONE} }} WHERE {{ }}",
        f"INSERT {{ {ONE} }} WHERE {{ }} ; LOAD <http://127.0.0.1:9/> INTO GRAPH <{SECRET}>",
        f"CLEAR SILENT GRAPH <{SECRET}>",
        "CLEAR NAMED",
    ):
        assert await clients(client, "PATCH", MINE, hostile) in (400, 403, 422), hostile
    content = (await clients.send("all", "GET", MINE)).text
    assert "of urn:mine" in content
    assert not any(f"of {graph}" in content for graph in (SHARED, SECRET))
    assert {graph: (await clients.send("all", "GET", graph)).text for graph in before} == before
