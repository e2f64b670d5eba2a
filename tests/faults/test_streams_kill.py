"""A gateway is killed in the middle of windows and deliveries: each window is reported, and no report changes.

Observers get each report at least once, followers that go on after the last report that they have exactly once, over a
WebSocket, MQTT and CoAP.

`EDGE_STREAM_KILLS=100` kills it so often instead of twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import urllib.request
import uuid
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from urllib.parse import urlencode

import pytest
from aiocoap.error import Error as CoapError
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.gates.coap.coap_client import CoapClient
from tests.gates.mqtt.mqtt_harness import MqttClient
from tests.streams.receiver import Receiver
from tests.support.waiting import eventually

KILLS = int(os.environ.get("EDGE_STREAM_KILLS", "2"))
GATES = {"EDGE__MQTT_GATE__ENABLED": "always", "EDGE__COAP__ENABLED": "true", "EDGE__COAP__PORT": "0"}
EACH_CUT = 3
"""Reports between two cuts of the connection of a follower."""
WINDOW = "FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s>"
QUERIES = {
    "whole": f"REGISTER RSTREAM <urn:edge:stream:whole> AS SELECT ?v {WINDOW} [RANGE PT0.4S STEP PT0.2S] NON EMPTY "
    "WHERE { WINDOW <urn:w> { ?s <urn:v> ?v } }",
    "counted": f"REGISTER RSTREAM <urn:edge:stream:counted> AS SELECT ?v {WINDOW} [ELEMENTS 3 STEP 3] "
    "WHERE { WINDOW <urn:w> { ?s <urn:v> ?v } }",
    "new": f"REGISTER ISTREAM <urn:edge:stream:new> AS SELECT ?v {WINDOW} [RANGE PT0.4S STEP PT0.2S] "
    "WHERE { WINDOW <urn:w> { ?s <urn:v> ?v } }",
}
FOLLOWED = {name: QUERIES[name].replace(f"stream:{name}", f"stream:followed-{name}") for name in ("counted", "new")}
"""Queries without observers."""


def request(base, method, path, body="", content_type="text/plain"):
    message = urllib.request.Request(base + path, body.encode() or None, {"Content-Type": content_type}, method=method)
    with urllib.request.urlopen(message, timeout=30) as answer:
        return answer.status


class Sender:
    """Posts elements, each with a new value, and records those that were acknowledged and those that may be lost."""

    def __init__(self):
        self.value = 0
        self.acknowledged = []
        self.unsure = set()

    def post(self, base):
        self.value += 1
        try:
            request(base, "POST", "/streams/s", f"<urn:a> <urn:v> {self.value} .", "text/turtle")
        except (OSError, HTTPException):
            self.unsure.add(self.value)
            return False
        self.acknowledged.append(self.value)
        return True


class Reports:
    """The reports that a callback server has received, by query and number."""

    def __init__(self):
        self.found = {}

    def take(self, message):
        query = message.line.split()[1].removeprefix("/")
        number = int(message.headers["Report-Number"])
        rows = sorted(int(row["v"]["value"]) for row in json.loads(message.body)["results"]["bindings"])
        earlier = self.found.setdefault(query, {}).setdefault(number, rows)
        assert earlier == rows, f"report {number} of {query} has changed"

    def values(self, query):
        return [value for _, rows in sorted(self.found.get(query, {}).items()) for value in rows]


class Follower:
    """Follows a query over a WebSocket, and goes on after the last report when the connection is lost."""

    def __init__(self, query, endpoints):
        self.query = query
        self.endpoints = endpoints
        self.after = {}
        """Parameters of the next connection: the last report."""
        self.number = 0
        self.connections = 0
        self.values = []
        self.repeated = 0
        """Reports that come again."""
        self.cut = self.each_cut = EACH_CUT
        """Number of the report after which the connection is cut, and of reports between two cuts."""

    def is_cut(self):
        """Return whether the connection has to be cut now."""
        is_cut = self.number >= self.cut
        self.cut += self.each_cut * is_cut
        return is_cut

    @property
    def path(self):
        return f"/queries/{self.query}?{urlencode(self.after)}"

    async def run(self):
        while True:
            with suppress(OSError, WebSocketException):
                base = self.endpoints["ws"].removesuffix("/subscribe")
                async with connect(f"{base}{self.path}") as connection:
                    async for text in connection:
                        self.take(json.loads(text))
                        if self.is_cut():
                            # A closing handshake would wait for 10 s, because the client does not read more meanwhile.
                            connection.transport.abort()
                            break
            await asyncio.sleep(0.02)

    def take(self, message):
        if "following" in message:
            first = message["following"]
            # Over MQTT, reports of the request before may come while a client that was cut off follows again.
            assert first["number"] <= self.number
            assert first["number"] == self.number or isinstance(self, MqttFollower)
            self.repeated = self.number - first["number"]
            self.of = first["of"]
            self.connections += 1
        elif "report" in message:
            report = message["report"]
            expected = (self.number - self.repeated + 1, 1)
            assert (report["number"], report["merged"]) == expected, f"{self.query} is not continuous"
            if self.repeated:
                self.repeated -= 1
                return
            self.values += sorted(int(row["v"]["value"]) for row in report["content"]["results"]["bindings"])
            self.number += 1
        else:
            assert message["status_code"] == 503, message  # it starts, or stops
            return
        self.after = {"after": self.number, "of": self.of}


class MqttFollower(Follower):
    """Follows over MQTT again after each new connection of the gateway or its own to the broker."""

    last = None
    """Last connection of the gateway."""

    async def run(self):
        client = MqttClient(self.endpoints["broker"], f"{self.query}-{uuid.uuid4().hex}")
        client.client.on_subscribe = lambda *_: client.came.put(None)  # None: the client has a new connection
        client.client.loop_start()
        try:
            await self._follow(client)
        finally:
            client.client.disconnect()
            client.client.loop_stop()

    async def _follow(self, client):
        connection = None
        is_following = False
        while True:
            statuses = [client.statuses.get() for _ in range(client.statuses.qsize())]
            # The messages that came before the status.
            for _ in range(client.came.qsize()):
                if (arrived := client.came.get()) is None:
                    connection, is_following = None, False
                    continue
                message = json.loads(arrived.payload)
                if "has sent another one" in message.get("error_description", ""):
                    continue  # it has, because both sides have connected again
                is_following = is_following or "following" in message
                if "report" in message and not is_following:
                    continue  # one of the request before the new connection, which lacks those before it
                self.take(message)
                if "status_code" in message:
                    connection = None
            if (link := client.client.socket()) is not None and self.is_cut():
                with suppress(OSError):  # the other side has ended it already
                    link.shutdown(socket.SHUT_RDWR)
            online = [status["connection"] for status in statuses if status["status"] == "online"] or [self.last]
            self.last = online[-1]
            if self.last != connection:
                connection = self.last
                client.send({"follow": {"query": self.query, **self.after}})
            await asyncio.sleep(0.02)


class CoapFollower(Follower):
    """Observes a query over CoAP, and again after each start of the gateway."""

    async def run(self):
        while True:
            starts = self.endpoints["starts"]
            with suppress(OSError, CoapError, TimeoutError):
                async with CoapClient(self.endpoints["coap"]) as client, asyncio.timeout(20):
                    await self._observe(await client.observe(self.path), starts)
            await asyncio.sleep(0.02)

    async def _observe(self, observation, starts):
        pending = {}
        has_begun = False
        while self.endpoints["starts"] == starts and not self.is_cut():
            for _ in range(observation.came.qsize()):
                message = observation.came.get_nowait()
                if isinstance(message, Exception) or not message.code.is_successful():
                    return
                found = json.loads(message.payload)
                # The client library may pass a notification on before the first response.
                if "content" in found:
                    pending[found["number"]] = found
                else:
                    self.take({"following": found})
                    has_begun = True
            while has_begun and pending:
                self.take({"report": pending.pop(min(pending))})
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def following(endpoints):
    """Run the followers. Yields them, and a function that fails if one of them has failed."""
    kinds = ((Follower, "counted"), (Follower, "new"), (MqttFollower, "counted"), (CoapFollower, "new"))
    followers = [kind(f"followed-{name}", endpoints) for kind, name in kinds]
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    try:
        yield followers, lambda: [task.result() for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class World:
    """A gateway that is killed while elements come, and the observers of its queries."""

    def __init__(self, process, broker):
        self.process = process
        self.endpoints = {"broker": broker.port, "starts": 0}
        self.receiver, self.reports, self.sender = Receiver(), Reports(), Sender()
        self.receiver.then(self.receiver.answering("200 OK"))
        self.rng = random.Random(KILLS)

    async def start(self):
        endpoints = await asyncio.to_thread(self.process.start)
        self.endpoints.update(endpoints, starts=self.endpoints["starts"] + 1)

    async def request(self, method, path, body=""):
        await asyncio.to_thread(request, self.endpoints["http"], method, path, body)

    async def post(self):
        return await asyncio.to_thread(self.sender.post, self.endpoints["http"])

    async def register(self):
        await self.request("PUT", "/streams/s")
        for name, text in QUERIES.items():
            await self.request("PUT", f"/queries/{name}", text)
            await self.request("POST", f"/queries/{name}", f"http://127.0.0.1:{self.receiver.port}/{name}")
        for name, text in FOLLOWED.items():
            await self.request("PUT", f"/queries/followed-{name}", text)

    async def kill(self):
        """Kill the gateway between two elements, and start it again."""
        for _ in range(self.rng.randint(3, 25)):
            assert await self.post()
        killing = asyncio.create_task(asyncio.to_thread(self.process.kill))
        while await self.post():
            pass
        await killing
        await self.start()

    def is_complete(self, followers):
        """Return whether observers and followers have all values, without the last ones of an unfinished count."""
        while not self.receiver.requests.empty():
            self.reports.take(self.receiver.requests.get_nowait())
        values, sent = self.reports.values, set(self.sender.acknowledged)
        counted = len(sent) - min(len(sent | self.sender.unsure), 3)
        return (
            sent <= set(values("whole"))
            and sent <= set(values("new"))
            and len(values("counted")) >= counted
            and all(
                sent <= set(each.values) if each.query == "followed-new" else len(each.values) >= counted
                for each in followers
            )
        )


@pytest.mark.timeout(180 + 20 * KILLS)
async def test_each_window_is_reported_once(gateway, mosquitto):
    broker = mosquitto()
    world = World(gateway(EDGE__MQTT__BROKER=broker.url, **GATES), broker)
    async with world.receiver.running():
        await world.start()
        await world.register()
        async with following(world.endpoints) as (followers, fail):
            for kill in range(KILLS):
                await eventually(partial(have_connected, followers, fail, kill + 1), "the followers")
                await world.kill()
            for _ in range(5):
                assert await world.post()
            await eventually(lambda: fail() or world.is_complete(followers), "all reports")
            assert all(each.connections > KILLS for each in followers)
            # The last report may be the first one after which a connection is cut, which comes after it.
            await eventually(
                lambda: fail() or all(each.cut > EACH_CUT for each in followers), "a cut of each connection"
            )
        async with following(world.endpoints) as (again, fail):
            for each, other in zip(again, followers, strict=True):
                each.after = {"after": 0}
                each.cut = each.each_cut = max(EACH_CUT, other.number // 10)  # 500 times would take minutes
            await eventually(lambda: fail() or all(map(is_as_far, again, followers)), "all reports again")
    check(world.reports, world.sender)
    check_followers(followers, again, world.sender)


def have_connected(followers, fail, times):
    return fail() or all(each.connections >= times for each in followers)


def check_followers(followers, again, sender):
    for first, second in zip(followers, again, strict=True):
        assert second.values[: len(first.values)] == first.values, f"a report of {first.query} has changed"
        assert len(set(first.values)) == len(first.values), f"{first.query} has a value twice"
        assert set(first.values) <= set(sender.acknowledged) | sender.unsure


def is_as_far(follower, other):
    return follower.number >= other.number


def check(reports, sender):
    for name in QUERIES:
        assert sorted(reports.found[name]) == list(range(1, max(reports.found[name]) + 1)), f"{name} has a gap"
    possible = set(sender.acknowledged) | sender.unsure
    for name in ("new", "counted"):
        values = reports.values(name)
        assert values == sorted(values), f"{name} is out of order"
        assert len(set(values)) == len(values), f"{name} has a value twice"
        assert set(values) <= possible
    for rows in list(reports.found["counted"].values()):
        assert len(rows) == 3
