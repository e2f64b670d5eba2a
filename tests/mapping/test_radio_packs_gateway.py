"""The packs for LoRaWAN, Bluetooth and 433 MHz in a gateway: messages to its broker become observations."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.publish as publish

from edge.adapters.observations import Observations
from edge.adapters.planner import Arrival
from edge.config import Settings
from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification
from edge.engine.start import open_engine
from edge.gateway import Gateway
from edge.mapping import Mapper, load_builtin

PACKS = ["chirpstack", "thethingsstack", "openmqttgateway", "rtl_433"]
SAMPLES = Path(__file__).parent / "samples"
PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>"
QUERY = f"""{PREFIXES}
SELECT ?o ?unit {{
  ?o sosa:observedProperty ?p ; sosa:hasFeatureOfInterest ?f ; sosa:madeBySensor ?s ; sosa:hasResult ?q .
  ?q qudt:numericValue ?v ; qudt:unit ?unit }}
"""
LABELS = """PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> PREFIX sosa: <http://www.w3.org/ns/sosa/>
SELECT DISTINCT ?label { ?s a sosa:Sensor ; rdfs:label ?label
  FILTER(CONTAINS(STR(?s), ":lorawan:") || ?label = "THB1-3F9E5D") }"""
ENCRYPTED = f"""{PREFIXES}
ASK {{ <urn:sepa-edge:ble:BC026EAABBCC/encrypted/TheengsGateway> sosa:hasResult/qudt:numericValue false }}"""


def gateway(data_dir: Path) -> Gateway:
    any_port = {"port": 0}
    sections = {"http": any_port, "ws": any_port, "mqtt": any_port, "host": {"enabled": False}}
    return Gateway(Settings.model_validate({"data_dir": data_dir, "mappings": {"packs": PACKS}, **sections}))


async def test_the_samples_of_all_packs_become_observations_with_unit_property_place_and_sensor(tmp_path):
    samples = [each for name in PACKS for each in json.loads((SAMPLES / f"{name}.json").read_text("utf-8"))]
    # The pack for single values is not switched on here.
    samples = [each for each in samples if not any(name.startswith("rtl_433_devices") for name in each["mapping"])]
    wanted = {f"urn:sepa-edge:{reading.partition(' ')[0]}" for each in samples for reading in each["readings"]}
    messages = [{"topic": each["topic"], "payload": each["payload"], "qos": 1} for each in samples]
    async with (
        gateway(tmp_path) as running,
        httpx.AsyncClient(base_url=running.endpoints["http"]) as client,
        asyncio.timeout(30),
    ):
        host, port = running.endpoints["mqtt"].removeprefix("mqtt://").split(":")
        await asyncio.to_thread(publish.multiple, messages, hostname=host, port=int(port))
        found: dict[str, str] = {}
        while found.keys() != wanted:
            rows = (await client.get("/query", params={"query": QUERY})).json()["results"]["bindings"]
            found = {row["o"]["value"]: row["unit"]["value"] for row in rows}
            assert found.keys() <= wanted
        assert found["urn:sepa-edge:ble:582D3433AADF/tempc"].endswith("#DegreeCelsius")
        assert (await client.get("/api/bad-values")).json() == []
        # The names of LoRaWAN and Bluetooth devices are in their messages only, and not in their addresses.
        rows = (await client.get("/query", params={"query": LABELS})).json()["results"]["bindings"]
        assert {row["label"]["value"] for row in rows} == named_devices(samples) | {"THB1-3F9E5D"}
        # The decoder has its key now.
        decoded = {
            "topic": "home/TheengsGateway/BTtoMQTT/BC026EAABBCC",
            "payload": '{"model_id": "SBBT-002C", "batt": 100}',
            "qos": 1,
        }
        await asyncio.to_thread(publish.multiple, [decoded], hostname=host, port=int(port))
        decrypted = False
        while not decrypted:
            decrypted = (await client.get("/query", params={"query": ENCRYPTED})).json()["boolean"]


def named_devices(samples: list[dict[str, Any]]) -> set[str]:
    """Return the names of LoRaWAN devices in messages that have readings."""
    payloads = [json.loads(each["payload"]) for each in samples if each["readings"] and "/device" in each["topic"]]
    found = {each.get("deviceInfo", {}).get("deviceName") for each in payloads}
    return (found | {each.get("end_device_ids", {}).get("device_id") for each in payloads}) - {None}


def test_subscribers_see_one_change_of_a_value_that_two_gateways_report():
    mapper = Mapper([load_builtin("openmqttgateway")])
    engine = open_engine(None)
    observations = Observations(engine)
    observations.start()
    seen: list[str] = []

    def note(event: SubscriberNotification | SubscribeFailed) -> None:
        assert isinstance(event, SubscriberNotification)
        seen.extend(f"-{row[0].value}" for row in event.delta.removed)
        seen.extend(f"+{row[0].value}" for row in event.delta.added)

    query = f"{PREFIXES} SELECT ?v {{ <urn:sepa-edge:ble:582D3433AADF/tempc> sosa:hasResult/qudt:numericValue ?v }}"
    try:
        engine.subscribe(QueryRequest(query), note).result(10)
        noon = datetime(2026, 1, 15, 12, tzinfo=UTC)
        for seconds, (gateway, value) in enumerate([("A", 26), ("B", 26), ("A", 26), ("B", 26.5), ("A", 26.5)]):
            payload = json.dumps({"model_id": "LYWSDCGQ", "type": "THB", "tempc": value}).encode()
            readings = mapper.map(f"home/{gateway}/BTtoMQTT/582D3433AADF", payload).readings
            observations.write([Arrival(each, noon + timedelta(seconds=seconds)) for each in readings]).result(10)
    finally:
        observations.close()
        assert engine.close()
    assert seen == ["+26", "-26", "+26.5"]
