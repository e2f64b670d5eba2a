"""A simulated edge node: a client of the broker that answers requests for a rebirth."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import paho.mqtt.client as paho

from tests.sparkplug import tahu
from tests.support.waiting import wait_for

Fill = Callable[[object], None]


class EdgeNode:
    """An edge node with one device. `fill` and `fill_device` add the metrics of the births."""

    def __init__(self, port: int, group: str, name: str, *, fill: Fill, device: str = "", fill_device: Fill = print):
        self.group, self.name, self.device = group, name, device
        self.fill, self.fill_device = fill, fill_device
        self.port = port
        self.lock = threading.RLock()
        """Held while the sequence number changes: births also come from the thread of the client."""
        self.seq = 0
        self.bdseq = 0
        self.answers = True
        """Whether it answers requests for a rebirth."""
        self.rebirths = 0
        """Requests for a rebirth."""
        self.commands: list[object] = []
        """Metrics of the other commands."""

    def connect(self) -> None:
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.will_set(self.topic("NDEATH"), self.death(), 1)
        self.client.on_message = self._message
        subscribed: list[int] = []
        self.client.on_subscribe = lambda *_: subscribed.append(1)
        self.client.connect("127.0.0.1", self.port)
        self.client.loop_start()
        self.client.subscribe([(self.topic("NCMD"), 1), (f"{self.topic('DCMD')}/+", 1)])
        wait_for(lambda: subscribed, "subscribed")

    def topic(self, kind: str) -> str:
        return f"spBv1.0/{self.group}/{kind}/{self.name}"

    def death(self) -> bytes:
        payload = tahu.Payload()
        tahu.metric(payload, self.bdseq, tahu.INT64, name="bdSeq")
        return payload.SerializeToString()

    def births(self) -> None:
        def node(payload) -> None:
            tahu.metric(payload, self.bdseq, tahu.INT64, name="bdSeq")
            tahu.metric(payload, value=False, datatype=tahu.BOOLEAN, name="Node Control/Rebirth")
            self.fill(payload)

        with self.lock:
            self.seq = 0
            self.send("NBIRTH", node)
            if self.device:
                self.send("DBIRTH", self.fill_device)

    def send(self, kind: str, fill: Fill = lambda _: None, *, lost: bool = False) -> None:
        """Publish a message with the next sequence number. `lost`: it does not arrive."""
        with self.lock:
            payload = tahu.Payload(timestamp=time.time_ns() // 1_000_000, seq=self.seq)
            self.seq = (self.seq + 1) % 256
            fill(payload)
            if not lost:
                self.publish(kind, payload.SerializeToString())

    def publish(self, kind: str, content: bytes) -> None:
        topic = self.topic(kind) + (f"/{self.device}" if kind.startswith("D") else "")
        self.client.publish(topic, content, 0)

    def lose_connection(self) -> None:
        """End without DISCONNECT, so that the broker publishes the death."""
        self.client.on_message = None
        connection = self.client.socket()
        connection.shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()
        connection.close()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _message(self, _: object, __: object, message: paho.MQTTMessage) -> None:
        for metric in tahu.Payload.FromString(message.payload).metrics:
            if metric.name != "Node Control/Rebirth":
                self.commands.append(metric)
                continue
            self.rebirths += 1
            if self.answers:
                self.births()
