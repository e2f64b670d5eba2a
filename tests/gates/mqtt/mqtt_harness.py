"""A whole gateway on its own event loop, and clients that only use MQTT."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from contextlib import contextmanager
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge.config import Settings
from edge.gateway import Gateway
from tests.support.waiting import wait_for

ROOT = "sepa/gateway"
ALL = "SELECT ?s ?p ?o { ?s ?p ?o }"


@contextmanager
def running_gateway(tmp_path, broker: str = "", **sections: Any):
    """Run a gateway at the embedded broker or at another one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    mqtt = {"port": 0, "broker": broker, "reconnect_min": 0.1, "reconnect_max": 0.2, **sections.pop("mqtt", {})}
    gate = {"enabled": "always", **sections.pop("mqtt_gate", {})}
    settings = Settings.model_validate(
        {
            "data_dir": tmp_path / "data",
            "http": {"port": 0},
            "ws": {"port": 0},
            "host": {"enabled": False},
            "mappings": {"packs": []},
            "mqtt": mqtt,
            "mqtt_gate": gate,
            **sections,
        }
    )
    settings.data_dir.mkdir(exist_ok=True)
    gateway = Gateway(settings)
    try:
        run(gateway.start())
        yield gateway
    finally:
        run(gateway.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def port_of(gateway: Gateway) -> int:
    return int(gateway.endpoints["mqtt"].rpartition(":")[2])


class MqttClient:
    """A client like a device: it publishes requests and waits for messages on its own topic."""

    def __init__(self, port: int, name: str = "me", *, five: bool = False, will: bool = False) -> None:
        self.name = name
        self.five = five
        self.came: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.statuses: queue.Queue[dict[str, Any]] = queue.Queue()
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5 if five else paho.MQTTv311
        )
        self.client.reconnect_delay_set(1, 1)
        if will:
            self.client.will_set(f"{ROOT}/status/{name}", "offline", qos=1)
        self.subscribed = threading.Event()
        self.client.on_connect = lambda client, *_: client.subscribe(
            [(f"{ROOT}/response/{name}/#", 1), (f"{ROOT}/status", 1)]
        )
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = self._take
        self.client.on_socket_open = lambda *arguments: arguments[2].setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self.client.connect("127.0.0.1", port)

    def __enter__(self) -> MqttClient:
        self.client.loop_start()
        assert self.subscribed.wait(20)
        assert self.status("online")
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _take(self, _: object, __: object, message: paho.MQTTMessage) -> None:
        if message.topic == f"{ROOT}/status":
            self.statuses.put(json.loads(message.payload))
        else:
            self.came.put(message)

    def status(self, wanted: str) -> dict[str, Any]:
        """Return the next status of the gateway that satisfies the condition."""
        while (found := self.statuses.get(timeout=20))["status"] != wanted:
            pass
        return found

    def online(self, besides: str) -> str:
        """Wait until the gateway has a connection to the broker other than `besides`; return it."""
        while (found := self.status("online"))["connection"] == besides:
            pass
        return found["connection"]

    def send(self, message: Any, *, qos: int = 1, retain: bool = False, **properties: Any) -> None:
        about = None
        if properties:
            about = Properties(PacketTypes.PUBLISH)
            for name, value in properties.items():
                setattr(about, name, value)
        payload = message if isinstance(message, str | bytes) else json.dumps(message)
        self.client.publish(f"{ROOT}/request/{self.name}", payload, qos, retain, about)

    def say(self, status: str) -> None:
        self.client.publish(f"{ROOT}/status/{self.name}", status, 1)

    def message(self, seconds: float = 20) -> paho.MQTTMessage:
        return self.came.get(timeout=seconds)

    def receive(self) -> dict[str, Any]:
        return json.loads(self.message().payload)

    def ask(self, message: Any) -> dict[str, Any]:
        self.send(message)
        return self.receive()

    def subscribe(self, sparql: str = ALL, **members: Any) -> dict[str, Any]:
        answer = self.ask({"subscribe": {"sparql": sparql, **members}})
        assert answer["notification"]["sequence"] == 0, answer
        return answer["notification"]

    def update(self, sparql: str) -> None:
        assert "updated" in self.ask({"update": {"sparql": sparql}})

    def vanish(self) -> None:
        """Break the connection without a DISCONNECT."""
        self.client._sock.close()  # paho has no public method for an unclean end
        self.client.loop_stop()


def subscriptions(gateway: Gateway) -> float:
    return gateway.metrics.registry.get_sample_value("edge_subscriptions", {"gate": "mqtt"}) or 0.0


def sessions(gateway: Gateway) -> float:
    return gateway.metrics.registry.get_sample_value("edge_connections", {"gate": "mqtt"}) or 0.0


def connection(gateway: Gateway) -> str:
    return gateway._mqtt.gate._connection


def wait_for_sessions(gateway: Gateway, count: int) -> None:
    wait_for(lambda: sessions(gateway) == count, what=f"{count} sessions")
