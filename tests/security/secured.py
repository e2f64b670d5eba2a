"""A gateway with security in this process, and the steps of clients to authenticate."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from edge.config import Settings
from edge.gateway import Gateway
from edge.security.client_database import ClientDatabase
from edge.security.clients import ClientRegistry, Rights
from tests.support.waiting import eventually

EVERYTHING = "SELECT * { ?s ?p ?o }"


def settings(
    data_dir: Path,
    mqtt: dict[str, Any] | None = None,
    ws: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    http: dict[str, Any] | None = None,
    **security: Any,
) -> Settings:
    anywhere = {"port": 0}
    return Settings.model_validate(
        {
            "data_dir": data_dir,
            "http": {**anywhere, **(http or {})},
            "ws": {**anywhere, **(ws or {})},
            "limits": limits or {},
            "mqtt": mqtt or {"enabled": False},
            "host": {"enabled": False},
            "security": {"enabled": True, "https_port": 0, "wss_port": 0, "mqtts_port": 0, **security},
        }
    )


class Harness:
    """A running gateway, and the file of its clients as another process sees it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.security = gateway._security
        store = ClientDatabase(gateway.settings.data_dir)
        self.clients = ClientRegistry(store)
        weakref.finalize(self, store.close)
        self._own = gateway._engine.subscriptions

    @property
    def subscriptions(self) -> int:
        """Return the number of clients' subscriptions: the gateway has some of its own."""
        return self.gateway._engine.subscriptions - self._own

    def http(self, service: str = "http", **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.gateway.endpoints[service], timeout=20, **options)

    async def register(self, name: str) -> tuple[str, str]:
        body = {"register": {"client_identity": name, "grant_types": ["client_credentials"]}}
        async with self.http() as http:
            answer = await http.post("/oauth/register", json=body)
        assert answer.status_code == 201, answer.text
        credentials = answer.json()["credentials"]
        return credentials["client_id"], credentials["client_secret"]

    async def token(self, credentials: tuple[str, str]) -> str:
        async with self.http() as http:
            answer = await http.post("/oauth/token", auth=credentials)
        assert answer.status_code == 201, answer.text
        return answer.json()["access_token"]

    async def until(self, true: Callable[[], bool]) -> None:
        await eventually(true)

    async def member(self, identity: str = "lamp", rights: Rights | None = None) -> str:
        """Register a client; return its token."""
        self.clients.allow(identity, rights or Rights())
        return await self.token(await self.register(identity))

    async def update(self, token: str | None, sparql: str, path: str = "/update", **parameters: str) -> httpx.Response:
        return await self._send("update", token, sparql, path, parameters)

    async def query(
        self, token: str | None, sparql: str = EVERYTHING, path: str = "/query", **parameters: str
    ) -> httpx.Response:
        return await self._send("query", token, sparql, path, parameters)

    async def _send(self, kind: str, token: str | None, sparql: str, path: str, parameters: Any) -> httpx.Response:
        headers = {"Content-Type": f"application/sparql-{kind}"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        async with self.http() as http:
            return await http.post(path, content=sparql, headers=headers, params=parameters)

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[Socket]:
        async with connect(self.gateway.endpoints["ws"]) as socket:
            yield Socket(socket)


class Socket:
    """A WebSocket client."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, kind: str, token: str | None = None, **members: Any) -> None:
        authorization = {} if token is None else {"authorization": f"Bearer {token}"}
        await self.socket.send(json.dumps({kind: {**members, **authorization}}))

    async def receive(self, seconds: float = 20) -> dict[str, Any]:
        async with asyncio.timeout(seconds):
            return json.loads(await self.socket.recv())

    async def ask(self, kind: str, token: str | None = None, **members: Any) -> dict[str, Any]:
        await self.send(kind, token, **members)
        return await self.receive()
