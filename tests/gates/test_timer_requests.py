"""Requests of clients for delayed updates, and for queries of them."""

from __future__ import annotations

import time
from urllib.parse import quote

import pytest
from gate_client import rows

from edge.gates.settings import WsGateSettings
from tests.support.waiting import eventually

INSERT = "INSERT DATA { <urn:a> <urn:b> 1 }"


@pytest.fixture
async def http(gateway):
    async with gateway.http() as client:
        yield client


def now() -> int:
    return time.time_ns() // 1000


async def test_a_delayed_update_over_http_is_stored_executed_and_reported(http, engine):
    answer = await http.post("/update", data={"update": INSERT, "delay": "PT0.2S"})
    assert answer.status_code == 202
    scheduled = answer.json()["scheduled"]
    assert scheduled["id"].startswith("sepa://update/")
    assert 0 < scheduled["at"] - now() <= 200_000
    path = answer.headers["Location"]
    assert path == f"/timers/{quote(scheduled['id'], safe='')}"
    waiting = (await http.get(path)).json()["timer"]
    assert (waiting["state"], waiting["sparql"], engine.quads) == ("pending", INSERT, 0)
    await eventually(lambda: engine.quads == 1, "the delayed update")
    timer = (await http.get(path)).json()["timer"]
    assert (timer["state"], timer["added"], timer["removed"]) == ("done", 1, 0)
    assert timer["finished"] >= timer["at"]
    assert [one["id"] for one in (await http.get("/timers")).json()["timers"]] == [scheduled["id"]]
    assert (await http.get("/timers?state=pending")).json() == {"timers": []}


async def test_the_body_may_be_the_update_and_the_id_the_clients(http):
    answer = await http.post(
        "/update?at=2999-12-31T23:59:59.5%2B01:00&id=a%20b%2Fc%3F",
        content=INSERT,
        headers={"Content-Type": "application/sparql-update"},
    )
    assert answer.json()["scheduled"] == {"id": "a b/c?", "at": 32503676399_500_000, "replaced": False}
    path = "/timers/a%20b%2Fc%3F"
    replaced = await http.put(path, data={"update": INSERT.replace("1", "2"), "delay": "P1D"})
    assert replaced.json()["scheduled"]["replaced"] is True
    assert "2" in (await http.get(path)).json()["timer"]["sparql"]
    assert (await http.delete(path)).json() == {"cancelled": {"id": "a b/c?"}}
    again = await http.delete(path)
    assert (again.status_code, again.json()["error"]) == (404, "not_found")
    assert (await http.get(path)).json()["timer"]["state"] == "cancelled"


@pytest.mark.parametrize(
    ("parameters", "expected_message"),
    [
        ({"delay": "30"}, "PT30S"),
        ({"delay": "P1M"}, "PT30S"),
        ({"delay": "P"}, "PT30S"),
        ({"delay": "-PT1S"}, "PT30S"),
        ({"delay": ""}, "PT30S"),
        ({"delay": "P9999999W"}, "hundred years"),
        ({"delay": "PT1S", "at": "2030-01-01T00:00:00Z"}, "exclude each other"),
        ({"at": "2030-01-01T00:00:00"}, "time zone"),
        ({"at": "2030-01-01T00:00:00 02:00"}, "%2B"),
        ({"at": "2030-02-31T00:00:00Z"}, "is not a valid time"),
        ({"at": "1763740800"}, "microseconds"),
        ({"at": "99999999999999999999"}, "year 10000"),
        ({"id": "x"}, "delayed"),
        ({"delay": "PT1S", "id": ""}, "printable"),
        ({"delay": "PT1S", "id": "x" * 201}, "printable"),
        ({"delay": "PT1S", "id": "a\nb"}, "printable"),
        ({"delay": ["PT1S", "PT2S"]}, "once"),
    ],
)
async def test_invalid_timer_requests_are_refused(http, parameters, expected_message):
    answer = await http.post("/update", data={"update": INSERT, **parameters})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert expected_message in answer.json()["error_description"]


async def test_a_wrong_update_is_refused_now(http):
    answer = await http.post("/update", data={"update": "INSERT NOTHING", "delay": "PT1H"})
    assert (answer.status_code, answer.json()["error"]) == (400, "parsing_failed")
    for path in ("/timers?state=over", "/timers?limit=0", "/timers?limit=1001"):
        assert (await http.get(path)).status_code == 400
    answer = await http.post("/query", data={"query": "ASK {}", "delay": "PT1S"})
    assert "answered at once" in answer.json()["error_description"]


async def test_delayed_updates_by_the_socket(gateway):
    client = await gateway.client()
    message = {"update": {"sparql": INSERT, "delay": "PT1H", "id": "mine", "alias": "a"}}
    scheduled = (await client.ask(message))["scheduled"]
    assert (scheduled["id"], scheduled["alias"], scheduled["replaced"]) == ("mine", "a", False)
    listed = await client.ask({"timers": {"alias": "l"}})
    assert (listed["alias"], [timer["id"] for timer in listed["timers"]]) == ("l", ["mine"])
    assert (await client.ask({"timers": {"state": "done"}})) == {"timers": []}
    assert (await client.ask({"timer": {"id": "mine", "alias": "t"}}))["timer"]["state"] == "pending"
    assert (await client.ask({"cancel": {"id": "mine", "alias": "c"}})) == {"cancelled": {"alias": "c", "id": "mine"}}
    gone = await client.ask({"cancel": {"id": "mine", "alias": "c"}})
    assert (gone["error"], gone["alias"]) == ("not_found", "c")
    wrong = await client.ask({"update": {"sparql": INSERT, "delay": "soon", "alias": "w"}})
    assert (wrong["error"], wrong["alias"]) == ("invalid_request", "w")
    assert '"delay" must be a duration' in wrong["error_description"]
    assert gateway.metric("edge_requests_total", gate="ws", primitive="update", status="202") == 1


async def test_a_time_may_be_a_number_or_text(gateway):
    client = await gateway.client()
    at = now() + 3_600_000_000
    for value in (at, str(at)):
        assert (await client.ask({"update": {"sparql": INSERT, "at": value}}))["scheduled"]["at"] == at


async def test_a_delayed_update_notifies(gateway):
    client = await gateway.client()
    await client.subscribe()
    await client.send({"update": {"sparql": INSERT, "delay": "PT0.05S"}})
    assert "scheduled" in await client.receive()
    assert rows((await client.notification())["addedResults"]) == [("urn:a", "urn:b", "1")]


async def test_queries_by_the_socket(gateway):
    client = await gateway.client()
    await client.ask(
        {"update": {"sparql": 'INSERT DATA { <urn:a> <urn:b> "x"@en . GRAPH <urn:g> { <urn:c> <urn:d> 1 } }'}}
    )
    answer = await client.ask({"query": {"sparql": "SELECT ?o { ?s ?p ?o }", "alias": "q"}})
    assert answer == {
        "result": {
            "alias": "q",
            "head": {"vars": ["o"]},
            "results": {"bindings": [{"o": {"type": "literal", "value": "x", "xml:lang": "en"}}]},
        }
    }
    graph = {"sparql": "SELECT ?s { ?s ?p ?o }", "default-graph-uri": "urn:g"}
    assert rows((await client.ask({"query": graph}))["result"]) == [("urn:c",)]
    assert (await client.ask({"query": {"sparql": "ASK { ?s ?p ?o }"}}))["result"]["boolean"] is True
    triples = (await client.ask({"query": {"sparql": "CONSTRUCT WHERE { ?s ?p ?o }"}}))["result"]
    assert triples["head"] == {"vars": ["subject", "predicate", "object"]}
    assert rows(triples) == [("urn:a", "urn:b", "x")]
    wrong = await client.ask({"query": {"sparql": "SELECT", "alias": "q"}})
    assert (wrong["error"], wrong["alias"]) == ("parsing_failed", "q")


async def test_a_query_by_the_socket_has_limits(serve):
    async with serve(ws=WsGateSettings(port=0, max_result=2000), query_timeout=0.2) as gateway:
        await check_limits(await gateway.client())


async def check_limits(client):
    values = " ".join(str(number) for number in range(300))
    for form in ("SELECT ?o", "CONSTRUCT { <urn:a> <urn:b> ?o }"):
        answer = await client.ask({"query": {"sparql": f"{form} {{ VALUES ?o {{ {values} }} }}", "alias": "big"}})
        assert (answer["error"], answer["alias"]) == ("result_too_large", "big")
        assert "ws.max_result" in answer["error_description"]
    three = " ".join(f"VALUES ?{name} {{ {values} }}" for name in "abc")
    answer = await client.ask({"query": {"sparql": f"SELECT (COUNT(*) AS ?n) {{ {three} }}", "alias": "long"}})
    assert (answer["error"], answer["alias"]) == ("timeout", "long")
    assert "result" in await client.ask({"query": {"sparql": "ASK {}"}})


@pytest.mark.parametrize("name", ["a%00b", "%00", "%FF%00", "x" * 201])
async def test_an_id_in_the_path_is_validated(http, name):
    answer = await http.put(f"/timers/{name}", data={"update": INSERT, "delay": "P1D"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "printable" in answer.json()["error_description"]
