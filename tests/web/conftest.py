"""Gateways for the pages: both gates on a real engine, or a whole one as a process, with its page in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from house import LIVE, SIZES, House
from locked import OBSERVE

from edge.config import Settings
from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.gates.http import HttpGate, Views
from edge.gates.settings import HttpGateSettings, WsGateSettings
from edge.gates.ws import WsGate
from edge.gateway import Gateway
from edge.metrics import Metrics
from tests.support.browser import Browser


@dataclass
class Served:
    """A gateway that serves the page."""

    engine: Any
    metrics: Metrics
    ws: WsGate
    ws_port: int
    url: str
    faults: list[str]
    """Why the gateway is degraded, if it is: up to one text."""

    def update(self, sparql: str) -> None:
        prefixes = (
            "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
            "PREFIX unit: <http://qudt.org/1.1/vocab/unit#> PREFIX time: <http://www.w3.org/2006/time#> "
            "PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "
        )
        self.engine.update([UpdateRequest(prefixes + sparql)]).result(20)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    engine = open_engine(None, EngineSettings())
    metrics = Metrics()
    endpoints: dict[str, str] = {}
    faults: list[str] = []
    ws = WsGate(engine, WsGateSettings(port=0), metrics)
    http = HttpGate(
        engine, HttpGateSettings(port=0), metrics, Views(endpoints=lambda: endpoints, fault=lambda: "".join(faults))
    )
    ws_port, http_port = await ws.start(), await http.start()
    endpoints["ws"] = f"ws://127.0.0.1:{ws_port}/subscribe"
    yield Served(engine, metrics, ws, ws_port, f"http://localhost:{http_port}", faults)
    await ws.stop()
    await http.stop()
    engine.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Iterator[House]:
    directory = tmp_path_factory.mktemp("house")
    (directory / "landing").mkdir()
    sparkplug = {"EDGE__SPARKPLUG__ENABLED": "true", "EDGE__SPARKPLUG__PRIMARY": "true"}
    house = House(directory / "data", EDGE__OFFLOAD__TO=str(directory / "landing"), **sparkplug)
    house.furnish()
    yield house
    house.process.stop()


@pytest.fixture
async def page(house, browser) -> AsyncIterator[Browser]:
    """The Overview. The test fails if the browser reports a problem, or a request to another host."""
    await browser.size(*SIZES[0])
    await browser.open(f"{house.url}/")
    await browser.wait_for(f"{LIVE} && document.querySelectorAll('.observation').length >= 5")
    yield browser
    assert browser.problems() == []
    assert browser.hosts() <= {"127.0.0.1", ""}


@pytest.fixture
async def gateway(tmp_path) -> AsyncIterator[Gateway]:
    """A gateway with security and one observation."""
    port, off = {"port": 0}, {"enabled": False}
    security = {"enabled": True, "https_port": 0, "wss_port": 0, "mqtts_port": 0, "token_lifetime": 600}
    security["enrolment_file"] = tmp_path / "code"
    chosen = {"data_dir": tmp_path / "data", "http": port, "ws": port, "mqtt": off, "host": off, "security": security}
    async with Gateway(Settings.model_validate(chosen)) as gateway:
        gateway._engine.update([UpdateRequest(OBSERVE)]).result(20)
        yield gateway


@pytest.fixture
async def locked_page(gateway, browser) -> Browser:
    """Its page, which asks for a token."""
    await browser.open(gateway.endpoints["http"])
    return browser
