"""The engine as a resource of the HTTP gate: the cost of updates, and the processing mode."""

from __future__ import annotations

import asyncio

import pytest
from gate_server import running

from edge.engine.settings import EngineSettings
from edge.gates.http import Views
from edge.gates.settings import HttpGateSettings

PATH = "/api/engine"
PHASES = ["t_update", "t_lutt", "t_booster", "t_notify", "t_total"]


async def test_the_resource_shows_counts_and_phases_of_all_updates(gateway):
    client = await gateway.client()
    await client.subscribe("SELECT ?o { <urn:s> <urn:p> ?o }")
    for value in range(3):
        await gateway.update(f"INSERT DATA {{ <urn:s> <urn:p> {value} }}")
        await client.notification()
    await gateway.update("INSERT DATA { <urn:s> <urn:other> 1 }")
    async with gateway.http() as http:
        found = (await http.get(PATH)).json()
    counts = {name: found[name] for name in ("subscriptions", "spus", "pending_updates", "updates", "notifications")}
    assert counts == {"subscriptions": 1, "spus": 1, "pending_updates": 0, "updates": 4, "notifications": 3}
    assert (found["processing"], found["booster"]) == (gateway.engine.processing, "delta")
    assert list(found["phases"]) == PHASES
    for phase in found["phases"].values():
        assert 0 <= phase["min_ms"] <= phase["mean_ms"] <= phase["max_ms"]
        assert phase["sigma_ms"] >= 0
    assert found["phases"]["t_total"]["mean_ms"] == pytest.approx(
        sum(found["phases"][name]["mean_ms"] for name in PHASES[:-1])
    )


async def test_an_engine_without_updates_shows_zeros(gateway):
    async with gateway.http() as http:
        found = (await http.get(PATH)).json()
    assert found["updates"] == 0
    assert {value for phase in found["phases"].values() for value in phase.values()} == {0}


async def test_put_changes_the_processing(gateway):
    async with gateway.http() as http:
        for wanted in ("sequential", "parallel", "parallel", "sequential"):
            answer = await http.put(PATH, json={"processing": wanted})
            assert (answer.status_code, answer.json()["processing"]) == (200, wanted)
            assert gateway.engine.processing == wanted
            assert (await http.get(PATH)).json()["processing"] == wanted


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "invalid_request"),
        (b"{", 400, "invalid_request"),
        (b"[" * 100_000, 400, "invalid_request"),
        (b'"parallel"', 400, "invalid_request"),
        (b"{}", 400, "invalid_request"),
        (b'{"processing": "fast"}', 400, "invalid_request"),
        (b'{"processing": ["parallel"]}', 400, "invalid_request"),
        (b'{"processing": "parallel", "booster": "delta"}', 400, "invalid_request"),
        (b'{"processing": "\xff"}', 400, "invalid_request"),
    ],
)
async def test_an_invalid_body_changes_nothing(gateway, body, status, error):
    before = gateway.engine.processing
    async with gateway.http() as http:
        answer = await http.put(PATH, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.json()["error_description"]
    assert gateway.engine.processing == before


async def test_only_json_is_taken_and_only_get_and_put_apply(gateway):
    async with gateway.http() as http:
        answer = await http.put(PATH, content=b'{"processing": "sequential"}', headers={"Content-Type": "text/plain"})
        assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")
        answer = await http.post(PATH, json={"processing": "sequential"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, PUT")


async def test_pages_of_other_origins_may_not_change_it(serve):
    """A browser sends a preflight request, and PUT is not an allowed method, whatever origins are allowed."""
    preflight = {"Origin": "https://example.org", "Access-Control-Request-Method": "PUT"}
    async with serve(http=HttpGateSettings(port=0, cors_origins=("*",))) as gateway, gateway.http() as http:
        answer = await http.options(PATH, headers=preflight)
    assert "PUT" not in answer.headers["access-control-allow-methods"]


async def test_the_resource_is_unavailable_before_the_engine_is_ready(engine):
    async with running(engine, views=Views(ready=lambda: False)) as gateway, gateway.http() as http:
        for answer in (await http.get(PATH), await http.put(PATH, json={"processing": "parallel"})):
            assert (answer.status_code, answer.json()["error"]) == (503, "not_ready")


async def test_limits_show_their_use(gateway):
    client = await gateway.client()
    await client.subscribe("SELECT ?o { <urn:s> <urn:p> ?o }")
    async with gateway.http() as http:
        limits = {each["setting"]: each for each in (await http.get(PATH)).json()["limits"]}
    assert limits["engine.max_pending_updates"] == {
        "setting": "engine.max_pending_updates",
        "used": 0,
        "limit": EngineSettings().max_pending_updates,
        "client": "",
    }
    total, heaviest = limits["limits.max_total_bytes"], limits["limits.max_client_bytes"]
    assert 0 < heaviest["used"] == total["used"] < heaviest["limit"] < total["limit"]
    assert heaviest["client"].startswith("127.0.0.1")


async def subscribed(gateway, **parameters):
    async with gateway.http() as http:
        answer = await http.get("/api/subscriptions", params=parameters)
    return answer.status_code, answer.json()


async def test_subscribed_queries_show_their_cost_and_their_clients(gateway):
    cheap, distinct = "SELECT ?o { <urn:s> <urn:p> ?o }", "SELECT DISTINCT ?o { ?s <urn:p> ?o }"
    evaluated = "SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o LIMIT 3"
    clients = [await gateway.client() for _ in range(3)]
    for client, text in zip([*clients, clients[0]], [cheap, cheap, distinct, evaluated], strict=True):
        await client.subscribe(text)
    await gateway.update("INSERT DATA { <urn:s> <urn:p> 1, 2 . <urn:t> <urn:p> 3 }")
    for client in clients:
        await client.notification()
    await clients[0].notification()
    status, found = await subscribed(gateway, order="subscriptions")
    assert (status, found["subscriptions"], found["spus"], found["examined"]) == (200, 4, 3, 3)
    first, *_ = found["queries"]
    assert (first["sparql"], first["kept"], first["reason"], first["evaluations"]) == (cheap, "incremental", "", None)
    assert (first["subscriptions"], sorted(first["clients"].values())) == (2, [1, 1])
    # The first result of each, and one change.
    assert (first["rows"], first["notifications"]) == (0, 4)
    (memory,) = [each for each in found["queries"] if each["sparql"] == distinct]
    assert memory["rows"] == 3
    assert memory["bytes"] > 0
    (slow,) = (await subscribed(gateway, order="seconds", limit=1))[1]["queries"]
    assert (slow["sparql"], slow["kept"], slow["rows"]) == (evaluated, "re-evaluated", 3)
    assert "LIMIT" in slow["reason"]
    assert slow["evaluations"]["count"] >= 2
    assert slow["evaluations"]["seconds"] > 0


@pytest.mark.parametrize(
    "parameters", [{"order": "name"}, {"limit": "0"}, {"limit": "1001"}, {"limit": "-1"}, {"limit": "ten"}]
)
async def test_an_unknown_order_or_a_wrong_limit_is_refused(gateway, parameters):
    status, found = await subscribed(gateway, **parameters)
    assert (status, found["error"]) == (400, "invalid_request")
    assert next(iter(parameters)) in found["error_description"]


async def test_subscriptions_can_be_listed_while_they_come_and_go(gateway):
    """The list is made on another thread than the writer's."""
    client = await gateway.client()

    async def churn() -> None:
        for number in range(100):
            spuid = (await client.subscribe(f"SELECT DISTINCT ?o {{ <urn:s{number}> ?p ?o }}"))["spuid"]
            await client.ask({"unsubscribe": {"spuid": spuid}})

    churning = asyncio.create_task(churn())
    while not churning.done():
        for order in ("bytes", "notifications", "subscriptions", "seconds"):
            assert (await subscribed(gateway, order=order))[0] == 200
    await churning
