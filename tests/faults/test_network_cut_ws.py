"""The network between a WebSocket client and the gateway fails: TLS, tokens, a whole gateway, a real link."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from edge.config import Settings
from edge.gateway import Gateway
from tests.faults.network_link import Cable
from tests.gates.gate_client import Client, rows
from tests.security.secured import Harness
from tests.support.waiting import eventually

VALUES = "SELECT ?n { <urn:set> <urn:has> ?n }"


class Place:
    """A gateway, and clients at both ends of the link."""

    def __init__(self, gateway: Gateway, cable: Cable, token: str) -> None:
        self._gateway = gateway
        self._cable = cable
        self._token = token
        self.members = {"authorization": f"Bearer {token}"}
        self._harness = Harness(gateway)
        self.clients: list[Client] = []

    async def near(self) -> Client:
        return await self._opened(connect(self._gateway.endpoints["ws"]))

    async def far(self) -> Client:
        """Connect a client that sends no pings of its own, so that the gateway must notice the loss."""
        sock = self._cable.connect(int(self._gateway.endpoints["wss"].rpartition(":")[2].partition("/")[0]))
        authority = ssl.create_default_context(cafile=self._gateway.settings.tls_dir / "ca.pem")
        url = self._gateway.endpoints["wss"]
        return await self._opened(connect(url, sock=sock, ssl=authority, ping_interval=None))

    async def _opened(self, connecting: connect) -> Client:
        client = Client(await connecting)
        self.clients.append(client)
        return client

    async def subscribe(self, client: Client, **members: Any) -> dict[str, Any]:
        return await client.subscribe(VALUES, **members, **self.members)

    async def update(self, sparql: str) -> None:
        answer = await self._harness.update(self._token, sparql)
        assert answer.status_code == 200, answer.text

    def metric(self, name: str) -> float:
        return self._gateway.metrics.registry.get_sample_value(name, {"gate": "ws"}) or 0.0

    @property
    def subscriptions(self) -> int:
        return self._harness.subscriptions


@pytest.fixture
def place(tmp_path: Path, cable: Cable) -> Any:
    """`async with place(ping_interval=0.5) as place`."""

    @asynccontextmanager
    async def start(resume_for: float = 60.0, **ws: Any) -> AsyncIterator[Place]:
        settings = Settings.model_validate(
            {
                "data_dir": tmp_path,
                "subscriptions": {"resume_for": resume_for},
                "http": {"port": 0},
                "ws": {"port": 0, **ws},
                "mqtt": {"enabled": False},
                "host": {"enabled": False},
                "security": {"enabled": True, "host": "0.0.0.0", "https_port": 0, "wss_port": 0},
            }
        )
        async with Gateway(settings) as gateway:
            place = Place(gateway, cable, await Harness(gateway).member())
            try:
                yield place
            finally:
                for client in place.clients:
                    client.socket.transport.abort()

    return start


def put(*numbers: int) -> str:
    return " ; ".join(f"INSERT DATA {{ <urn:set> <urn:has> {number} }}" for number in numbers)


def numbers(results: dict[str, Any]) -> list[int]:
    return sorted(int(value) for (value,) in rows(results))


async def test_a_disconnected_subscriber_is_detected_and_gets_a_merged_delta_on_return(place, cable):
    async with place(ping_interval=0.3, ping_timeout=1.5) as place:
        near, kept, lost = await place.near(), await place.far(), await place.far()
        await place.subscribe(near)
        first = await place.subscribe(kept, resume=True)
        await place.subscribe(lost)
        await place.update(put(1, 2))
        for client in (near, kept, lost):
            assert (await client.notification())["sequence"] == 1
        await asyncio.to_thread(cable.cut)
        # Nothing need be sent to the clients for that; without pings TCP would not notice the loss.
        await eventually(lambda: place.metric("edge_connections") == 1, "the loss of both")
        await eventually(lambda: place.subscriptions == 2, "the end of what nobody wants kept")
        await eventually(lambda: place.metric("edge_parked_subscriptions") == 1, "the suspended one")
        for change in (put(3, 4), "DELETE DATA { <urn:set> <urn:has> 3 }", "DELETE DATA { <urn:set> <urn:has> 1 }"):
            await place.update(change)
        assert [(await near.notification())["sequence"] for _ in range(3)] == [2, 3, 4]
        await asyncio.to_thread(cable.mend)
        back = await place.far()
        missed = await place.subscribe(back, spuid=first["spuid"], sequence=1)
        assert (missed["spuid"], missed["sequence"], missed["merged"]) == (first["spuid"], 4, 3)
        assert (numbers(missed["addedResults"]), numbers(missed["removedResults"])) == ([4], [1])
        await place.update(put(5))
        later = await back.notification()
        assert (later["spuid"], later["sequence"], numbers(later["addedResults"])) == (first["spuid"], 5, [5])
        assert place.subscriptions == 2


async def test_a_client_that_returns_too_late_receives_the_full_result(place, cable):
    async with place(ping_interval=0.3, ping_timeout=1.5, resume_for=0.3) as place:
        client = await place.far()
        first = await place.subscribe(client, resume=True)
        await asyncio.to_thread(cable.cut)
        await eventually(lambda: place.subscriptions == 0, "the end of the subscription")
        await place.update(put(1, 2))
        await asyncio.to_thread(cable.mend)
        again = await place.subscribe(await place.far(), spuid=first["spuid"], sequence=0)
        assert (again["sequence"], numbers(again["addedResults"])) == (0, [1, 2])
        assert again["spuid"] != first["spuid"]


async def test_a_cut_shorter_than_a_ping_may_take_loses_nothing(place, cable):
    async with place(ping_interval=0.5, ping_timeout=60) as place:
        near, far = await place.near(), await place.far()
        await place.subscribe(near)
        await place.subscribe(far)
        await asyncio.to_thread(cable.cut)
        for number in range(1, 6):
            await place.update(put(number))
            await near.notification()
        with pytest.raises(TimeoutError):
            await far.receive(0.2)
        await asyncio.to_thread(cable.mend)
        reported = [await far.notification() for _ in range(5)]
        assert [(body["sequence"], numbers(body["addedResults"])) for body in reported] == [
            (number, [number]) for number in range(1, 6)
        ]
        assert place.metric("edge_connections") == 2


async def test_an_incomplete_update_is_not_executed(place, cable):
    async with place(ping_interval=0.3, ping_timeout=1.5) as place:
        near, far = await place.near(), await place.far()
        await place.subscribe(near)
        text = json.dumps({"update": {**place.members, "sparql": put(*range(1000))}})

        async def halves() -> AsyncIterator[str]:
            yield text[: len(text) // 2]
            await asyncio.to_thread(cable.cut)
            yield text[len(text) // 2 :]

        await far.socket.send(halves())
        await eventually(lambda: place.metric("edge_connections") == 1, "the loss")
        await asyncio.to_thread(cable.mend)
        await asyncio.wait_for(far.socket.wait_closed(), 20)
        await place.update(put(-1))
        assert numbers((await near.notification())["addedResults"]) == [-1]
