"""A gateway with security announces what one client may see, and sets what it may set."""

from __future__ import annotations

import asyncio

import pytest
from announced_home import Broker

from edge.announce.settings import AnnounceSettings
from edge.config import Settings
from edge.gateway import Gateway
from edge.security.clients import Rights
from tests.security.secured import Harness, settings
from tests.support.waiting import eventually

LAMP = "zigbee2mqtt/lamp"
OPEN = frozenset({""})
HIDDEN = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
INSERT DATA { GRAPH <urn:theirs> {
  <urn:safe/code> a sosa:Observation ; sosa:madeBySensor <urn:safe> ; sosa:hasResult <urn:q> .
  <urn:q> qudt:numericValue 4711 . } }"""


@pytest.fixture
def wanted(tmp_path, mosquitto, monkeypatch) -> Settings:
    monkeypatch.setattr("edge.announce.announcer._LOOK", 0.1)
    base = settings(tmp_path / "data", mqtt={"broker": mosquitto.url})
    announce = AnnounceSettings(home_assistant=True, client="ha", interval=0.05)
    engine = base.engine.model_copy(update={"default_graph_as_union": True})
    return base.model_copy(update={"announce": announce, "engine": engine})


async def test_the_rights_of_a_client_decide(wanted, mosquitto):
    broker = await asyncio.to_thread(Broker, mosquitto.port)
    try:
        async with Gateway(wanted) as gateway:
            harness = Harness(gateway)
            operator = await harness.member("operator")
            await eventually(lambda: gateway._health()["mqtt"] == "connected", "the subscription of the gateway")
            (wanted.data_dir / "queries" / "all.rq").write_text("SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } }")
            assert (await harness.update(operator, HIDDEN)).status_code == 200
            await asyncio.to_thread(broker.publish, LAMP, {"state": "OFF"})
            assert "announce.client" in gateway._health()["announce_fault"]
            assert broker.entities().keys() == {"binary_sensor sepa-edge: Connection"}

            harness.clients.invite("ha", Rights(frozenset({"subscribe"}), read=OPEN), 1000)
            await asyncio.to_thread(broker.shows, "sensor sepa-edge: all", "0")
            await asyncio.to_thread(broker.shows, "binary_sensor lamp: state", "OFF")
            assert "announce_fault" not in gateway._health()
            assert not any("safe" in name for name in broker.entities())

            harness.clients.allow("ha", Rights(frozenset({"subscribe", "update"})))
            await asyncio.to_thread(broker.shows, "sensor safe: code", "4711")
            await asyncio.to_thread(broker.shows, "sensor sepa-edge: all", "4")
            switch = await asyncio.to_thread(broker.entity, "switch lamp: state")
            await eventually(lambda: "binary_sensor lamp: state" not in broker.entities())
            await asyncio.to_thread(broker.publish, switch["command_topic"], "ON")
            await asyncio.to_thread(broker.awaits, f"{LAMP}/set", '{"state":"ON"}')

            harness.clients.revoke("ha")
            await eventually(lambda: broker.entities().keys() == {"binary_sensor sepa-edge: Connection"})
            await asyncio.to_thread(broker.awaits, switch["state_topic"], "")
    finally:
        broker.close()
