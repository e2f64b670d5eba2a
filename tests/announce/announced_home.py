"""A gateway that announces, and a client that knows the same of it as Home Assistant."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
from home_assistant_schema import TOPIC, check

from tests.support.processes import GatewayProcess, Mosquitto
from tests.support.waiting import PATIENCE, wait_for

SETTINGS = {
    "EDGE__ANNOUNCE__HOME_ASSISTANT": "true",
    "EDGE__ANNOUNCE__INTERVAL": "0.05",
    "EDGE__ANNOUNCE__RATE": "1000",
    "EDGE__HOST__ENABLED": "false",
    "EDGE__COAP__ENABLED": "false",
    "EDGE__MQTT__RECONNECT_MIN": "0.1",
    "EDGE__MQTT__RECONNECT_MAX": "0.2",
}


class Broker:
    """A client of the broker that knows the last message of each topic, as Home Assistant does."""

    def __init__(self, port: int) -> None:
        self.messages: dict[str, str] = {}
        self.history: dict[str, list[str]] = defaultdict(list)
        self.connections = 0
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = lambda client, *_: client.subscribe("#", 1)
        self.client.on_subscribe = self._subscribed
        self.client.on_message = self._take
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        wait_for(lambda: self.connections, what="the subscription")

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _subscribed(self, *_: object) -> None:
        self.connections += 1

    def _take(self, _: object, __: object, message: paho.MQTTMessage) -> None:
        text = message.payload.decode()
        self.history[message.topic].append(text)
        self.messages[message.topic] = text

    def publish(self, topic: str, payload: object, *, retain: bool = False) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        self.client.publish(topic, text, 1, retain).wait_for_publish(PATIENCE)

    def entities(self) -> dict[str, dict[str, Any]]:
        """Return the valid announcements by component and name."""
        found = {}
        for topic, text in list(self.messages.items()):
            config = json.loads(text) if text and TOPIC.fullmatch(topic) else {}
            if config.get("origin", {}).get("name") == "sepa-edge":  # those of others have none in these tests
                found[f"{check(topic, config)} {config['device']['name']}: {config['name']}"] = config
        return found

    def entity(self, name: str) -> dict[str, Any]:
        """Return an announcement, once it is there."""
        return wait_for(lambda: self.entities().get(name), what=f"{name} in {list(self.entities())}")

    def awaits(self, topic: str, payload: str) -> None:
        wait_for(lambda: self.messages.get(topic) == payload, what=f"{payload} of {topic}")

    def shows(self, name: str, state: str) -> None:
        """Wait for a state of an entity."""
        self.awaits(self.entity(name)["state_topic"], state)

    def awaits_entities(self, *names: str) -> None:
        expected = {*names, "binary_sensor sepa-edge: Connection"}
        wait_for(lambda: self.entities().keys() == expected, what=f"{expected}, not {self.entities().keys()}")


class Home:
    """A gateway at a broker of its own."""

    def __init__(self, directory: Path, mosquitto: Mosquitto, **more: str) -> None:
        self.process = GatewayProcess(directory, {**SETTINGS, "EDGE__MQTT__BROKER": mosquitto.url, **more})
        self.start()

    def start(self) -> None:
        self.http = httpx.Client(base_url=self.process.start()["http"], timeout=20)
        # The broker stores no message for a gateway that has not subscribed yet.
        wait_for(lambda: self.http.get("/health").json()["mqtt"] == "connected", what="the subscription of the gateway")

    def close(self) -> None:
        self.http.close()
        self.process.stop()

    def update(self, text: str) -> None:
        self.http.post("/update", data={"update": text}).raise_for_status()

    def forget(self, observation: str) -> None:
        self.update(f"DELETE WHERE {{ <{observation}> ?p ?o }}")
