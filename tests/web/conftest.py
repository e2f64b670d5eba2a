"""A gateway with both gates for the page, on a real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.gates.http import HttpGate, Views
from edge.gates.settings import HttpGateSettings, WsGateSettings
from edge.gates.ws import WsGate
from edge.metrics import Metrics


@dataclass
class Served:
    """A gateway that serves the page."""

    engine: Any
    metrics: Metrics
    ws: WsGate
    ws_port: int
    url: str

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
    ws = WsGate(engine, WsGateSettings(port=0), metrics)
    http = HttpGate(engine, HttpGateSettings(port=0), metrics, Views(endpoints=lambda: endpoints))
    ws_port, http_port = await ws.start(), await http.start()
    endpoints["ws"] = f"ws://127.0.0.1:{ws_port}/subscribe"
    yield Served(engine, metrics, ws, ws_port, f"http://localhost:{http_port}")
    await ws.stop()
    await http.stop()
    engine.close()
