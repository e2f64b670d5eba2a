"""An MQTT client with a will, as docs/mqtt-gate.md recommends."""

from __future__ import annotations

import json
import queue
import threading
from typing import Any

import paho.mqtt.client as paho

ROOT = "sepa/gateway"


class Device:
    """A client of the gateway through the broker.

    Its sockets belong to the network namespace in which it is created.
    """

    def __init__(self, name: str, host: str, port: int, keepalive: int = 60) -> None:
        self.name = name
        self.came: queue.Queue[dict[str, Any]] = queue.Queue()
        self.subscribed = threading.Event()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name)
        self.client.reconnect_delay_set(1, 1)
        self.client.will_set(f"{ROOT}/status/{name}", "offline", 1)
        self.client.on_connect = self._connected
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = lambda _, __, message: self.came.put(json.loads(message.payload))
        self.client.connect(host, port, keepalive)
        self.client.loop_start()
        assert self.subscribed.wait(20)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _connected(self, client: paho.Client, *_: object) -> None:
        client.publish(f"{ROOT}/status/{self.name}", "online", 1)
        client.subscribe(f"{ROOT}/response/{self.name}", 1)

    def receive(self, seconds: float = 20) -> dict[str, Any]:
        return self.came.get(timeout=seconds)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.client.publish(f"{ROOT}/request/{self.name}", json.dumps(message), 1)
        return self.receive()

    def subscribe(self, sparql: str, **members: Any) -> dict[str, Any]:
        answer = self.ask({"subscribe": {"sparql": sparql, **members}})
        assert "notification" in answer, answer
        return answer["notification"]

    def notification(self) -> dict[str, Any]:
        return self.receive()["notification"]
