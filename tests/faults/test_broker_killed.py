"""Mosquitto is killed under load and restarted: no reading is lost or notified twice, and subscribers notice nothing.

Mosquitto loses messages that it has acknowledged and not delivered when it dies, unless it saves every change, and the
gateway cannot prevent that. So here it delivers at once, and is paused for a moment before the kill, at any point of
its work: messages that it has not acknowledged by then are not acknowledged at all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import paho.mqtt.client as paho
import pytest
from websockets.asyncio.client import connect

from tests.faults.monitored_gateway import Watched
from tests.gates.gate_client import Client, rows
from tests.support.processes import Mosquitto
from tests.support.waiting import eventually, wait_for

SENSORS, READINGS, KILLS = 5, 300, 3
"""Readings of each sensor."""
AT_ONCE = "max_inflight_messages 0"
EACH_CHANGE = "autosave_on_changes true\nautosave_interval 1"

MAPPING = """
[[mapping]]
topic = "sensor/{number}"
observation = "http://example.org/{number}"
"""
VALUES = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?o ?v { ?o a sosa:Observation ; sosa:hasResult ?q . ?q qudt:numericValue ?v }"""


class Sensor:
    """A sensor that publishes 1, 2, 3 and so on at QoS 1, in a session that outlives the broker."""

    def __init__(self, number: int, port: int) -> None:
        self._topic = f"sensor/{number}"
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=f"sensor{number}", clean_session=False)
        self._client.max_queued_messages_set(0)
        self._client.reconnect_delay_set(1, 1)
        self._lost = threading.Event()
        self._client.on_disconnect = lambda *_: self._lost.set()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    async def publish(self) -> None:
        last: paho.MQTTMessageInfo | None = None
        for value in range(1, READINGS + 1):
            # While paho reconnects, it would send a new message before those that wait, which is not the order
            # of the sensor.
            while self._lost.is_set():
                await asyncio.sleep(0.05)
                if self._client.is_connected() and (last is None or last.is_published()):
                    self._lost.clear()
            last = self._client.publish(self._topic, str(value), 1)
            await asyncio.sleep(0.005)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Subscriber:
    """A subscriber that records the values of each sensor in order, over one connection."""

    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = {}
        self.sequence = 0

    def take(self, notification: dict[str, Any]) -> None:
        assert notification["sequence"] == self.sequence + notification.get("merged", 1)
        self.sequence = notification["sequence"]
        for observation, value in rows(notification["addedResults"]):
            self.seen.setdefault(observation, []).append(int(value))

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    async def follow(self, client: Client) -> None:
        while True:
            self.take(await client.notification())

    async def until(self, count: int, following: asyncio.Task[None]) -> None:
        await eventually(lambda: following.done() or self.count >= count, f"{count} readings")
        if following.done():
            following.result()  # its exception


async def freeze_and_kill(broker: Mosquitto, watched: Watched, subscriber: Subscriber) -> None:
    """Kill the broker when all its delivered messages have arrived, while the sensors continue.

    The gateway reports how much it has received; on a loaded machine this report is late.
    """
    assert broker.process is not None
    os.kill(broker.process.pid, signal.SIGSTOP)
    before: tuple[float, int] | None = None
    while before != (now := (await asyncio.to_thread(watched.metric, "edge_mqtt_received"), subscriber.count)):
        before = now
        await asyncio.sleep(1)
    broker.stop(kill=True)


@pytest.mark.parametrize("saving", ["", EACH_CHANGE], ids=["nothing is saved", "each change is saved"])
async def test_readings_arrive_once_and_in_order_over_kills_of_the_broker(mosquitto, gateway, saving):
    broker = mosquitto(f"{AT_ONCE}\n{saving}")
    process = gateway(EDGE__MQTT__BROKER=broker.url, EDGE__MQTT__RECONNECT_MIN="0.1", EDGE__MQTT__RECONNECT_MAX="0.2")
    (process.data_dir / "mappings").mkdir(parents=True)
    (process.data_dir / "mappings" / "sensors.toml").write_text(MAPPING)
    watched = await asyncio.to_thread(Watched, process)
    await asyncio.to_thread(wait_for, lambda: watched.metric("edge_mqtt_connected"))
    subscriber, sensors = Subscriber(), [Sensor(number, broker.port) for number in range(SENSORS)]
    client = Client(await connect(watched.endpoints["ws"], max_size=None))
    assert (await client.subscribe(VALUES))["sequence"] == 0
    following = asyncio.create_task(subscriber.follow(client))
    publishing = [asyncio.create_task(sensor.publish()) for sensor in sensors]
    total = SENSORS * READINGS
    try:
        for share in range(1, KILLS + 1):
            await subscriber.until(share * total // (KILLS + 1), following)
            await freeze_and_kill(broker, watched, subscriber)
            await asyncio.to_thread(broker.start)
        await asyncio.gather(*publishing)
        await subscriber.until(total, following)
    finally:
        following.cancel()
        for sensor in sensors:
            sensor.close()
        await client.socket.close()
    everything = list(range(1, READINGS + 1))
    assert subscriber.seen == {f"http://example.org/{number}": everything for number in range(SENSORS)}
    assert watched.metric("edge_internal_errors_total") == 0
