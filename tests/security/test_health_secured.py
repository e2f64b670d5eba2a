"""The content of `/health`, `/explain` and the MQTT status for each kind of client."""

from __future__ import annotations

import json

import pytest

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
    async with secured(mqtt={"port": 0}) as house:
        yield house


async def health(house, token=None):
    async with house.http() as http:
        return await http.get("/health", headers={} if token is None else {"Authorization": f"Bearer {token}"})


async def test_strangers_learn_that_it_moves_and_nothing_that_is_private(faulty):
    for token in (None, await faulty.member()):
        answer = await health(faulty, token)
        told = answer.json()
        assert (answer.status_code, told["status"], set(told["parts"].values())) == (200, "ready", {"moves"})
        assert set(told) <= {"status", "version", "parts", "mqtt", "mqtt_gate", "outbox"}
        assert told["outbox"] == "off"
        assert "kitchen" not in answer.text
        assert "lamps" not in answer.text
    assert (await health(faulty, "nonsense")).status_code == 401


async def test_who_may_administer_is_told_all(faulty):
    told = (await health(faulty, await faulty.member("operator", OPERATOR))).json()
    assert "kitchen.yaml" in json.dumps(told["mapping_faults"])
    assert "lamps" in told["query_faults"]
    assert {"uptime_seconds", "pending_updates"} <= set(told)


async def test_clients_are_told_over_mqtt_how_many_faults_there_are(faulty):
    told = faulty.gateway._mqtt.gate._health()
    assert (told["mapping_faults"], told["query_faults"]) == (1, 1)
    assert "kitchen" not in json.dumps(told)


def test_no_text_of_a_fault_is_told():
    private = "/home/me/house.yaml"
    health = {
        "version": "1",
        "uptime_seconds": 3,
        "parts": {"ws": "moves", "mqtt": private},
        "storage": private,
        "mapping_faults": [{"file": private}],
        "query_faults": {private: private},
    }
    assert private not in json.dumps(without_texts(health))
    assert for_unauthenticated(health) == {
        "version": "1",
        "parts": {"ws": "moves", "mqtt": "stands still"},
    }


async def test_why_it_does_not_move_on_is_told_to_who_may_administer(house, monkeypatch):
    operator = await house.member("operator", OPERATOR)
    monkeypatch.setattr(house.gateway, "_engine_fault", lambda: "a text of the fault")
    stranger, all_of_it = await health(house), await health(house, operator)
    assert (stranger.status_code, all_of_it.status_code) == (503, 503)
    assert "a text of the fault" not in stranger.text
    assert "a text of the fault" in all_of_it.text


async def test_who_may_see_some_graphs_has_those_explained(house):
    await house.update(await house.member(), "INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 1 } }")
    asks = {"query": "SELECT * { GRAPH <urn:g> { ?s <urn:p> ?o } }"}
    all_of_it = await house.member("operator", OPERATOR)
    nothing = await house.member("guest", Rights(frozenset({"administer"}), read=frozenset()))
    async with house.http() as http:
        told = {
            token: (await http.post("/explain", data=asks, headers={"Authorization": f"Bearer {token}"})).json()
            for token in (all_of_it, nothing)
        }
    assert '"matches": 1' in json.dumps(told[all_of_it])
    assert '"matches": 1' not in json.dumps(told[nothing])
