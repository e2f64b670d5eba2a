"""Continuous queries over the HTTP interface: they are checked, published at the broker, and end."""

from __future__ import annotations

import json

import httpx
import paho.mqtt.client as paho
import pytest

from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

QUERY = {"Content-Type": "application/sparql-query"}
LAMPS = "SELECT ?lamp ?state { ?lamp <urn:is> ?state }"


class Published:
    """A gateway with its broker, and the results of its continuous queries."""

    def __init__(self, directory) -> None:
        ports = {f"EDGE__{name}__PORT": str(free_port()) for name in ("HTTP", "WS", "MQTT")}
        settings = {"EDGE__MQTT_GATE__QUERY_INTERVAL": "0.05", "EDGE__HOST__ENABLED": "false"}
        self.process = GatewayProcess(directory, {**ports, **settings})
        endpoints = self.process.start()
        self.http = httpx.Client(base_url=endpoints["http"], timeout=20)
        self.results: dict[str, bytes] = {}
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _, __, message: self.results.__setitem__(message.topic, message.payload)
        self.client.connect("127.0.0.1", int(endpoints["mqtt"].rpartition(":")[2]))
        self.client.subscribe("sepa/gateway/query/+", 1)
        self.client.loop_start()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
        self.http.close()
        self.process.stop()

    def write(self, name: str, text: str) -> httpx.Response:
        return self.http.put(f"/api/queries/{name}", content=text, headers=QUERY)

    def rows(self, name: str) -> list | None:
        """The bindings of the retained result; None without one."""
        payload = self.results.get(f"sepa/gateway/query/{name}")
        return json.loads(payload)["results"]["bindings"] if payload else None


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    published = Published(tmp_path_factory.mktemp("gateway"))
    yield published
    published.close()


def test_a_query_is_published_replaced_and_ended(published):
    assert published.http.get("/api/queries").json() == []
    assert published.write("lamps", LAMPS).json() == {"written": {"name": "lamps"}}
    listed = [{"file": "lamps.rq", "name": "lamps", "topic": "sepa/gateway/query/lamps", "fault": None}]
    assert published.http.get("/api/queries").json() == listed
    assert published.http.get("/api/queries/lamps").text == LAMPS
    assert published.http.head("/api/queries/lamps").status_code == 200
    assert published.http.get("/api/queries").json() == listed
    wait_for(lambda: published.rows("lamps") == [], what="the first result")
    published.http.post("/update", data={"update": "INSERT DATA { <urn:l1> <urn:is> 'on' }"}).raise_for_status()
    wait_for(lambda: published.rows("lamps"), what="the changed result")
    published.write("lamps", LAMPS.replace("?lamp ?state {", "?lamp {"))
    wait_for(
        lambda: published.rows("lamps") == [{"lamp": {"type": "uri", "value": "urn:l1"}}], what="the other columns"
    )
    assert published.http.delete("/api/queries/lamps").json() == {"deleted": {"name": "lamps"}}
    wait_for(lambda: published.rows("lamps") is None, what="the topic is cleared")
    assert published.http.get("/api/queries").json() == []


def test_a_text_that_is_no_query_is_refused_with_its_place_and_not_stored(published):
    answer = published.write("wrong", "SELECT ?s {\n  ?s foo:bar ?o }")
    assert (answer.status_code, answer.json()["error"]) == (400, "parsing_failed")
    assert "line 2" in answer.json()["error_description"]
    assert published.write("wrong", "INSERT DATA { <a:a> <a:b> 1 }").status_code == 400
    assert published.http.get("/api/queries/wrong").status_code == 404


@pytest.mark.parametrize("name", ["..%2Fedge", ".hidden", "a b", "a+", "x" * 65])
def test_names_that_are_no_file_name_are_refused(published, name):
    assert published.write(name, LAMPS).status_code in (400, 404)
    assert published.http.get("/api/queries").json() == []


def test_other_requests_are_refused(published):
    assert published.http.put("/api/queries/a", content=LAMPS).status_code == 415
    assert published.write("a", LAMPS + " " * 300_000).status_code == 413
    assert published.http.delete("/api/queries/none").status_code == 404
