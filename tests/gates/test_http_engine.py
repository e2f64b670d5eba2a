"""The engine as a resource of the HTTP gate: the cost of updates, and the processing mode."""

from __future__ import annotations

import pytest
from gate_server import running

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
