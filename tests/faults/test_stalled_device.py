"""An MQTT client that stops reading, and a broker that hangs: they delay no other client."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.faults.bare_mqtt import BareDevice
from tests.faults.monitored_gateway import Watched
from tests.gates.gate_client import Client, rows
from tests.support.waiting import eventually, wait_for

VALUES = "SELECT ?n { <urn:a> <urn:is> ?n }"
COUNT = 200
LONG = "x" * 50_000
"""Large enough that all messages together exceed every buffer on the way."""


class Follower:
    """A client that applies its notifications."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.sequence = first["sequence"]
        self.values = Counter(rows(first["addedResults"]))

    def take(self, body: dict[str, Any]) -> None:
        assert body["sequence"] == self.sequence + body.get("merged", 1)
        self.sequence = body["sequence"]
        self.values.subtract(rows(body["removedResults"]))
        self.values.update(rows(body["addedResults"]))

    @property
    def result(self) -> list[str]:
        return [value for (value,) in (+self.values).elements()]


def value(number: int) -> str:
    return f"{number} {LONG}"


async def write(watched: Watched, number: int) -> None:
    text = f"DELETE WHERE {{ <urn:a> <urn:is> ?o }} ; INSERT DATA {{ <urn:a> <urn:is> '{value(number)}' }}"
    await asyncio.to_thread(watched.update, text)


@pytest.fixture
async def at_mosquitto(gateway, mosquitto):
    """Start a gateway with its broker."""
    broker = mosquitto("set_tcp_nodelay true")
    settings = {"EDGE__MQTT__BROKER": broker.url, "EDGE__MQTT_GATE__ENABLED": "always"}
    watched = await asyncio.to_thread(Watched, gateway(**settings))
    await asyncio.to_thread(wait_for, lambda: watched.metric("edge_mqtt_gate_connected"))
    return watched, broker


async def tell(watched: Watched, port: int, slow: BareDevice) -> int:
    """Send updates while one client reads nothing; a fast one and a WebSocket are notified of each in time.

    Returns the growth of the gateway's memory in bytes.
    """
    quick, socket = await BareDevice.connect("quick", port), Client(await connect(watched.endpoints["ws"]))
    quick_follows, socket_follows = Follower(await quick.subscribe(VALUES)), Follower(await socket.subscribe(VALUES))
    before = watched.usage().memory
    slow.pause()
    for number in range(1, COUNT + 1):
        await write(watched, number)
        socket_follows.take(await socket.notification())
        while quick_follows.sequence < number:
            quick_follows.take(await quick.notification())
        assert quick_follows.result == socket_follows.result == [value(number)]
    grown = watched.usage().memory - before
    quick.vanish()
    await socket.socket.close()
    return grown


async def test_stalled_device_at_mosquitto_gets_all_notifications_later(at_mosquitto):
    watched, broker = at_mosquitto
    slow = await BareDevice.connect("slow", broker.port)
    follower = Follower(await slow.subscribe(VALUES))
    # Each notification has the added and the removed value. The graph and its mirror take memory as well.
    assert await tell(watched, broker.port, slow) < 2 * COUNT * len(LONG), "what waits for it, waits at the broker"
    slow.resume()
    while follower.sequence < COUNT:
        follower.take(await slow.notification())
    assert follower.result == [value(COUNT)]
    slow.vanish()


async def test_the_embedded_broker_disconnects_a_stalled_device(gateway):
    process = gateway(EDGE__MQTT__MAX_UNREAD="1000000")
    watched = await asyncio.to_thread(Watched, process)
    slow = await BareDevice.connect("slow", watched.port("mqtt"))
    await slow.subscribe(VALUES)
    await tell(watched, watched.port("mqtt"), slow)
    await eventually(lambda: watched.metric("edge_subscriptions", "mqtt") == 0, "the end of the session")
    assert "broker.client_cut" in process.log()
    slow.vanish()
    again = await BareDevice.connect("slow", watched.port("mqtt"))
    assert Follower(await again.subscribe(VALUES)).result == [value(COUNT)]
    again.vanish()


async def test_other_clients_are_served_while_the_broker_stalls(at_mosquitto):
    watched, broker = at_mosquitto
    device, socket = await BareDevice.connect("device", broker.port), Client(await connect(watched.endpoints["ws"]))
    device_follows, socket_follows = Follower(await device.subscribe(VALUES)), Follower(await socket.subscribe(VALUES))
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        for number in range(1, COUNT + 1):
            await write(watched, number)
            socket_follows.take(await socket.notification())
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
    assert socket_follows.result == [value(COUNT)]
    reported = 0
    while device_follows.sequence < COUNT:
        device_follows.take(await device.notification())
        reported += 1
    assert device_follows.result == [value(COUNT)]
    assert reported < COUNT
    device.vanish()
    await socket.socket.close()
