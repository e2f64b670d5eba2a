"""Inboxes of a secured gateway: clients send and read the notifications that their rights allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from secured import Harness

from edge.security.clients import Rights

INBOX, OTHER = "/inbox?graph=urn%3Ag", "/inbox?query=q"
GRAPH, OTHER_GRAPH = "urn:edge:inbox:graph:urn%3Ag", "urn:edge:inbox:query:q"
BOTH = frozenset({"query", "update"})
CLIENTS = {
    "all": Rights(BOTH),
    "sender": Rights(frozenset({"update"}), read=frozenset(), write=frozenset({GRAPH})),
    "reader": Rights(frozenset({"query"}), read=frozenset({GRAPH}), write=frozenset()),
    "owner": Rights(BOTH, read=frozenset({GRAPH, "urn:g"}), write=frozenset({GRAPH})),
    "stranger": Rights(BOTH, read=frozenset({"", "urn:g"}), write=frozenset({"", "urn:g"})),
}
NOTE = "<> <urn:p> 'secret' . _:b <urn:q> <> ."


@dataclass
class Clients:
    """Clients with tokens."""

    http: httpx.AsyncClient
    tokens: dict[str, str]

    async def send(self, client: str, method: str, url: str, body: str = NOTE, **headers: str) -> httpx.Response:
        kind = {"/update": "application/sparql-update", "/query": "application/sparql-query"}.get(url, "text/turtle")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        token = f"Bearer {self.tokens[client]}"
        content = body if method == "POST" else None
        return await self.http.request(
            method, url, content=content, headers={"Content-Type": kind, "Authorization": token, **named}
        )

    async def status(self, *arguments: Any, **headers: str) -> int:
        return (await self.send(*arguments, **headers)).status_code


@pytest.fixture
async def clients(harness: Harness) -> Any:
    tokens = {name: await harness.member(name, rights) for name, rights in CLIENTS.items()}
    async with harness.http() as http:
        yield Clients(http, tokens)


async def test_each_right_is_for_one_inbox(clients):
    sent = await clients.send("sender", "POST", INBOX)
    assert sent.status_code == 201
    url = sent.headers["location"]
    found = {
        client: [
            await clients.status(client, method, where)
            for method, where in (("POST", INBOX), ("POST", OTHER), ("GET", INBOX), ("GET", url), ("GET", OTHER))
        ]
        for client in CLIENTS
    }
    assert found == {
        "all": [201, 201, 200, 200, 200],
        "sender": [201, 403, 403, 403, 403],
        "reader": [403, 403, 200, 200, 403],
        "owner": [201, 403, 200, 200, 403],
        "stranger": [403, 403, 403, 403, 403],
    }
    assert "secret" in (await clients.send("reader", "GET", url)).text
    assert GRAPH in (await clients.send("stranger", "POST", INBOX)).json()["error_description"]


async def test_13_restricts_the_list_of_notifications(clients):
    """The criterion of the W3C for receivers whose number is that of its report (gates/test_notification_receiver)."""
    url = (await clients.send("sender", "POST", INBOX)).headers["location"]
    assert (await clients.send("reader", "GET", INBOX)).json()["contains"] == [url]
    for client in ("sender", "stranger"):
        refused = await clients.send(client, "GET", INBOX)
        assert (refused.status_code, url in refused.text) == (403, False)
        assert await clients.status(client, "GET", url) == 403
    assert (await clients.http.get(INBOX)).status_code == 401


async def test_only_clients_that_write_the_inbox_delete(clients):
    urls = [(await clients.send("all", "POST", INBOX)).headers["location"] for _ in range(3)]
    assert [await clients.status(client, "DELETE", urls[0]) for client in ("reader", "stranger")] == [403, 403]
    assert [await clients.status(client, "DELETE", urls[0]) for client in ("sender", "owner")] == [204, 404]
    tag = (await clients.send("reader", "GET", urls[1])).headers["etag"]
    assert await clients.status("sender", "DELETE", urls[1], If_Match=tag) == 403  # the answer would reveal the content
    assert await clients.status("owner", "DELETE", urls[1], If_Match=tag) == 204
    assert (await clients.send("reader", "GET", INBOX)).json()["contains"] == urls[2:]


async def test_sparql_follows_the_rights_by_graph(clients):
    url = (await clients.send("sender", "POST", INBOX)).headers["location"]
    note = f"{GRAPH}:{url.rpartition('=')[2]}"
    ask = f"ASK {{ GRAPH <{GRAPH}> {{ ?inbox ?contains <{note}> }} }}", f"ASK {{ GRAPH <{note}> {{ ?s ?p ?o }} }}"
    for client, expected in (("all", [True, True]), ("reader", [True, False]), ("stranger", [False, False])):
        assert [(await clients.send(client, "POST", "/query", each)).json()["boolean"] for each in ask] == expected
    for client in ("sender", "owner", "stranger"):
        update = f"INSERT DATA {{ GRAPH <{note}> {{ <urn:s> <urn:p> 1 }} }}"
        assert await clients.status(client, "POST", "/update", update) == 403


async def test_an_entry_of_another_graph_reveals_nothing(clients):
    """A sender may change the list of the inbox by SPARQL. The inbox serves graphs of its own IRI only."""
    other = (await clients.send("all", "POST", OTHER)).headers["location"].rpartition("=")[2]
    for graph in (f"{OTHER_GRAPH}:{other}", "urn:g", GRAPH):
        entry = f"INSERT DATA {{ GRAPH <{GRAPH}> {{ <{GRAPH}> <http://www.w3.org/ns/ldp#contains> <{graph}> }} }}"
        assert await clients.status("sender", "POST", "/update", entry) == 200
    assert (await clients.send("reader", "GET", INBOX)).json()["contains"] == []
    assert await clients.status("reader", "GET", f"{INBOX}&notification={other}") == 404


async def test_a_body_cannot_leave_its_graph(clients):
    for hostile in (
        "<> <urn:p> 1 . } } ; DROP ALL #",
        "<> <urn:p> '} } ; DROP ALL #', '''\n}''' .",
        "<urn:%7D> <urn:p> 1 .",
    ):
        await clients.send("sender", "POST", INBOX, hostile)
    query = "SELECT DISTINCT ?g { GRAPH ?g {} }"
    found = (await clients.send("all", "POST", "/query", query)).json()["results"]["bindings"]
    assert len(found) >= 3
    assert all(each["g"]["value"].startswith(GRAPH) for each in found if "inbox" in each["g"]["value"])
