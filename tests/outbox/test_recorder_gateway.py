"""All inputs of a gateway that the recorder stores, and the content of its outbox."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import paho.mqtt.client as paho
import pyoxigraph as ox
import pytest
from recorder_harness import Harness, Stored
from websockets.asyncio.client import connect

from edge.client import Producer
from edge.config import Settings
from edge.gateway import Gateway
from edge.gateway.errors import StartError
from edge.jsap import Profile
from edge.outbox.observation import QUDT, SOSA, XSD, ObservationContext
from edge.outbox.settings import OutboxSettings
from tests.gates.gate_client import Client
from tests.support.waiting import eventually

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring" / "monitoring.jsap"
MAPPING = """
[[mapping]]
topic = "room/{room}"
observation = "http://example.org/{room}"
location = "http://example.org/rooms/{room}"
unit = "unit:DegreeCelsius"
store = { dead_band = 0.5 }

[[mapping]]
topic = "unstored/{room}"
observation = "http://example.org/unstored-{room}"
"""


def settings(data_dir: Path, **sections: Any) -> Settings:
    anywhere = {"port": 0}
    base = {"data_dir": data_dir, "http": anywhere, "ws": anywhere, "mqtt": {"enabled": False}}
    return Settings.model_validate({**base, "host": {"enabled": False}, **sections})


def stored(data_dir: Path) -> list[Stored]:
    """Return the waiting observations of a stopped gateway."""
    with Harness(data_dir) as harness:
        return harness.stored()


async def test_store_observation_update_of_the_paper_is_stored(tmp_path):
    async with Gateway(settings(tmp_path / "data")) as gateway:
        profile = json.loads(MONITORING.read_text())
        endpoint = profile["updates"]["STORE_OBSERVATION"]["sparql11protocol"]
        endpoint["port"] = urlsplit(gateway.endpoints["http"]).port
        endpoint["update"]["path"] = "/history"
        file = tmp_path / "monitoring.jsap"
        file.write_text(json.dumps(profile))
        async with Producer(Profile.load(file), "STORE_OBSERVATION") as producer:
            await producer.produce(observation="arces-monitor:o1", unit="qudt-unit-1-1:Percent", value=22.5)
        async with httpx.AsyncClient(base_url=gateway.endpoints["http"], trust_env=False) as http:
            answer = await http.post("/query", data={"query": "ASK { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"})
            assert answer.json()["boolean"] is False
            refused = await http.post("/history", data={"update": "CLEAR ALL"})
            assert refused.status_code == 400
            again = await http.post("/history", data={"update": "INSERT DATA { <urn:s> <urn:p> 1 }"})
            assert again.json()["response"]["body"] == "Update done: 0 added, 0 removed, 1 stored"
    first, second = stored(tmp_path / "data")
    assert first.context.unit == "http://qudt.org/1.1/vocab/unit#Percent"
    assert (first.cells.observation, float(first.cells.value)) == ("http://mml.arces.unibo.it/monitor#o1", 22.5)
    assert second.cells.quads == f'<urn:s> <urn:p> "1"^^<{XSD}integer> .'


async def test_over_a_websocket_into_the_graph_of_the_history(tmp_path):
    async with Gateway(settings(tmp_path, outbox={"graph": "urn:mine"})) as gateway:
        client = Client(await connect(gateway.endpoints["ws"]))
        text = "INSERT DATA { GRAPH <urn:mine> { <urn:s> <urn:p> 'x' } <urn:live> <urn:p> 'x' }"
        await client.send({"update": {"sparql": text}})
        assert (await client.receive())["updated"] == {"added": 1, "removed": 0, "stored": 1}
        await client.socket.close()
    with Harness(tmp_path, OutboxSettings(graph="urn:mine")) as harness:
        assert harness.values() == ['<urn:s> <urn:p> "x" .']
        assert harness.rows("SELECT ?s { ?s ?p ?o }") == [(ox.NamedNode("urn:live"),)]


async def test_readings_over_mqtt_as_their_mapping_says(tmp_path):
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "rooms.toml").write_text(MAPPING)
    async with Gateway(settings(tmp_path, mqtt={"port": 0})) as gateway:
        await asyncio.to_thread(publish, urlsplit(gateway.endpoints["mqtt"]).port)
        async with httpx.AsyncClient(base_url=gateway.endpoints["http"], trust_env=False) as http:
            reading = f"<http://example.org/unstored-a> <{SOSA}hasResult>/<{QUDT}numericValue> ?value"
            query = f"ASK {{ {reading} FILTER(?value = 9) }}"

            async def in_graph() -> bool:
                return (await http.post("/query", data={"query": query})).json()["boolean"]

            await eventually(in_graph, "the reading that is not stored to be in the graph")
    found = stored(tmp_path)
    assert [(each.context.series, each.cells.value) for each in found] == [
        ("http://example.org/a", "20"),
        ("http://example.org/b", "5"),
        ("http://example.org/a", "20.5"),
    ]
    assert found[0].context == ObservationContext(
        series="http://example.org/a",
        topic="room/a",
        feature="http://example.org/rooms/a",
        unit="http://qudt.org/1.1/vocab/unit#DegreeCelsius",
        datatype=XSD + "decimal",
    )


def publish(port: int) -> None:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for topic, value in [("room/a", 20), ("room/b", 5), ("room/a", 20.4), ("room/a", 20.5), ("unstored/a", 9)]:
        client.publish(topic, str(value), 1).wait_for_publish(20)
    client.disconnect()
    client.loop_stop()


async def test_a_graph_that_is_in_use_is_refused_with_the_remedy(tmp_path):
    with Harness(tmp_path) as harness:
        harness.update("INSERT DATA { GRAPH <urn:used> { <a:s> <a:p> 1 } }")
    with pytest.raises(StartError, match=r"outbox\.graph: The graph urn:used has been used"):
        async with Gateway(settings(tmp_path, outbox={"graph": "urn:used"})):
            pass
