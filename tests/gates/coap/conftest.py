"""A CoAP gate on a real socket, over a real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from coap_client import CoapClient, Datagrams

from edge.gates.coap import CoapGate
from edge.gates.rate_limit import RateLimit
from edge.gates.settings import CoapGateSettings
from edge.metrics import Metrics
from tests.support.settings import unchecked


class Gate:
    """A gate, and the messages it received."""

    def __init__(self, engine: Any, port: int, metrics: Metrics, came: list[tuple[str, bytes]]) -> None:
        self.engine = engine
        self.port = port
        self.metrics = metrics
        self.came = came

    @property
    def url(self) -> str:
        return f"coap://127.0.0.1:{self.port}"

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"gate": "coap", **labels}) or 0.0


@pytest.fixture(autouse=True)
def no_socket_is_left():
    yield
    while Datagrams.open:
        Datagrams.open.pop().close()


@pytest.fixture
def serving(engine):
    """`async with serving(max_message=...) as gate`."""

    @asynccontextmanager
    async def start(rate_limit: RateLimit | None = None, own_topics: str = "", **limits: Any) -> AsyncIterator[Gate]:
        metrics, came = Metrics(), []

        async def readings(topic: str, payload: bytes) -> int:
            came.append((topic, payload))
            return 0 if topic == "unmapped" else 1

        gate = CoapGate(
            engine,
            unchecked(CoapGateSettings, port=0, **limits),
            metrics,
            readings,
            rate_limit=rate_limit,
            own_topics=own_topics,
        )
        port = await gate.start()
        try:
            yield Gate(engine, port, metrics, came)
        finally:
            await gate.stop()

    return start


@pytest.fixture
async def gate(serving):
    async with serving() as gate:
        yield gate


@pytest.fixture
async def client(gate):
    async with CoapClient(gate.url) as client:
        yield client
