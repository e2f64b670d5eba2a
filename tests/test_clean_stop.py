"""A clean shutdown preserves the messages that the embedded broker has acknowledged."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.processes import GatewayProcess

COUNT = 300
MAPPING = """
[[mapping]]
topic = "stop/{number}"
observation = "http://example.org/{number}"
"""
VALUES = """SELECT ?o { ?o <http://www.w3.org/ns/sosa/hasResult> ?q .
?q <http://qudt.org/1.1/schema/qudt#numericValue> ?v FILTER(?v = %d) }"""


@pytest.mark.timeout(180)
def test_acknowledged_updates_are_stored(tmp_path: Path):
    gateway = GatewayProcess(tmp_path / "data", {"EDGE__HOST__ENABLED": "false"})
    (tmp_path / "data" / "mappings").mkdir(parents=True)
    (tmp_path / "data" / "mappings" / "stop.toml").write_text(MAPPING)
    for value, seconds in ((1, 0.02), (2, 0.05), (3, 0.1)):
        broker = urlsplit(gateway.start()["mqtt"])
        client = mqtt.Client(CallbackAPIVersion.VERSION2)
        client.connect(broker.hostname or "", broker.port or 0)
        client.loop_start()
        sent = [client.publish(f"stop/{number}", str(value), qos=1) for number in range(COUNT)]
        time.sleep(seconds)
        assert gateway.stop() == 0, gateway.log()
        acknowledged = {number for number, message in enumerate(sent) if message.is_published()}
        client.disconnect()
        client.loop_stop()
        http = gateway.start()["http"]
        with urllib.request.urlopen(f"{http}/query", urlencode({"query": VALUES % value}).encode()) as answer:
            rows = json.load(answer)["results"]["bindings"]
        gateway.stop()
        stored = {int(row["o"]["value"].rsplit("/", 1)[1]) for row in rows}
        assert acknowledged <= stored
