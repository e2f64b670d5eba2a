"""A gateway is killed in the middle of windows and deliveries: each window is reported, and no report changes.

`EDGE_STREAM_KILLS=100` kills it so often instead of twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import urllib.request
from http.client import HTTPException

import pytest

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


@pytest.mark.timeout(180 + 20 * KILLS)
async def test_each_window_is_reported_once(gateway):
    rng = random.Random(KILLS)
    process = gateway(EDGE__MQTT__ENABLED="false")
    receiver, reports, sender = Receiver(), Reports(), Sender()
    receiver.then(receiver.answering("200 OK"))

    def is_complete():
        while not receiver.requests.empty():
            reports.take(receiver.requests.get_nowait())
        sent = set(sender.acknowledged)
        last = sorted(sent | sender.unsure)[-3:]
        whole = sent <= set(reports.values("whole")) and sent <= set(reports.values("new"))
        return whole and len(reports.values("counted")) >= len(sent) - len(last)

    async with receiver.running():
        base = (await asyncio.to_thread(process.start))["http"]
        await asyncio.to_thread(request, base, "PUT", "/streams/s")
        for name, text in QUERIES.items():
            await asyncio.to_thread(request, base, "PUT", f"/queries/{name}", text)
            url = f"http://127.0.0.1:{receiver.port}/{name}"
            await asyncio.to_thread(request, base, "POST", f"/queries/{name}", url)
        for _ in range(KILLS):
            for _ in range(rng.randint(3, 25)):
                assert await asyncio.to_thread(sender.post, base)
            killing = asyncio.create_task(asyncio.to_thread(process.kill))
            while await asyncio.to_thread(sender.post, base):
                pass
            await killing
            base = (await asyncio.to_thread(process.start))["http"]
        for _ in range(5):
            assert await asyncio.to_thread(sender.post, base)
        await eventually(is_complete, "all reports")
    check(reports, sender)


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
