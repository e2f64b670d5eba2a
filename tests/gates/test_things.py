"""Devices as things of the Web of Things: descriptions, the directory, reading and setting properties."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import jsonschema
import paho.mqtt.client as paho
import pytest

from tests.support.node_packages import installed
from tests.support.processes import GatewayProcess
from tests.support.waiting import PATIENCE, wait_for

CONSUMER = Path(__file__).parent.parent / "clients" / "node-wot"
SCHEMA = "wot-typescript-definitions/node_modules/wot-thing-description-types/schema/td-json-schema-validation.json"
"""The official schema of TD 1.1, in the packages that node-wot installs."""
LAMP = "urn:sepa-edge:zigbee2mqtt:kitchen/lamp"
STATE = {"state": "OFF", "brightness": 10, "temperature": 20.5, "color_mode": "xy"}
PREFIXES = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> PREFIX edge: <urn:sepa-edge:>
"""


class Home:
    """A gateway with a lamp at its broker."""

    def __init__(self, directory: Path) -> None:
        self.process = GatewayProcess(directory, {"EDGE__HOST__ENABLED": "false", "EDGE__COAP__PORT": "0"})
        endpoints = self.process.start()
        self.http = httpx.Client(base_url=endpoints["http"], timeout=20, trust_env=False)
        self.told: list[tuple[str, object]] = []
        self._listens = False
        self._lamp = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self._lamp.on_connect = lambda client, *_: client.subscribe("zigbee2mqtt/+/+/set", 1)
        self._lamp.on_subscribe = self._subscribed
        self._lamp.on_message = lambda _, __, m: self.told.append((m.topic, json.loads(m.payload)))
        place = urlsplit(endpoints["mqtt"])
        self._lamp.connect(place.hostname, place.port)
        self._lamp.loop_start()
        wait_for(lambda: self._listens, what="the lamp listens")

    def _subscribed(self, *_: object) -> None:
        self._listens = True

    def report(self, topic: str, values: object) -> None:
        self._lamp.publish(topic, json.dumps(values), 1).wait_for_publish(PATIENCE)

    def update(self, text: str) -> None:
        self.http.post("/update", data={"update": PREFIXES + text}).raise_for_status()

    def ask(self, pattern: str) -> bool:
        query = f"{PREFIXES}ASK {{ {pattern} }}"
        return self.http.get("/query", params={"query": query}).json()["boolean"]

    def thing(self, iri: str) -> dict:
        """Return a description after a check with the official schema."""
        answer = self.http.get(thing(iri)).raise_for_status()
        assert answer.headers["content-type"] == "application/td+json"
        return valid(answer.json())

    def close(self) -> None:
        self._lamp.disconnect()
        self._lamp.loop_stop()
        self.http.close()
        self.process.stop()


def thing(iri: str) -> str:
    return f"/things/{quote(iri, safe='')}"


def property_of(iri: str) -> str:
    return f"/properties/{quote(iri, safe='')}"


@functools.cache
def validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((installed(CONSUMER) / SCHEMA).read_text()))


def valid(description: dict) -> dict:
    """Return a description after a check with the official schema."""
    validator().validate(description)
    return description


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("home"))
    home.report("zigbee2mqtt/kitchen/lamp", STATE)
    wait_for(
        lambda: home.http.get(property_of(f"{LAMP}/temperature")).status_code == 200, what="the values of the lamp"
    )
    yield home
    home.close()


def test_a_lamp_has_a_valid_description(home):
    found = home.thing(LAMP)
    assert (found["id"], found["title"], found["@type"]) == (LAMP, "kitchen/lamp", ["sosa:Sensor"])
    assert found["base"] == f"{home.http.base_url}/"
    assert found["securityDefinitions"][found["security"]] == {"scheme": "nosec"}
    assert sorted(found["properties"]) == sorted(STATE)
    schemas = {
        name: {key: each[key] for key in ("type", "minimum", "maximum", "readOnly") if key in each}
        for name, each in found["properties"].items()
    }
    assert schemas == {
        "state": {"type": "boolean"},
        "brightness": {"type": "number", "minimum": 0, "maximum": 254},
        "temperature": {"type": "number", "readOnly": True},
        "color_mode": {"type": "string", "readOnly": True},
    }
    temperature = found["properties"]["temperature"]
    assert temperature["title"] == "temperature of kitchen/lamp"
    assert temperature["unit"] == "http://qudt.org/1.1/vocab/unit#DegreeCelsius"
    assert temperature["sosa:observedProperty"] == {"@id": "urn:sepa-edge:property:temperature"}
    observe = ["observeproperty", "unobserveproperty"]
    assert [form["op"] for form in temperature["forms"]] == ["readproperty", observe]
    assert [form["op"] for form in found["properties"]["state"]["forms"]] == ["readproperty", "writeproperty", observe]


def test_properties_are_read_at_the_addresses_of_the_description(home):
    found = home.thing(LAMP)
    values = {}
    for name, each in found["properties"].items():
        (form,) = (form for form in each["forms"] if form["op"] == "readproperty")
        answer = httpx.request(form["htv:methodName"], found["base"] + form["href"], trust_env=False)
        assert answer.headers["content-type"] == form["contentType"]
        values[name] = answer.json()
    assert values == {**STATE, "state": False}


def test_a_written_property_reaches_the_lamp(home):
    home.told.clear()
    for name, value, message in (("state", "true", {"state": "ON"}), ("brightness", "4e1", {"brightness": 40})):
        (form,) = (form for form in home.thing(LAMP)["properties"][name]["forms"] if form["op"] == "writeproperty")
        answer = home.http.request(
            form["htv:methodName"], f"/{form['href']}", content=value, headers={"Content-Type": form["contentType"]}
        )
        assert (answer.status_code, answer.content) == (204, b"")
        wait_for(lambda: home.told, what="the message")
        assert home.told == [("zigbee2mqtt/kitchen/lamp/set", message)]
        wait_for(lambda: not home.ask("?o edge:desired ?v"), what="the message is acknowledged")
        home.told.clear()


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("brightness", "255", "255 is not possible; send a number from 0 to 254 as JSON"),
        ("brightness", "-1", "-1 is not possible; send a number from 0 to 254 as JSON"),
        ("brightness", '"40"', '"40" is not possible; send a number from 0 to 254 as JSON'),
        ("brightness", "1e999999", "1e999999 is not possible; send a number from 0 to 254 as JSON"),
        ("brightness", "1e-999999", "1e-999999 is not possible: no double has this size"),
        ("brightness", "NaN", "The body has a number that cannot be read; send a number from 0 to 254"),
        ("brightness", "true", "true is not possible; send a number from 0 to 254 as JSON"),
        ("brightness", "", "The body is not JSON"),
        ("brightness", "[" * 60_000, "The body is nested too deeply"),
        ("state", "1", "1 is not possible; send true or false as JSON"),
        ("state", '"\\ud800"', "The body has half a surrogate pair, which is not a character"),
        ("state", json.dumps("x" * 200), "… is not possible; send true or false as JSON"),
    ],
    ids=str,
)
def test_an_impossible_value_is_refused_with_the_possible_ones(home, name, body, reason):
    answer = home.http.put(property_of(f"{LAMP}/{name}"), content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert reason in answer.json()["error_description"]
    assert not home.ask("?o edge:desired ?v")


def test_other_changes_are_refused(home):
    json_type = {"Content-Type": "application/json"}
    answer = home.http.put(property_of(f"{LAMP}/temperature"), content="20", headers=json_type)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert "can only be read" in answer.json()["error_description"]
    assert home.http.put(property_of("urn:nothing"), content="20", headers=json_type).status_code == 404
    answer = home.http.put(property_of(f"{LAMP}/state"), content="true", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415
    for method, path in (("POST", "/things"), ("PUT", thing(LAMP)), ("DELETE", thing(LAMP)), ("PATCH", thing(LAMP))):
        answer = home.http.request(method, path, content="{}")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS"), path
        assert f"{method} does not apply to" in answer.json()["error_description"]


@pytest.mark.parametrize("path", ["/things/", "/things/lamp", "/things/urn:x", "/things/urn:a%3Cb", "/things/%FF"])
def test_an_unknown_thing_is_not_found(home, path):
    for each in (path, path.replace("things", "properties")):
        answer = home.http.get(each)
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


def test_the_gateway_describes_itself_as_a_directory(home):
    answer = home.http.get("/.well-known/wot").raise_for_status()
    assert answer.headers["content-type"] == "application/td+json"
    found = valid(answer.json())
    assert (found["@type"], found["id"]) == ("ThingDirectory", f"{home.http.base_url}/.well-known/wot")
    assert found["@context"][-1] == "https://www.w3.org/2022/wot/discovery"
    (form,) = found["properties"]["things"]["forms"]
    listed = httpx.get(found["base"] + form["href"].partition("{")[0], trust_env=False)
    assert listed.headers["content-type"] == form["contentType"]
    assert LAMP in [valid(each)["id"] for each in listed.json()]
    (form,) = found["actions"]["retrieveThing"]["forms"]
    url = found["base"] + form["href"].replace("{id}", quote(LAMP, safe=""))
    assert httpx.get(url, trust_env=False).json() == home.thing(LAMP)
    (form,) = found["actions"]["searchSPARQL"]["forms"]
    url = found["base"] + form["href"].partition("{")[0]
    answer = httpx.get(url, params={"query": "ASK { ?s ?p ?o }"}, trust_env=False)
    assert (answer.headers["content-type"], answer.json()["boolean"]) == ("application/json", True)
    answer = httpx.get(url, params={"query": "DESCRIBE <urn:x>"}, trust_env=False)
    assert answer.headers["content-type"] == "application/ld+json"
    assert httpx.get(url, params={"query": "CLEAR ALL"}, trust_env=False).status_code == 400
    linked = {home.http.get(f"/{link['href']}").status_code for link in found["links"]}
    assert linked == {200}


def test_an_unchanged_description_is_not_sent_again(home):
    for path in ("/.well-known/wot", "/things", thing(LAMP)):
        answer = home.http.get(path)
        again = home.http.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        head = home.http.head(path)
        assert (head.status_code, head.headers["etag"], head.content) == (200, answer.headers["etag"], b"")
        assert home.http.get(path, headers={"Accept": "text/html"}).status_code == 406


def test_the_list_has_parts_in_the_order_of_iris(home):
    names = [f"http://example.org/part/{number:03}" for number in range(120)]
    triples = " ".join(f"<{each}/t> a sosa:Observation ; sosa:madeBySensor <{each}> ." for each in names)
    home.update(f"INSERT DATA {{ {triples} }}")
    try:
        path, found, parts = "/things?limit=50", [], 0
        while path:
            answer = home.http.get(path).raise_for_status()
            found += [each["id"] for each in answer.json()]
            assert 'rel="canonical"; etag=' in answer.headers["link"]
            path = answer.links.get("next", {}).get("url")
            parts += 1
        assert (parts, found) == (3, sorted({*names, LAMP}))
        whole = home.http.get("/things")
        assert (len(whole.json()), whole.links["next"]["url"]) == (100, "/things?offset=100&limit=100")
        assert home.http.get("/things", params={"offset": 500}).json() == []
    finally:
        home.update(f"DELETE DATA {{ {triples} }}")


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "offset=-1", "offset=1&offset=2", "sort_by=title", "limit=٣"])
def test_other_parameters_of_the_list_are_refused(home, query):
    answer = home.http.get(f"/things?{query}")
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


def test_hostile_devices_have_valid_descriptions(home):
    sensor = "http://example.org/%7Ba%2Fb%7D?x=/../é&y={q}".replace("{q}", "%22")
    label = r"a \"quoted\" </script> {href} \n"
    triples = f"""
      <{sensor}> a sosa:Sensor, <tm:ThingModel>, <https://example.org/Type> ; rdfs:label "{label}", "b"@de ;
        rdfs:comment <urn:no-text> .
      <{sensor}/a> a sosa:Observation ; sosa:madeBySensor <{sensor}> ; rdfs:label <urn:no-label>, 5 ;
        sosa:hasResult <urn:q1> . <urn:q1> qudt:numericValue "x"^^<http://www.w3.org/2001/XMLSchema#integer> .
      <{sensor}/b> a sosa:Observation ; sosa:madeBySensor <{sensor}>, "no IRI" ; sosa:hasResult <urn:q2> .
      <urn:q2> qudt:numericValue "INF"^^<http://www.w3.org/2001/XMLSchema#double> ; qudt:unit "°X" .
      <{sensor}/c> a sosa:Observation ; sosa:madeBySensor <{sensor}> ; sosa:hasResult <urn:q3> .
      <urn:q3> qudt:numericValue 1e300, <urn:iri> .
      <urn:one/d> a sosa:Observation ; sosa:madeBySensor <{sensor}> .
      <urn:two:one/d> a sosa:Observation ; sosa:madeBySensor <{sensor}> .
      [] a sosa:Observation ; sosa:madeBySensor <{sensor}> .
      <urn:alone> a sosa:Observation ; sosa:madeBySensor [], "x" ; sosa:hasResult <urn:q4> .
      <urn:q4> qudt:numericValue .5 ."""
    home.update(f"INSERT DATA {{ {triples} }}")
    try:
        found = home.thing(sensor)
        assert found["title"] == 'a "quoted" </script> {href} \n'
        assert found["@type"] == ["sosa:Sensor", "https://example.org/Type"]
        assert "description" not in found
        assert sorted(found["properties"]) == ["a", "b", "c", "urn:one/d", "urn:two:one/d"]
        assert found["properties"]["a"]["title"] == "5"
        assert found["properties"]["b"]["unit"] == "°X"
        read = {name: home.http.get(f"/{each['forms'][0]['href']}") for name, each in found["properties"].items()}
        assert [read[name].json() for name in "abc"] == ["x", "INF", 1e300]
        assert read["urn:one/d"].status_code == 404
        assert "has no value yet" in read["urn:one/d"].json()["error_description"]
        alone = home.thing("urn:alone")
        assert list(alone["properties"]) == ["alone"]
        assert home.http.get(property_of("urn:alone")).text == "0.5"
        listed = [valid(each)["id"] for each in home.http.get("/things").json()]
        assert listed == sorted([LAMP, sensor, "urn:alone"])
    finally:
        home.update("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(!STRSTARTS(STR(?s), 'urn:sepa-edge:')) }")


def events_of(lines: Iterator[str]) -> Iterator[object]:
    """Yield the values of an event stream (HTML, section 9.2.6)."""
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def test_an_observed_property_sends_each_new_value(home):
    forms = home.thing(LAMP)["properties"]["brightness"]["forms"]
    (form,) = (form for form in forms if "observeproperty" in form["op"])
    assert (form["subprotocol"], form["contentType"]) == ("sse", "application/json")
    home.report("zigbee2mqtt/kitchen/lamp", {"brightness": 10})
    wait_for(lambda: home.http.get(property_of(f"{LAMP}/brightness")).text == "10", what="the value")
    with home.http.stream("GET", f"/{form['href']}", headers={"Accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = events_of(answer.iter_lines())
        assert next(events) == 10
        for value in (11, 254):
            home.report("zigbee2mqtt/kitchen/lamp", {"brightness": value})
            assert next(events) == value
        assert subscriptions(home) == 1
    wait_for(lambda: subscriptions(home) == 0, what="the end of the subscription")


def subscriptions(home: Home) -> float:
    """Return the number of event streams, as the metrics report it."""
    lines = home.http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith('edge_subscriptions{gate="http"}')).split()[1])


def test_an_unknown_property_is_not_observed(home):
    for path, status in ((property_of("urn:nothing"), 404), (property_of(f"{LAMP}/nothing"), 404)):
        answer = home.http.get(path, headers={"Accept": "text/event-stream"})
        assert (answer.status_code, answer.json()["error"]) == (status, "not_found")
    head = home.http.head(property_of(f"{LAMP}/state"), headers={"Accept": "text/event-stream"})
    assert (head.status_code, head.content) == (200, b"")
    assert subscriptions(home) == 0
