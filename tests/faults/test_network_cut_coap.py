"""The network between a CoAP observer and the gateway fails: the observer confirms neither notifications nor pings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiocoap import GET, POST
from aiocoap.numbers.constants import TransportTuning

from edge.engine.requests import UpdateRequest
from edge.engine.start import open_engine
from edge.gates.coap import CoapGate
from edge.gates.settings import CoapGateSettings
from edge.metrics import Metrics
from tests.faults.network_link import NEAR
from tests.gates.coap.coap_client import ALL, CoapClient, Datagrams, body, values
from tests.support.settings import unchecked
from tests.support.waiting import eventually


class FarDevice(Datagrams):
    """A client with plain datagrams at the far end. It confirms messages of the gateway on receipt."""

    def __init__(self, cable: Any, port: int) -> None:
        with cable.far():
            super().__init__(port, NEAR)

    async def notification(self) -> dict[str, Any]:
        while True:
            message = await self.receive()
            if message.code.is_response():
                self.acknowledge(message)
                return json.loads(message.payload)
            self.reset(message)  # a ping


@pytest.fixture
def serving() -> Any:
    """Run a gate on a real engine at the near end. Its own settings file permits loopback addresses only."""

    @asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[tuple[Any, int]]:
        engine = open_engine(None)

        async def no_readings(topic: str, payload: bytes) -> int:
            return 0

        gate = CoapGate(engine, unchecked(CoapGateSettings, host=NEAR, port=0, **settings), Metrics(), no_readings)
        try:
            yield engine, await gate.start()
        finally:
            await gate.stop()
            assert engine.close()

    return start


async def update(engine: Any, number: int) -> None:
    text = f'INSERT DATA {{ <urn:s> <urn:p> "{number}" }}'
    await asyncio.wrap_future(engine.update([UpdateRequest(text)]))


async def test_a_disconnected_observer_is_detected_and_others_continue(cable, serving, monkeypatch):
    """The intervals of RFC 7252, section 4.2, divided by forty."""
    monkeypatch.setattr(TransportTuning, "ACK_TIMEOUT", 0.05)
    async with (
        serving(ping_interval=0.5, follow_within=0.5) as (engine, port),
        CoapClient(f"coap://{NEAR}:{port}") as client,
    ):
        near = await client.observe(await client.subscribe())
        await near.message()
        far = FarDevice(cable, port)
        await follow(far)
        assert engine.subscriptions == 2
        cable.cut()
        await eventually(lambda: engine.subscriptions == 1, "the end of the other")
        await update(engine, 1)
        assert values((await near.notification())["addedResults"]) == ["1"]
        cable.mend()
        first = await follow(far)
        assert values(first["addedResults"]) == ["1"]
        far.close()


async def test_an_observer_gets_all_missed_notifications_after_a_short_cut(cable, serving, monkeypatch):
    """The gateway repeats unconfirmed notifications and merges later ones into one delta."""
    monkeypatch.setattr(TransportTuning, "ACK_TIMEOUT", 0.2)
    async with serving() as (engine, port):
        far = FarDevice(cable, port)
        await follow(far)
        cable.cut()
        for number in range(1, 6):
            await update(engine, number)
        cable.mend()
        reported, seen = set(), 0
        while seen < 5:
            notification = await far.notification()
            seen = notification["sequence"]
            reported.update(values(notification["addedResults"]))
        assert reported == {"1", "2", "3", "4", "5"}
        assert engine.subscriptions == 1
        far.close()


async def follow(device: FarDevice) -> dict[str, Any]:
    created = await device.ask(POST, "/subscribe", ALL)
    return body(await device.ask(GET, "/".join(created.opt.location_path), observe=0))
