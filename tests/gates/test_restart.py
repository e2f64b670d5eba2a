"""Subscribers whose gateway is stopped or killed and restarted: they receive missed changes, and nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gate_client import Client, rows
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode, Frame, Opcode

from edge.config import Settings
from edge.engine.requests import QueryRequest
from edge.gateway import Gateway
from tests.support.processes import GatewayProcess
from tests.support.waiting import eventually

VALUES = "SELECT ?n { <urn:set> <urn:has> ?n }"


class Harness:
    """A series of gateways on one data directory, in this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.gateway: Gateway
        self.clients: list[Client] = []

    @contextlib.asynccontextmanager
    async def run(self, limits: dict[str, int] | None = None, **subscriptions: Any) -> AsyncIterator[Harness]:
        anywhere = {"port": 0}
        settings = {"data_dir": self.directory, "http": anywhere, "ws": anywhere, "subscriptions": subscriptions}
        settings |= {"mqtt": {"enabled": False}, "host": {"enabled": False}, "limits": limits or {}}
        async with Gateway(Settings.model_validate(settings)) as self.gateway:
            yield self
        for client in self.clients:
            await client.socket.wait_closed()
        self.clients.clear()

    async def client(self) -> Client:
        self.clients.append(Client(await connect(self.gateway.endpoints["ws"])))
        return self.clients[-1]

    async def update(self, sparql: str) -> None:
        """Execute an update, and wait until its notifications have reached the gate: they are sent after the answer."""
        async with httpx.AsyncClient() as http:
            answer = await http.post(self.gateway.endpoints["http"] + "/update", data={"update": sparql})
        assert answer.status_code == 200, answer.text
        await asyncio.wrap_future(self.gateway._engine.explain(QueryRequest("ASK {}")))

    def metric(self, name: str, gate: str) -> float:
        return self.gateway.metrics.registry.get_sample_value(name, {"gate": gate}) or 0.0


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "data")


def put(*numbers: int) -> str:
    return "INSERT DATA { " + " . ".join(f"<urn:set> <urn:has> {number}" for number in numbers) + " }"


def take(*numbers: int) -> str:
    return "DELETE DATA { " + " . ".join(f"<urn:set> <urn:has> {number}" for number in numbers) + " }"


def bag(results: dict[str, Any]) -> list[int]:
    return sorted(int(value) for (value,) in rows(results))


async def test_a_client_that_returns_after_a_stop_gets_a_merged_delta_with_the_same_spuid(harness):
    async with harness.run():
        await harness.update(put(1, 2))
        client = await harness.client()
        first = await client.subscribe(VALUES, "mine", resume=True)
        for change in (put(3), put(4), take(4), take(1)):
            await harness.update(change)
    async with harness.run():
        assert harness.metric("edge_parked_subscriptions", gate="restart") == 1
        await harness.update(put(5))
        client = await harness.client()
        missed = await client.subscribe(VALUES, "again", spuid=first["spuid"], sequence=1)
        assert (missed["spuid"], missed["alias"], missed["sequence"], missed["merged"]) == (
            first["spuid"],
            "again",
            5,
            4,
        )
        assert (bag(missed["addedResults"]), bag(missed["removedResults"])) == ([5], [1])
        assert missed["addedResults"]["head"] == first["addedResults"]["head"]
        assert harness.metric("edge_parked_subscriptions", gate="restart") == 0
        await harness.update(put(6))
        later = await client.notification()
        assert (later["spuid"], later["alias"], later["sequence"]) == (first["spuid"], "again", 6)
        before = harness.gateway._engine.subscriptions
        await client.ask({"unsubscribe": {"spuid": first["spuid"]}})
        assert harness.gateway._engine.subscriptions == before - 1
    async with harness.run():
        assert harness.metric("edge_parked_subscriptions", gate="restart") == 0


async def test_a_client_may_resume_after_any_close_code_of_a_stopping_gateway(harness):
    async with harness.run():
        client = await harness.client()
        first = await client.subscribe(VALUES, resume=True)
        protocol = client.socket.protocol
        send = protocol.send_frame

        def answer(frame: Frame) -> None:
            send(Frame(frame.opcode, CloseCode.NORMAL_CLOSURE.to_bytes(2)) if frame.opcode is Opcode.CLOSE else frame)

        protocol.send_frame = answer
    async with harness.run():
        client = await harness.client()
        again = await client.subscribe(VALUES, spuid=first["spuid"], sequence=0)
        assert again["spuid"] == first["spuid"]


async def test_two_restarts_and_those_lost_before_the_first_are_one_absence(harness):
    async with harness.run():
        lost, left = await harness.client(), await harness.client()
        first = await lost.subscribe(VALUES, resume=True)
        gone = await left.subscribe(VALUES, resume=True)
        await harness.update(put(1))
        lost.socket.transport.abort()
        await eventually(lambda: harness.metric("edge_parked_subscriptions", gate="ws") == 1, "the loss")
        await left.socket.close()
        await harness.update(put(2))
    async with harness.run():
        await harness.update(put(3))
    async with harness.run():
        client = await harness.client()
        missed = await client.subscribe(VALUES, spuid=first["spuid"], sequence=1)
        assert (missed["spuid"], missed["sequence"], bag(missed["addedResults"])) == (first["spuid"], 3, [2, 3])
        restarted = await client.subscribe(VALUES, spuid=gone["spuid"], sequence=1)
        assert restarted["spuid"] != gone["spuid"], "who said goodbye is not waited for"


async def test_the_window_begins_with_the_gateway(harness):
    async with harness.run():
        first = await (await harness.client()).subscribe(VALUES, resume=True)
    async with harness.run(resume_for=0.2):
        await eventually(
            lambda: harness.metric("edge_parked_subscriptions", gate="restart") == 0, "the end of the subscription"
        )
        again = await (await harness.client()).subscribe(VALUES, spuid=first["spuid"], sequence=0)
        assert (again["spuid"] != first["spuid"], again["sequence"]) == (True, 0)


@pytest.mark.parametrize("wrong", [{"sparql": "SELECT * { <urn:set> <urn:has> ?n }"}, {"sequence": 2}, {"spuid": "x"}])
async def test_a_sequence_that_was_never_sent_restarts_the_subscription(harness, wrong):
    async with harness.run():
        first = await (await harness.client()).subscribe(VALUES, resume=True)
        await harness.update(put(1))
    async with harness.run():
        await harness.update(put(2))  # notification 2 exists by now, but no client has received it
        client = await harness.client()
        again = await client.subscribe(**{"sparql": VALUES, "spuid": first["spuid"], "sequence": 1, **wrong})
        assert (again["spuid"] != first["spuid"], again["sequence"]) == (True, 0)
        assert bag(again["addedResults"]) == [1, 2]


async def test_resume_can_be_disabled(harness):
    async with harness.run():
        first = await (await harness.client()).subscribe(VALUES, resume=True)
    async with harness.run(resume_for=0):
        again = await (await harness.client()).subscribe(VALUES, spuid=first["spuid"], sequence=0)
        assert again["spuid"] != first["spuid"]


async def test_subscriptions_beyond_the_limit_restart(harness):
    async with harness.run():
        client = await harness.client()
        firsts = [await client.subscribe(VALUES, resume=True) for _ in range(5)]
    async with harness.run(max_parked=2):
        client = await harness.client()
        answers = [await client.subscribe(VALUES, spuid=first["spuid"], sequence=0) for first in firsts]
        same = [answer["spuid"] == first["spuid"] for first, answer in zip(firsts, answers, strict=True)]
        assert same == [False, False, False, True, True]


class Follower:
    """A client that reconnects repeatedly and maintains the result."""

    def __init__(self, number: int, author: random.Random) -> None:
        self.query = f"SELECT ?n {{ <urn:set{number % 3}> <urn:has> ?n }}"
        self._author = author
        self._told: list[tuple[int, Counter[int]]] = []
        """The last few results with their sequences: the newest may not have been processed."""
        self._spuid = ""
        self.begun = self.resumed = self.heard = 0
        """Number of connections; of resumed ones; of notifications on the last one."""

    @property
    def result(self) -> Counter[int]:
        return self._told[-1][1]

    async def follow(self, url: str) -> None:
        """Apply notifications until the connection is lost."""
        self.heard = 0
        again: dict[str, Any] = {"resume": True}
        if self._spuid:
            del self._told[max(1, len(self._told) - self._author.randrange(4)) :]
            again = {"spuid": self._spuid, "sequence": self._told[-1][0]}
        async with connect(url) as socket:
            client = Client(socket)
            first = await client.subscribe(self.query, **again)
            if first["spuid"] == self._spuid:
                self.resumed += 1
                self._take(first)
            else:
                self._spuid = first["spuid"]
                self._told = [(0, Counter(bag(first["addedResults"])))]
            self.begun += 1
            with contextlib.suppress(ConnectionClosed):
                while True:
                    self._take((await client.receive(60))["notification"])
                    self.heard += 1

    def _take(self, notification: dict[str, Any]) -> None:
        sequence, result = self._told[-1]
        assert notification["sequence"] == sequence + notification.get("merged", 1)
        removed = Counter(bag(notification["removedResults"]))
        assert removed <= result
        added = Counter(bag(notification["addedResults"]))
        self._told = [*self._told[-10:], (notification["sequence"], result - removed + added)]


async def _publish(url: str, author: random.Random) -> None:
    """Change the sets as fast as the gateway permits, until it is gone."""
    async with httpx.AsyncClient(timeout=20) as http:
        with contextlib.suppress(httpx.TransportError):
            while True:
                subject, number = author.randrange(3), author.randrange(30)
                verb = author.choice(("INSERT", "DELETE"))
                update = f"{verb} DATA {{ <urn:set{subject}> <urn:has> {number} }}"
                answer = await http.post(f"{url}/update", data={"update": update})
                assert answer.status_code == 200, answer.text


@pytest.mark.timeout(180)
async def test_repeated_kills_under_load_restart_no_subscription(tmp_path):
    author = random.Random(5)
    followers = [Follower(number, author) for number in range(12)]
    settings = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"}
    gateway = GatewayProcess(tmp_path / "data", settings)
    kills = 4
    try:
        for number in range(kills):
            found = await asyncio.to_thread(gateway.start)
            async with asyncio.TaskGroup() as group:
                for follower in followers:
                    group.create_task(follower.follow(found["ws"]))
                await eventually(lambda: all(one.begun > number for one in followers), "all subscriptions")  # noqa: B023
                for _ in range(3):
                    group.create_task(_publish(found["http"], author))
                await eventually(lambda: all(one.heard > 5 for one in followers), "some notifications")
                await asyncio.sleep(author.uniform(0, 0.5))
                gateway.kill()
        found = await asyncio.to_thread(gateway.start)
        tasks = [asyncio.create_task(follower.follow(found["ws"])) for follower in followers]
        await eventually(lambda: all(follower.resumed == kills for follower in followers), "the return of all")
        async with httpx.AsyncClient() as http:
            for follower in followers:
                answer = await http.post(f"{found['http']}/query", data={"query": follower.query})
                assert follower.result == Counter(bag(answer.json()))
        gateway.kill()
        await asyncio.gather(*tasks)
    finally:
        gateway.stop()


async def test_without_security_a_restored_subscription_counts_for_its_current_client(
    harness,
):
    query = VALUES.replace("SELECT", "SELECT DISTINCT") + " # " + "x" * 10_000

    def address(client: Client) -> str:
        host, port = client.socket.local_address[:2]
        return f"{host}:{port}"

    async with harness.run():
        client = await harness.client()
        await harness.update(put(*range(1000)))
        first = await client.subscribe(query, resume=True)
        before = address(client)
        held = harness.gateway._quota.held(before)
        assert held > 100_000
    async with harness.run():
        assert harness.gateway._quota.held(before) == pytest.approx(held, rel=0.05)
        client = await harness.client()
        again = await client.subscribe(query, spuid=first["spuid"], sequence=0)
        assert again["spuid"] == first["spuid"]
        await harness.update(put(1))
        assert harness.gateway._quota.held(before) == 0
        assert harness.gateway._quota.held(address(client)) == pytest.approx(held, rel=0.05)
        await client.ask({"unsubscribe": {"spuid": first["spuid"]}})
        assert harness.gateway._quota.held(address(client)) == 0


async def test_without_security_unclaimed_changes_are_bounded_after_a_restart(harness):
    async with harness.run():
        await (await harness.client()).subscribe(VALUES, resume=True)
    async with harness.run(limits={"max_client_bytes": 1_048_576}):
        for number in range(0, 20_000, 2000):
            await harness.update(put(*range(number, number + 2000)))
            # The writer answers the update; the event loop ends subscriptions beyond the limit.
            await eventually(lambda: harness.gateway._quota.total <= 1_048_576, "room")
        await eventually(lambda: not harness.metric("edge_parked_subscriptions", gate="restart"), "its end")
        await eventually(lambda: harness.gateway._quota.total == 0, "release")
