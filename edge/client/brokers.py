"""Brokers of an application: clients for the targets of its profile entries, on shared connections."""

from __future__ import annotations

from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from edge.client.client import Client
from edge.client.connections import Connections
from edge.client.endpoints import Endpoints
from edge.client.options import Options
from edge.jsap import ProfileEntry


class Brokers:
    """One WebSocket for each broker, shared by all agents. Use it with `async with`.

    `host` replaces all hosts in profiles.
    """

    def __init__(self, options: Options | None = None, *, host: str | None = None) -> None:
        self._connections = Connections(options or Options())
        self._host = host
        self._clients: dict[Endpoints, Client] = {}

    def client(self, entry: ProfileEntry) -> Client:
        """Return the client for an update or query of a profile."""
        # A profile has one address for queries and updates. The protocol does not allow updates with GET.
        target, url = entry.sparql11, self._moved(entry.sparql11.url)
        endpoints = Endpoints(
            query=url,
            update=url,
            subscribe=self._moved(entry.sparql11se.url),
            query_method=target.method,
            update_method="POST" if target.method == "GET" else target.method,
        )
        found = self._clients.get(endpoints)
        if found is None:
            found = self._clients[endpoints] = Client(endpoints, connections=self._connections)
        return found

    @property
    def connected(self) -> bool:
        """Whether all WebSockets in use are open. False if none is in use."""
        return self._connections.connected

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()
        await self._connections.close()

    def _moved(self, url: str) -> str:
        if self._host is None:
            return url
        parts = urlsplit(url)
        # IPv6 addresses need brackets in a URL (RFC 3986, section 3.2.2).
        host = f"[{self._host}]" if ":" in self._host and not self._host.startswith("[") else self._host
        return urlunsplit(parts._replace(netloc=host if parts.port is None else f"{host}:{parts.port}"))


class Agent:
    """Base class of producers, consumers and aggregators, with its own brokers or those of an application."""

    def __init__(self, brokers: Brokers | None) -> None:
        self._own = brokers is None
        self._brokers = brokers if brokers is not None else Brokers()

    @property
    def connected(self) -> bool:
        """Whether the WebSockets in use are open."""
        return self._brokers.connected

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the agent, and close its connections if it owns them."""
        if self._own:
            await self._brokers.close()
