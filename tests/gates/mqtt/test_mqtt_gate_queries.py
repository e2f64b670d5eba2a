"""Continuous queries: an MQTT client needs only the topic to follow the result at the broker."""

import json
import threading
from collections import Counter

import httpx
import paho.mqtt.client as paho
import pytest
from mqtt_harness import ROOT, MqttClient, port_of, running_gateway, sessions

from edge.gates.mqtt import gate
from tests.support.waiting import wait_for

QUERY = "SELECT ?lamp ?state { ?lamp <urn:is> ?state }"


@pytest.fixture(autouse=True)
def frequent_checks(monkeypatch):
    """Let gateways check for changed files often."""
    monkeypatch.setattr(gate, "_POLL", 0.05)


class Dashboard:
    """A plain MQTT client of a continuous query."""

    def __init__(self, port: int, name: str = "lamps") -> None:
        self.results: list[dict] = []
        self.deltas: list[dict] = []
        self.cleared = 0
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.on_connect = lambda client, *_: client.subscribe(f"{ROOT}/query/{name}/#", 1)
        self.client.on_message = self._take
        self.topic = f"{ROOT}/query/{name}"
        self.subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.connect("127.0.0.1", port)

    def __enter__(self):
        self.client.loop_start()
        assert self.subscribed.wait(20)
        return self

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()

    def _take(self, _, __, message):
        if message.topic == f"{self.topic}/delta":
            self.deltas.append(json.loads(message.payload))
        elif not message.payload:
            self.cleared += 1
        else:
            self.results.append(json.loads(message.payload))

    def lamps(self) -> dict[str, str]:
        return dict(rows(self.results[-1])) if self.results and "results" in self.results[-1] else {}

    def shows(self, **lamps: str) -> None:
        expected = {f"urn:{name}": state for name, state in lamps.items()}
        wait_for(lambda: self.results and self.lamps() == expected, what=f"{expected}")


def rows(results: dict) -> list[tuple[str, str]]:
    return [(row["lamp"]["value"], row["state"]["value"]) for row in results["results"]["bindings"]]


def update(gateway, text: str) -> None:
    httpx.post(gateway.endpoints["http"] + "/update", data={"update": text}).raise_for_status()


def turn(gateway, lamp: str, state: str) -> None:
    update(
        gateway,
        f"DELETE {{ <urn:{lamp}> <urn:is> ?s }} INSERT {{ <urn:{lamp}> <urn:is> '{state}' }} "
        f"WHERE {{ OPTIONAL {{ <urn:{lamp}> <urn:is> ?s }} }}",
    )


def write(tmp_path, text: str, name: str = "lamps") -> None:
    directory = tmp_path / "data" / "queries"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.rq").write_text(text)


def test_the_result_is_retained_and_changes_are_published(tmp_path, gateway):
    write(tmp_path, QUERY)
    turn(gateway, "a", "on")
    with Dashboard(port_of(gateway)) as early:
        early.shows(a="on")
        turn(gateway, "a", "off")
        turn(gateway, "b", "on")
        early.shows(a="off", b="on")
        turn(gateway, "a", "on")
        early.shows(a="on", b="on")
        wait_for(
            lambda: early.deltas and early.deltas[-1]["sequence"] == early.results[-1]["sequence"],
            what="the delta of that result",
        )
    # Deltas lead from each result to the next, without a gap. That of the retained result may come as well.
    state = Counter(rows(early.results[0]))
    deltas = [each for each in early.deltas if each["sequence"] > early.results[0]["sequence"]]
    assert [each["sequence"] for each in deltas] == [each["sequence"] for each in early.results[1:]]
    for delta, result in zip(deltas, early.results[1:], strict=True):
        state.subtract(rows(delta["removedResults"]))
        state.update(rows(delta["addedResults"]))
        assert +state == Counter(rows(result))
    with Dashboard(port_of(gateway)) as late:
        late.shows(a="on", b="on")
    assert late.deltas == []


def test_a_gate_for_queries_alone_answers_nothing(tmp_path, mosquitto):
    write(tmp_path, QUERY)
    with running_gateway(tmp_path, mosquitto.url, mqtt_gate={"enabled": "queries"}) as gateway:
        turn(gateway, "a", "on")
        with Dashboard(mosquitto.port) as dashboard, MqttClient(mosquitto.port) as client:
            dashboard.shows(a="on")
            client.send({"update": {"sparql": "INSERT DATA { <urn:b> <urn:is> 'on' }"}})
            client.send({"query": {"sparql": "ASK { ?s ?p ?o }"}})
            turn(gateway, "a", "off")
            dashboard.shows(a="off")
            assert client.came.empty()
            assert sessions(gateway) == 0
        with MqttClient(mosquitto.port) as client:
            client.client.unsubscribe(f"{ROOT}/status")
            client.client.subscribe(f"{ROOT}/status", 1)
            assert client.status("online").keys() == {"status", "connection"}


def test_fast_changes_are_published_at_the_configured_interval(tmp_path):
    write(tmp_path, QUERY)
    with (
        running_gateway(tmp_path, mqtt_gate={"query_interval": 3600}) as gateway,
        Dashboard(port_of(gateway)) as dashboard,
    ):
        wait_for(lambda: dashboard.results, what="the first result")
        for number in range(20):
            turn(gateway, "a", str(number))
        assert len(dashboard.results) == 1
    with (
        running_gateway(tmp_path, mqtt_gate={"query_interval": 0.5}) as gateway,
        Dashboard(port_of(gateway)) as dashboard,
    ):
        dashboard.shows(a="19")
        for number in range(20):
            turn(gateway, "a", str(number))
        dashboard.shows(a="19")
        turn(gateway, "a", "end")
        dashboard.shows(a="end")
        assert len(dashboard.results) < 20


def test_queries_come_change_and_go_while_it_runs(tmp_path, mosquitto):
    with running_gateway(tmp_path, mosquitto.url) as gateway, Dashboard(mosquitto.port) as dashboard:
        turn(gateway, "a", "on")
        write(tmp_path, "SELECT")
        wait_for(lambda: dashboard.results, what="the error")
        assert (dashboard.results[-1]["error"], dashboard.results[-1]["status_code"]) == ("parsing_failed", 400)
        with httpx.Client(base_url=gateway.endpoints["http"]) as http:
            assert "lamps" in http.get("/health").json()["query_faults"]
            write(tmp_path, QUERY)
            dashboard.shows(a="on")
            assert http.get("/health").json()["query_faults"] == {}
        write(tmp_path, "SELECT ?lamp (UCASE(?s) AS ?state) { ?lamp <urn:is> ?s }")
        dashboard.shows(a="ON")
        (tmp_path / "data" / "queries" / "lamps.rq").unlink()
        wait_for(lambda: dashboard.cleared, what="the empty message")
    with Dashboard(mosquitto.port) as late:
        late.client.publish(f"{ROOT}/query/lamps/delta", "{}", 1)
        wait_for(lambda: late.deltas, what="its own message, behind all that is retained")
        assert late.results == []


def test_the_broker_forgets_queries_that_went_while_the_gateway_was_away(tmp_path, mosquitto):
    write(tmp_path, QUERY)
    with running_gateway(tmp_path, mosquitto.url), Dashboard(mosquitto.port) as dashboard:
        dashboard.shows()
    (tmp_path / "data" / "queries" / "lamps.rq").unlink()
    with Dashboard(mosquitto.port) as dashboard:
        dashboard.shows()
        with running_gateway(tmp_path, mosquitto.url):
            wait_for(lambda: dashboard.cleared, what="the empty message")


def test_results_are_published_again_to_a_broker_without_data(tmp_path, mosquitto):
    write(tmp_path, QUERY)
    with running_gateway(tmp_path, mosquitto.url) as gateway:
        turn(gateway, "a", "on")
        with Dashboard(mosquitto.port) as dashboard:
            dashboard.shows(a="on")
        mosquitto.stop(kill=True)
        turn(gateway, "a", "off")
        (tmp_path / "mosquitto" / "mosquitto.db").unlink(missing_ok=True)
        mosquitto.start()
        with Dashboard(mosquitto.port) as dashboard:
            dashboard.shows(a="off")


def test_a_result_that_is_too_large_is_reported(tmp_path):
    write(tmp_path, QUERY)
    with (
        running_gateway(tmp_path, mqtt_gate={"max_result": 2000, "query_interval": 0.05}) as gateway,
        Dashboard(port_of(gateway)) as dashboard,
    ):
        dashboard.shows()
        update(gateway, "INSERT DATA {" + " ".join(f"<urn:l{n}> <urn:is> '{n}' ." for n in range(100)) + "}")
        wait_for(lambda: dashboard.results[-1].get("error") == "result_too_large", what="the error")
        update(gateway, "DELETE WHERE { ?l <urn:is> ?s }")
        turn(gateway, "a", "on")
        dashboard.shows(a="on")


def test_unreadable_files_are_reported(tmp_path):
    write(tmp_path, "x", "a+b")
    (tmp_path / "data" / "queries" / "bytes.rq").write_bytes(b"\xff")
    write(tmp_path, QUERY)
    with running_gateway(tmp_path) as gateway, Dashboard(port_of(gateway)) as dashboard:
        dashboard.shows()
        faults = httpx.get(gateway.endpoints["http"] + "/health").json()["query_faults"]
        assert {name.rpartition("/")[2] for name in faults} == {"a+b.rq", "bytes.rq"}
