"""A gateway is killed under load and restarted: its subscribers resume at their last position."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from http.client import HTTPException
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.faults.bare_mqtt import BareDevice
from tests.faults.monitored_gateway import Watched
from tests.gates.gate_client import Client, rows
from tests.support.waiting import eventually

KILLS = 4
EACH = 60
"""Updates between two kills."""
QUERY = "SELECT ?s ?n { ?s <urn:is> ?n }"


class Follower:
    """A subscriber that checks and applies its notifications, and resumes after a loss.

    It never restarts from scratch.
    """

    def __init__(self) -> None:
        self.result: Counter[tuple[str, ...]] = Counter()
        self.spuid = ""
        self.sequence = 0

    async def come(self, url: str) -> Client:
        client = Client(await connect(url))
        if not self.spuid:
            first = await client.subscribe(QUERY, resume=True)
            self.spuid = first["spuid"]
            self.result = Counter(rows(first["addedResults"]))
        else:
            missed = await client.subscribe(QUERY, spuid=self.spuid, sequence=self.sequence)
            assert missed["spuid"] == self.spuid, "it begins anew"
            self.take(missed)
        return client

    def take(self, body: dict[str, Any]) -> None:
        assert body["sequence"] == self.sequence + body.get("merged", 1)
        self.sequence = body["sequence"]
        removed, added = Counter(rows(body["removedResults"])), Counter(rows(body["addedResults"]))
        assert removed <= self.result
        self.result = self.result - removed + added

    async def follow(self, client: Client) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.take(await client.notification())


async def load(watched: Watched, number: int, done: list[int]) -> None:
    """Overwrite one value and add another until the gateway is gone. `done`: the acknowledged updates."""
    for step in range(EACH):
        value = number * EACH + step
        insert = f"INSERT DATA {{ <urn:a> <urn:is> {value} . <urn:b> <urn:is> {value} }}"
        text = f"DELETE WHERE {{ <urn:a> <urn:is> ?o }} ; {insert}"
        await asyncio.to_thread(watched.update, text)
        done.append(value)


@pytest.mark.timeout(180)
async def test_a_subscriber_resumes_after_each_kill_and_misses_nothing(gateway):
    process = gateway(EDGE__MQTT__ENABLED="false")
    follower, done = Follower(), []
    for number in range(KILLS):
        watched = await asyncio.to_thread(Watched, process)
        client = await follower.come(watched.endpoints["ws"])
        following = asyncio.create_task(follower.follow(client))
        await load(watched, number, done)
        killing = asyncio.create_task(asyncio.to_thread(process.kill))
        with contextlib.suppress(OSError, HTTPException):  # the gateway is killed in the middle of this one
            await load(watched, number + 1000, done)
        await killing
        await asyncio.wait_for(following, 20)
    watched = await asyncio.to_thread(Watched, process)
    client = await follower.come(watched.endpoints["ws"])
    state = await asyncio.to_thread(watched.ask, f"/query?query={QUERY.replace(' ', '%20').replace('?', '%3F')}")
    assert follower.result == Counter(rows(state[1]))
    assert {value for subject, value in follower.result if subject == "urn:b"} >= set(map(str, done))
    await client.socket.close()


async def test_a_client_over_mqtt_resumes_as_well(gateway, mosquitto):
    broker = mosquitto()
    settings = {"EDGE__MQTT__BROKER": broker.url, "EDGE__MQTT_GATE__ENABLED": "always"}
    process = gateway(**settings)
    watched = await asyncio.to_thread(Watched, process)
    device = await BareDevice.connect("device", broker.port)
    await until_served(watched)
    first = await device.subscribe(QUERY, resume=True)
    watched.update("INSERT DATA { <urn:a> <urn:is> 1 }")
    assert (await device.notification())["sequence"] == 1
    process.kill()
    watched = await asyncio.to_thread(Watched, process)
    await until_served(watched)
    watched.update("INSERT DATA { <urn:a> <urn:is> 2 }")
    missed = await device.subscribe(QUERY, spuid=first["spuid"], sequence=1)
    assert missed["spuid"] == first["spuid"]
    if missed["sequence"] == 1:  # a client that resumes while the change is in progress gets it next
        assert rows(missed["addedResults"]) == []
        missed = await device.notification()
    assert missed["sequence"] == 2
    assert rows(missed["addedResults"]) == [("urn:a", "2")]
    device.vanish()


async def until_served(watched: Watched) -> None:
    await eventually(lambda: asyncio.to_thread(watched.metric, "edge_mqtt_gate_connected"), "the gate to be connected")
