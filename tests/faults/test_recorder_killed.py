"""A gateway is killed under load repeatedly: its outbox has all acknowledged observations, once and without gaps."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from edge.engine.journal.sqlite_schema import FILE_NAME
from edge.outbox import sqlite_tables
from edge.outbox.observation import OWL_TIME, QUDT, SOSA
from edge.outbox.segment import cells
from tests.faults.monitored_gateway import Watched
from tests.support.waiting import wait_for

KILLS = 5
READINGS = 1500
MAPPING = """
[[mapping]]
topic = "sensor/{number}"
observation = "http://example.org/{number}"
store = "all"
"""
STORE = f"""
INSERT {{
  <urn:client> a <{SOSA}Observation> ; <{SOSA}hasResult> ?q .
  ?q a <{QUDT}QuantityValue> ; <{QUDT}numericValue> VALUE ; <{OWL_TIME}hasTime> ?i .
  ?i a <{OWL_TIME}Instant> ; <{OWL_TIME}inXSDDateTimeStamp> ?now
}} WHERE {{
  BIND(IRI(CONCAT("urn:q:", STRUUID())) AS ?q) BIND(IRI(CONCAT(STR(?q), "-i")) AS ?i) BIND(STR(NOW()) AS ?now)
}}
"""


def stored(data_dir: Path) -> list[tuple[str | None, str]]:
    """Return series and value of all waiting observations. Their numbers must have no gaps."""
    uri = f"{(data_dir / FILE_NAME).as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        rows = list(sqlite_tables.read_rows(connection.execute, 1, 1_000_000))
        contexts = dict(sqlite_tables.read_contexts(connection.execute))
    assert [seq for seq, _, _ in rows] == list(range(1, len(rows) + 1))
    return [(contexts[context].series, cells(body).value or "") for _, context, body in rows]


async def store(watched: Watched, acknowledged: list[str], attempted: list[str], seconds: float) -> None:
    """Store values over HTTP one after the other, until the time is over or the gateway is gone."""
    end = asyncio.get_running_loop().time() + seconds
    with contextlib.suppress(OSError, HTTPException):
        while asyncio.get_running_loop().time() < end:
            value = str(len(attempted))
            attempted.append(value)
            status, answer = await asyncio.to_thread(watched.ask, "/history", update=STORE.replace("VALUE", value))
            assert (status, answer["stored"]) == (200, 1)
            acknowledged.append(value)


def publish(port: int, values: Sequence[int]) -> tuple[paho.Client, paho.MQTTMessageInfo]:
    """Publish all messages to the broker, which queues them while the gateway is down. The last may be in flight."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.max_queued_messages_set(0)
    client.connect("127.0.0.1", port)
    client.loop_start()
    *_, last = [client.publish(f"sensor/{value % 3}", str(value), 1) for value in values]
    return client, last


@pytest.mark.timeout(240)
async def test_acknowledged_observations_are_stored_once(gateway, mosquitto):
    random.seed(6)
    broker = mosquitto()
    process = gateway(EDGE__MQTT__BROKER=broker.url, EDGE__MQTT__RECONNECT_MAX="1")
    (process.data_dir / "mappings").mkdir(parents=True)
    (process.data_dir / "mappings" / "sensors.toml").write_text(MAPPING)
    acknowledged: list[str] = []
    attempted: list[str] = []
    parts = [range(start, start + READINGS // KILLS) for start in range(0, READINGS, READINGS // KILLS)]
    for part in parts:
        watched = await asyncio.to_thread(Watched, process)
        await asyncio.to_thread(wait_for, lambda watched=watched: watched.metric("edge_mqtt_connected"))
        storing = asyncio.create_task(store(watched, acknowledged, attempted, 20))
        client, last = await asyncio.to_thread(publish, broker.port, part)
        await asyncio.sleep(random.uniform(0, 0.5))
        await asyncio.to_thread(process.kill)
        await storing
        await asyncio.to_thread(last.wait_for_publish, 30)
        client.disconnect()
        client.loop_stop()
    watched = await asyncio.to_thread(Watched, process)

    def all_there() -> bool:
        return len([1 for series, _ in stored(process.data_dir) if series]) >= READINGS

    await asyncio.to_thread(wait_for, all_there, "the readings")
    await asyncio.to_thread(process.stop)
    found = stored(process.data_dir)
    readings = Counter(value for series, value in found if series)
    assert readings == Counter(map(str, range(READINGS)))
    by_client = Counter(value for series, value in found if series is None)
    assert set(by_client.values()) <= {1}
    assert set(acknowledged) <= set(by_client) <= set(attempted)
    assert acknowledged
