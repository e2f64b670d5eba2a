"""A gateway is killed in the middle of windows and deliveries: each window is reported, and no report changes.

Observers get each report at least once, followers that go on after the last report that they have exactly once.

`EDGE_STREAM_KILLS=100` kills it so often instead of twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import urllib.request
from contextlib import suppress
from http.client import HTTPException

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.streams.receiver import Receiver
from tests.support.waiting import eventually

KILLS = int(os.environ.get("EDGE_STREAM_KILLS", "2"))
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
        self.position = ""
        self.number = 0
        self.connections = 0
        self.values = []

    async def run(self):
        while True:
            with suppress(OSError, WebSocketException):
                base = self.endpoints["ws"].removesuffix("/subscribe")
                async with connect(f"{base}/queries/{self.query}{self.position}") as socket:
                    async for text in socket:
                        self.take(json.loads(text))
            await asyncio.sleep(0.02)

    def take(self, message):
        if "following" in message:
            first = message["following"]
            assert first["number"] == self.number
            self.of = first["of"]
            self.connections += 1
        elif "report" in message:
            report = message["report"]
            assert (report["number"], report["merged"]) == (self.number + 1, 1), f"{self.query} is not continuous"
            self.values += sorted(int(row["v"]["value"]) for row in report["content"]["results"]["bindings"])
            self.number += 1
        else:
            assert message["status_code"] == 503, message  # it starts, or stops
            return
        self.position = f"?after={self.number}&of={self.of}"


@contextlib.asynccontextmanager
async def following(endpoints):
    """Run the followers. Yields them, and a function that fails if one of them has failed."""
    followers = [Follower(f"followed-{name}", endpoints) for name in FOLLOWED]
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    try:
        yield followers, lambda: [task.result() for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()


@pytest.mark.timeout(180 + 20 * KILLS)
async def test_each_window_is_reported_once(gateway):
    rng, endpoints = random.Random(KILLS), {}
    process = gateway(EDGE__MQTT__ENABLED="false")
    receiver, reports, sender = Receiver(), Reports(), Sender()
    receiver.then(receiver.answering("200 OK"))

    def start():
        endpoints.update(process.start())
        return endpoints["http"]

    def is_complete(followers):
        while not receiver.requests.empty():
            reports.take(receiver.requests.get_nowait())
        sent = set(sender.acknowledged)
        last = sorted(sent | sender.unsure)[-3:]
        whole = sent <= set(reports.values("whole")) and sent <= set(reports.values("new"))
        counted, new = followers
        followed = sent <= set(new.values) and len(counted.values) >= len(sent) - len(last)
        return whole and followed and len(reports.values("counted")) >= len(sent) - len(last)

    async with receiver.running():
        base = await asyncio.to_thread(start)
        await asyncio.to_thread(request, base, "PUT", "/streams/s")
        for name, text in QUERIES.items():
            await asyncio.to_thread(request, base, "PUT", f"/queries/{name}", text)
            url = f"http://127.0.0.1:{receiver.port}/{name}"
            await asyncio.to_thread(request, base, "POST", f"/queries/{name}", url)
        for name, text in FOLLOWED.items():
            await asyncio.to_thread(request, base, "PUT", f"/queries/followed-{name}", text)
        async with following(endpoints) as (followers, fail):
            await eventually(lambda: fail() or all(each.connections for each in followers), "the followers")
            for _ in range(KILLS):
                for _ in range(rng.randint(3, 25)):
                    assert await asyncio.to_thread(sender.post, base)
                killing = asyncio.create_task(asyncio.to_thread(process.kill))
                while await asyncio.to_thread(sender.post, base):
                    pass
                await killing
                base = await asyncio.to_thread(start)
            for _ in range(5):
                assert await asyncio.to_thread(sender.post, base)
            await eventually(lambda: fail() or is_complete(followers), "all reports")
            assert all(each.connections > KILLS for each in followers)
        async with following(endpoints) as (again, fail):
            for each in again:
                each.position = "?after=0"
            await eventually(lambda: fail() or all(map(is_as_far, again, followers)), "all reports again")
    for first, second in zip(followers, again, strict=True):
        assert second.values[: len(first.values)] == first.values, f"a report of {first.query} has changed"
    check(reports, sender)
    for follower in followers:
        assert len(set(follower.values)) == len(follower.values), f"{follower.query} has a value twice"
        assert set(follower.values) <= set(sender.acknowledged) | sender.unsure


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
