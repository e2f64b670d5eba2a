"""From registration to a subscription, and every message without a token."""

from __future__ import annotations

import pytest

from edge.gates.http.app import Routes
from edge.gates.http.page import FILES, VERSIONED
from edge.gates.http.views import Views
from edge.gates.rate_limit import RateLimit
from edge.gates.settings import HttpGateSettings, LimitSettings
from edge.metrics import Metrics
from edge.security.clients import Rights

INSERT = "INSERT DATA { <urn:t:lamp> <urn:t:is> 'on' }"


async def test_a_client_registers_gets_a_token_and_uses_all_services(harness):
    token = await harness.member()
    async with harness.socket() as socket:
        first = await socket.ask("subscribe", token, sparql="SELECT ?o { ?s ?p ?o }", alias="a")
        assert first["notification"]["sequence"] == 0
        assert (await harness.update(token, INSERT, "/secure/update")).json()["added"] == 1
        received = await socket.receive()
        assert received["notification"]["addedResults"]["results"]["bindings"] == [
            {"o": {"type": "literal", "value": "on"}}
        ]
        found = await harness.query(token, path="/secure/query")
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
async def test_no_message_is_taken_without_a_token(harness, kind):
    async with harness.socket() as socket:
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
    ("GET", "/kb?query=ASK{}"),
    ("POST", "/kb"),
    ("GET", "/graph-store?default"),
    ("PUT", "/graph-store?default"),
    ("POST", "/graph-store"),
    ("DELETE", "/graph-store?default"),
    ("PATCH", "/graph-store?default"),
    ("GET", "/inbox?graph=urn:g"),
    ("POST", "/inbox?graph=urn:g"),
    ("DELETE", "/inbox?graph=urn:g"),
    ("GET", "/streams"),
    ("GET", "/streams/s"),
    ("PUT", "/streams/s"),
    ("POST", "/streams/s"),
    ("DELETE", "/streams/s"),
    ("GET", "/queries"),
    ("GET", "/queries/q"),
    ("PUT", "/queries/q"),
    ("POST", "/queries/q"),
    ("DELETE", "/queries/q"),
    ("GET", "/queries/q/observers"),
    ("GET", "/queries/q/observers/o"),
    ("DELETE", "/queries/q/observers/o"),
    ("GET", "/timers"),
    ("GET", "/timers/t"),
    ("PUT", "/timers/t"),
    ("DELETE", "/timers/t"),
    ("GET", "/explain?query=ASK{}"),
    ("POST", "/explain"),
    ("GET", "/metrics"),
    ("GET", "/api/access"),
    ("GET", "/api/engine"),
    ("PUT", "/api/engine"),
    ("GET", "/api/subscriptions"),
    ("GET", "/api/unmapped"),
    ("GET", "/api/mappings"),
    ("GET", "/api/mappings/m"),
    ("PUT", "/api/mappings/m"),
    ("DELETE", "/api/mappings/m"),
    ("POST", "/api/mapping-test"),
    ("GET", "/api/newest-message?topic=a"),
    ("POST", "/api/profile"),
    ("GET", "/api/queries"),
    ("GET", "/api/queries/q"),
    ("PUT", "/api/queries/q"),
    ("DELETE", "/api/queries/q"),
    ("GET", "/api/rules"),
    ("GET", "/api/rules/r"),
    ("PUT", "/api/rules/r"),
    ("DELETE", "/api/rules/r"),
    ("POST", "/api/rule-test"),
    ("GET", "/api/log"),
    ("GET", "/api/settings"),
    ("GET", "/api/doctor"),
    ("POST", "/api/doctor"),
    ("GET", "/api/backup"),
    ("POST", "/api/restore"),
    ("GET", "/api/system-update"),
    ("POST", "/api/system-update"),
    ("POST", "/api/system-update/restart"),
    ("GET", "/api/clients"),
    ("PUT", "/api/clients/c"),
    ("DELETE", "/api/clients/c"),
    ("POST", "/api/invitations"),
    ("POST", "/api/tokens"),
    ("PUT", "/api/opening"),
    ("GET", "/api/certificate"),
    ("GET", "/api/bad-values"),
    ("GET", "/api/series"),
    ("GET", "/ldes/observations"),
    ("GET", "/ldes/observations/5d0b2c9e71a4-0"),
    ("GET", "/api/settable"),
    ("GET", "/things"),
    ("GET", "/things/urn:t"),
    ("GET", "/properties/urn:t"),
    ("PUT", "/properties/urn:t"),
    ("GET", "/search/sparql?query=ASK{}"),
    ("POST", "/search/sparql"),
    ("GET", "/api/outbox"),
    ("POST", "/api/outbox"),
]


async def test_protected_paths_require_a_token(harness):
    async with harness.http() as http:
        for method, path in REQUESTS:
            answer = await http.request(method, path)
            assert (answer.status_code, answer.json()["error"]) == (401, "invalid_request"), path
            assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_public_paths_are_complete(harness):
    """A new path must be in the lists above, or be meant to be open."""
    open_paths = {*FILES, VERSIONED, "/health", "/api/endpoints", "/api/openapi.json", "/.well-known/wot"}
    routes = {route.path for route in _routes(harness)}
    examples = {
        "/timers/t": "/timers/{id:path}",
        "/things/urn:t": "/things/{id:path}",
        "/properties/urn:t": "/properties/{observation:path}",
        "/streams/s": "/streams/{id:path}",
        "/queries/q": "/queries/{name:path}",
        "/queries/q/observers": "/queries/{name:path}/observers",
        "/queries/q/observers/o": "/queries/{name:path}/observers/{observer}",
        "/api/mappings/m": "/api/mappings/{name}",
        "/ldes/observations/5d0b2c9e71a4-0": "/ldes/observations/{node}",
        "/api/queries/q": "/api/queries/{name}",
        "/api/rules/r": "/api/rules/{name}",
        "/api/clients/c": "/api/clients/{identity:path}",
    }
    paths = (path.partition("?")[0] for _, path in REQUESTS)
    guarded = {examples.get(path, path) for path in paths}
    assert routes - guarded - open_paths == {"/oauth/register", "/oauth/token", "/api/enrolment"}
    async with harness.http() as http:
        for path in {*open_paths - {VERSIONED}, "/files/0/app.js"}:
            assert (await http.get(path)).status_code == 200, path


def _routes(harness):
    security = harness.security
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
async def test_a_client_performs_permitted_actions_only(harness, allowed, refused):
    token = await harness.member(rights=Rights(actions=frozenset({allowed})))
    async with harness.socket() as socket:
        for kind in refused:
            answer = await socket.ask(kind, token, **MESSAGES[kind])
            assert (answer["error"], answer["status_code"]) == ("forbidden", 403), kind
        assert "error" not in await socket.ask(allowed, token, **MESSAGES[allowed])
    statuses = [(await harness.query(token)).status_code, (await harness.update(token, INSERT)).status_code]
    assert statuses == [200 if allowed == "query" else 403, 200 if allowed == "update" else 403]


async def test_only_operators_see_metrics(harness):
    token = await harness.member()
    operator = await harness.member("operator", Rights(actions=frozenset({"administer"})))
    async with harness.http() as http:
        for path in ("/metrics", "/api/engine"):
            statuses = [
                (await http.get(path, headers={"Authorization": f"Bearer {who}"})).status_code
                for who in (token, operator)
            ]
            assert statuses == [403, 200]


def _logged(caplog, event):
    return [record for record in caplog.records if record.getMessage() == event]


async def test_refused_credentials_are_logged_with_the_address_and_without_the_token(harness, caplog):
    caplog.set_level("INFO")
    lamp = await harness.member()
    forged = lamp[:-6] + "AAAAAA"
    async with harness.http() as http:
        await http.post("/oauth/token", auth=("nobody", "a wrong secret"))
        await http.post("/oauth/register", json={"register": {"client_identity": "stranger"}})
        await http.get("/query?query=ASK{}", headers={"Authorization": f"Bearer {forged}"})
        await http.put("/api/clients/x", json={}, headers={"Authorization": f"Bearer {lamp}"})
        await http.get("/query?query=ASK{}")  # the first request of a browser: not logged
    async with harness.socket() as socket:
        await socket.ask("query", forged, sparql="ASK {}")
    found = [(each.gate, each.request, each.error) for each in _logged(caplog, "access.refused")]
    assert found == [
        ("http", "POST /oauth/token", "invalid_client"),
        ("http", "POST /oauth/register", "unauthorized_client"),
        ("http", "GET /query", "invalid_grant"),
        ("http", "PUT /api/clients/x", "forbidden"),
        ("ws", "query", "invalid_grant"),
    ]
    assert all(each.address.startswith("127.0.0.1") for each in _logged(caplog, "access.refused"))
    written = " ".join(str(vars(each)) for each in caplog.records)
    assert forged not in written
    assert lamp not in written
    assert "a wrong secret" not in written


async def test_changes_by_administrators_are_logged(harness, caplog):
    caplog.set_level("INFO")
    token = await harness.member("operator", Rights())
    await harness.member("lamp", Rights(actions=frozenset({"query"})))
    harness.clients.allow("operator", Rights(actions=frozenset({"administer", "query"})))
    async with harness.http(headers={"Authorization": f"Bearer {token}"}) as http:
        assert (await http.get("/api/rules")).status_code == 200
        statuses = [
            (await http.put("/api/engine", json={"processing": "parallel"})).status_code,
            (await http.delete("/api/clients/lamp")).status_code,
        ]
    assert statuses == [200, 200]
    found = [(each.by, each.request, each.status) for each in _logged(caplog, "access.administered")]
    assert found == [("operator", "PUT /api/engine", 200), ("operator", "DELETE /api/clients/lamp", 200)]
