"""Both gates of a gateway on real sockets, over any engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from gate_client import Client
from websockets.asyncio.client import connect

from edge.engine.admission.byte_quota import ByteQuota
from edge.gates.guard import OPEN_GUARD, Guard
from edge.gates.http import HttpGate, Views
from edge.gates.rate_limit import RateLimit
from edge.gates.resume import ResumeRegistry
from edge.gates.settings import QUERY_TIMEOUT, HttpGateSettings, LimitSettings, WsGateSettings
from edge.gates.ws import WsGate
from edge.metrics import Metrics


@dataclass
class Gateway:
    """Addresses of the gates of a test."""

    engine: Any
    metrics: Metrics
    http_port: int
    ws_port: int
    ws_gate: WsGate
    resume_registry: ResumeRegistry
    http_gate: HttpGate
    clients: list[Client] = field(default_factory=list)

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.ws_port}/subscribe"

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.http_url, timeout=20)

    async def client(self, url: str | None = None, **options: Any) -> Client:
        client = Client(await connect(url or self.ws_url, **options))
        self.clients.append(client)
        return client

    async def update(self, sparql: str) -> dict[str, Any]:
        async with self.http() as http:
            answer = await http.post(
                "/update", content=sparql.encode(), headers={"Content-Type": "application/sparql-update"}
            )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def running(
    engine: Any,
    *,
    ws: WsGateSettings | None = None,
    http: HttpGateSettings | None = None,
    views: Views | None = None,
    resume_for: float = 60.0,
    max_parked: int = 1000,
    max_sent: int = 256 * 1024,
    guard: Guard = OPEN_GUARD,
    limits: LimitSettings | None = None,
    quota: ByteQuota | None = None,
    query_timeout: float = QUERY_TIMEOUT,
    close_timeout: float = 2.0,
    stop_timeout: float = 2.0,
) -> AsyncIterator[Gateway]:
    metrics = Metrics()
    rate_limit = RateLimit(limits or LimitSettings(), quota)
    resume_registry = ResumeRegistry(
        engine,
        guard,
        metrics.suspended_subscriptions,
        seconds=resume_for,
        limit=max_parked,
        max_sent=max_sent,
        quota=rate_limit.bytes,
    )
    ws_gate = WsGate(
        engine,
        ws or WsGateSettings(port=0),
        metrics,
        guard=guard,
        rate_limit=rate_limit,
        resume_registry=resume_registry,
        query_timeout=query_timeout,
        close_timeout=close_timeout,
    )
    ports: dict[str, int] = {}
    views = views or Views(endpoints=lambda: {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()})
    http_gate = HttpGate(
        engine,
        http or HttpGateSettings(port=0),
        metrics,
        views,
        guard=guard,
        rate_limit=rate_limit,
        query_timeout=query_timeout,
        stop_timeout=stop_timeout,
    )
    clients: list[Client] = []
    try:
        ports["ws"], ports["http"] = await ws_gate.start(), await http_gate.start()
        yield Gateway(engine, metrics, ports["http"], ports["ws"], ws_gate, resume_registry, http_gate, clients)
    finally:
        resume_registry.close()
        for client in clients:
            await client.socket.close()
        await ws_gate.stop()
        await http_gate.stop()
