"""A subscriber for tests: it sends requests and waits for expected messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

ALL = "SELECT ?s ?p ?o { ?s ?p ?o }"


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, message: Any) -> None:
        await self.socket.send(message if isinstance(message, str | bytes) else json.dumps(message))

    async def receive(self, seconds: float = 20) -> dict[str, Any]:
        return json.loads(await asyncio.wait_for(self.socket.recv(), seconds))

    async def ask(self, message: Any) -> dict[str, Any]:
        await self.send(message)
        return await self.receive()

    async def subscribe(self, sparql: str = ALL, alias: str | None = None, **members: Any) -> dict[str, Any]:
        """Subscribe; return the content of the notification with sequence 0."""
        answer = await self.ask({"subscribe": {"sparql": sparql, "alias": alias, **members}})
        assert "notification" in answer, answer
        return answer["notification"]

    async def until_closed(self) -> list[dict[str, Any]]:
        """Return all messages until the connection ends."""
        messages = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                messages.append(await self.receive())
        return messages

    async def notification(self) -> dict[str, Any]:
        return (await self.receive())["notification"]


def rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the values of bindings, in the order of the variables."""
    names = results["head"]["vars"]
    return sorted(tuple(row[name]["value"] for name in names if name in row) for row in results["results"]["bindings"])
