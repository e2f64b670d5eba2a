"""From registration to a subscription, and every message without a token."""

from __future__ import annotations

import pytest

from edge.gates.http.app import Routes, Views
from edge.gates.http.page import FILES
from edge.gates.rate_limit import RateLimit
from edge.gates.settings import HttpGateSettings, LimitSettings
from edge.metrics import Metrics
from edge.security.clients import Rights

INSERT = "INSERT DATA { <urn:t:lamp> <urn:t:is> 'on' }"


async def test_a_client_registers_gets_a_token_and_does_all_there_is(house):
    token = await house.member()
    async with house.socket() as socket:
        first = await socket.ask("subscribe", token, sparql="SELECT ?o { ?s ?p ?o }", alias="a")
        assert first["notification"]["sequence"] == 0
        assert (await house.update(token, INSERT, "/secure/update")).json()["added"] == 1
        told = await socket.receive()
        assert told["notification"]["addedResults"]["results"]["bindings"] == [
            {"o": {"type": "literal", "value": "on"}}
        ]
        found = await house.query(token, path="/secure/query")
        assert len(found.json()["results"]["bindings"]) == 1
        spuid = first["notification"]["spuid"]
        assert (await socket.ask("unsubscribe", token, spuid=spuid))["unsubscribed"]["spuid"] == spuid


MESSAGES = {
    "subscribe": {"sparql": "SELECT * { ?s ?p ?o }"},
    "unsubscribe": {"spuid": "sepa://subscription/x"},
    "update": {"sparql": INSERT},
    "query": {"sparql": "SELECT * { ?s ?p ?o }"},
    "timers": {},
    "timer": {"id": "t"},
    "cancel": {"id": "t"},
}


@pytest.mark.parametrize("kind", MESSAGES)
async def test_no_message_is_taken_without_a_token(house, kind):
    async with house.socket() as socket:
        answer = await socket.ask(kind, alias="mine", **MESSAGES[kind])
    assert (answer["error"], answer["status_code"], answer["alias"]) == ("invalid_request", 401, "mine")


REQUESTS = [
    ("GET", "/query?query=ASK{}"),
    ("POST", "/query"),
    ("POST", "/secure/query"),
    ("GET", "/secure/query?query=ASK{}"),
    ("POST", "/update"),
    ("POST", "/secure/update"),
    ("POST", "/history"),
    ("POST", "/secure/history"),
    ("GET", "/sparql?query=ASK{}"),
    ("POST", "/sparql"),
    ("GET", "/timers"),
    ("GET", "/timers/t"),
    ("PUT", "/timers/t"),
    ("DELETE", "/timers/t"),
    ("GET", "/explain?query=ASK{}"),
    ("POST", "/explain"),
    ("GET", "/metrics"),
    ("GET", "/api/engine"),
    ("PUT", "/api/engine"),
    ("GET", "/api/unmapped"),
    ("GET", "/api/bad-values"),
    ("GET", "/api/outbox"),
    ("POST", "/api/outbox"),
]


async def test_no_path_that_tells_or_changes_anything_is_served_without_a_token(house):
    async with house.http() as http:
        for method, path in REQUESTS:
            answer = await http.request(method, path)
            assert (answer.status_code, answer.json()["error"]) == (401, "invalid_request"), path
            assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_what_is_open_is_this_and_no_more(house):
    """A new path must be in the lists above, or be meant to be open."""
    open_paths = {*FILES, "/health", "/api/endpoints", "/api/openapi.json"}
    routes = {route.path for route in _routes(house)}
    guarded = {path.partition("?")[0] for _, path in REQUESTS} - {"/timers/t"} | {"/timers/{id:path}"}
    assert routes - guarded - open_paths == {"/oauth/register", "/oauth/token", "/api/enrolment"}
    async with house.http() as http:
        for path in open_paths:
            assert (await http.get(path)).status_code == 200, path


def _routes(house):
    security = house.security
    rate_limit = RateLimit(LimitSettings())
    routes = Routes(None, HttpGateSettings(), Metrics(), Views(), security.guard, rate_limit, security.authority)
    return routes.app().routes


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ("query", ["update", "subscribe", "timers", "cancel"]),
        ("update", ["query", "subscribe"]),
        ("subscribe", ["query", "update", "timer"]),
    ],
)
async def test_a_client_does_what_it_may_and_nothing_else(house, allowed, refused):
    token = await house.member(rights=Rights(actions=frozenset({allowed})))
    async with house.socket() as socket:
        for kind in refused:
            answer = await socket.ask(kind, token, **MESSAGES[kind])
            assert (answer["error"], answer["status_code"]) == ("forbidden", 403), kind
        assert "error" not in await socket.ask(allowed, token, **MESSAGES[allowed])
    statuses = [(await house.query(token)).status_code, (await house.update(token, INSERT)).status_code]
    assert statuses == [200 if allowed == "query" else 403, 200 if allowed == "update" else 403]


async def test_only_operators_see_metrics(house):
    token = await house.member()
    operator = await house.member("operator", Rights(actions=frozenset({"administer"})))
    async with house.http() as http:
        for path in ("/metrics", "/api/engine"):
            statuses = [
                (await http.get(path, headers={"Authorization": f"Bearer {who}"})).status_code
                for who in (token, operator)
            ]
            assert statuses == [403, 200]
