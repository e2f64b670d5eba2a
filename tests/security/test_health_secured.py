"""The content of `/health`, `/explain` and the MQTT status for each kind of client."""

from __future__ import annotations

import json

import pytest

from edge import __version__
from edge.gateway.health import for_unauthenticated, without_texts
from edge.security.clients import Rights

BAD = "this is no mapping"
OPERATOR = Rights(frozenset({"administer"}))


@pytest.fixture
async def faulty(secured, tmp_path):
    """Run a gateway with an unreadable mapping file and an invalid continuous query."""
    for name, file in (("mappings", "kitchen.yaml"), ("queries", "lamps.rq")):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / file).write_text(BAD)
    async with secured(mqtt={"port": 0}) as harness:
        yield harness


async def health(harness, token=None):
    async with harness.http() as http:
        return await http.get("/health", headers={} if token is None else {"Authorization": f"Bearer {token}"})


async def test_unauthenticated_clients_see_only_the_status(faulty):
    for token in (None, await faulty.member()):
        answer = await health(faulty, token)
        received = answer.json()
        assert (answer.status_code, received["status"], set(received["parts"].values())) == (200, "ready", {"moves"})
        assert set(received) <= {"status", "version", "parts", "mqtt", "mqtt_broker", "mqtt_gate", "outbox", "recent"}
        assert received["outbox"] == "off"
        assert "kitchen" not in answer.text
        assert "lamps" not in answer.text
    assert (await health(faulty, "nonsense")).status_code == 401


async def test_the_version_is_shown_without_a_token(faulty):
    assert (await health(faulty)).json()["version"] == __version__


async def test_an_administrator_sees_all_details(faulty):
    received = (await health(faulty, await faulty.member("operator", OPERATOR))).json()
    assert "kitchen.yaml" in json.dumps(received["mapping_faults"])
    assert "lamps" in received["query_faults"]
    assert {"uptime_seconds", "pending_updates"} <= set(received)
    assert 0 < received["disk"]["free"] < received["disk"]["total"]
    assert received.get("clock", "synchronized") in {"synchronized", "not synchronized"}


async def test_the_number_of_errors_is_published_over_mqtt(faulty):
    received = faulty.gateway._mqtt.gate._health()
    assert (received["mapping_faults"], received["query_faults"]) == (1, 1)
    assert "kitchen" not in json.dumps(received)


def test_no_error_text_is_published():
    private = "/home/me/house.yaml"
    health = {
        "version": "1",
        "uptime_seconds": 3,
        "parts": {"ws": "moves", "mqtt": private},
        "storage": private,
        "announce_fault": private,
        "mapping_faults": [{"file": private}],
        "query_faults": {private: private},
    }
    assert private not in json.dumps(without_texts(health))
    assert for_unauthenticated(health) == {
        "version": "1",
        "parts": {"ws": "moves", "mqtt": "stands still"},
    }


async def test_an_administrator_sees_the_reason_of_a_stall(harness, monkeypatch):
    operator = await harness.member("operator", OPERATOR)
    monkeypatch.setattr(harness.gateway._engine_health, "engine_fault", lambda: "a text of the fault")
    unauthenticated, all_of_it = await health(harness), await health(harness, operator)
    assert (unauthenticated.status_code, all_of_it.status_code) == (503, 503)
    assert "a text of the fault" not in unauthenticated.text
    assert "a text of the fault" in all_of_it.text


async def test_explain_covers_permitted_graphs_only(harness):
    await harness.update(await harness.member(), "INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 1 } }")
    asks = {"query": "SELECT * { GRAPH <urn:g> { ?s <urn:p> ?o } }"}
    all_of_it = await harness.member("operator", OPERATOR)
    without_graphs = await harness.member("guest", Rights(frozenset({"administer"}), read=frozenset()))
    async with harness.http() as http:
        received = {
            token: (await http.post("/explain", data=asks, headers={"Authorization": f"Bearer {token}"})).json()
            for token in (all_of_it, without_graphs)
        }
    assert '"matches": 1' in json.dumps(received[all_of_it])
    assert '"matches": 1' not in json.dumps(received[without_graphs])
