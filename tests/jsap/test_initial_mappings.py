"""`extended.semantic-mappings` (Listing 17): a profile among the mapping files; messages become observations."""

import asyncio
import json

import httpx
import paho.mqtt.publish as publish
import pytest
from profiles import MONITORING, problems, profile

from edge.config import Settings
from edge.gateway import Gateway
from edge.jsap import Profile
from edge.mapping import Mapper, MappingError
from edge.mapping_files import load_file

TOPIC = "pepoli/6lowpan/network/NODO1/Temperature"
OBSERVATION = "http://mml.arces.unibo.it/monitor#Pepoli-6lowpan-Nodo1-Temperature"


def gateway(data_dir) -> Gateway:
    """Run a gateway with the profile as its only mapping file, and no packs."""
    directory = data_dir / "mappings"
    directory.mkdir(parents=True)
    (directory / "monitoring.jsap").write_text(MONITORING.read_text())
    any_port = {"port": 0}
    sections = {"http": any_port, "ws": any_port, "mqtt": any_port, "host": {"enabled": False}}
    return Gateway(Settings.model_validate({"data_dir": data_dir, "mappings": {"packs": []}, **sections}))


async def test_a_message_becomes_the_value_of_the_observation(tmp_path):
    values = Profile.load(MONITORING).query("OBSERVATIONS_VALUES").text()
    async with (
        gateway(tmp_path) as running,
        httpx.AsyncClient(base_url=running.endpoints["http"]) as client,
        asyncio.timeout(30),
    ):
        assert (await client.get("/health")).json()["mapping_faults"] == []
        host, port = running.endpoints["mqtt"].removeprefix("mqtt://").split(":")
        found = []
        while not found:
            await asyncio.to_thread(publish.single, TOPIC, "T=21.5 C", 1, hostname=host, port=int(port))
            answer = await client.get("/query", params={"query": values})
            found = answer.json()["results"]["bindings"]
        (row,) = found
        assert {name: row[name]["value"] for name in ("observation", "value", "label", "location", "unit")} == {
            "observation": OBSERVATION,
            "value": "21.5",
            "label": "Server room temperature",
            "location": "http://mml.arces.unibo.it/monitor#Star",
            "unit": "http://qudt.org/1.1/vocab/unit#DegreeCelsius",
        }


@pytest.mark.parametrize("name", ["app.jsap", "app.yaml", "app.yml"])
def test_a_profile_with_its_includes_is_a_mapping_file(tmp_path, name):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "monitoring.jsap").write_text(MONITORING.read_text())
    (tmp_path / name).write_text('{"include": ["app/monitoring.jsap"]}')
    (reading,) = Mapper([load_file(tmp_path / name)]).map(TOPIC, b"T=21.5 C").readings
    assert (reading.observation, str(reading.value)) == (OBSERVATION, "21.5")
    assert (reading.unit, reading.label) == (
        "http://qudt.org/1.1/vocab/unit#DegreeCelsius",
        "Server room temperature",
    )


def test_braces_in_a_topic_of_a_profile_are_literal(tmp_path):
    odd = {"a/{b}/{{": {"observation": "<edge:own>", "label": "{x}"}}
    (tmp_path / "p.jsap").write_text(json.dumps({"extended": {"semantic-mappings": odd}}))
    (reading,) = Mapper([load_file(tmp_path / "p.jsap")]).map("a/{b}/{{", b"1").readings
    assert (reading.observation, reading.label) == ("edge:own", "{x}")


def test_a_broken_profile_is_a_broken_mapping_file(tmp_path):
    (tmp_path / "p.jsap").write_text('{"queries": {\n "Q": {"sparql": "SELECT"},\n "R": 5}}')
    with pytest.raises(MappingError) as refused:
        load_file(tmp_path / "p.jsap")
    assert [fault.line for fault in refused.value.faults] == [2, 3, 3]
    assert str(refused.value.faults[0]).startswith(f"{tmp_path / 'p.jsap'}:2: ")


def test_mappings_are_typed_records_with_complete_iris():
    table = {"t": {"observation": "ex:o", "unit": "ex:u", "location": "urn:l", "comment": "c", "label": "l"}}
    (mapping,) = profile(extended={"semantic-mappings": table, "more": 1}).mappings
    assert (mapping.topic, mapping.observation, mapping.unit) == ("t", "http://example.org/o", "http://example.org/u")
    assert (mapping.location, mapping.comment, mapping.label) == ("urn:l", "c", "l")
    assert profile().mappings == ()
    (problem,) = problems('{"extended": {"semantic-mappings": {"t": {"observation": "a:b", "unit": 5}}}}')[1:]
    assert problem.reason == "must be a text"
