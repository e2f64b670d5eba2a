"""Brokers of an application: clients for the targets of its profile entries, on shared connections."""

from __future__ import annotations

from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from edge.client.client import Client
from edge.client.connections import Connections
from edge.client.discovery import found_address, with_environment
from edge.client.endpoints import Endpoints
from edge.client.options import Options
from edge.jsap import ProfileEntry


class Brokers:
    """One WebSocket for each broker, shared by all agents. Use it with `async with`.

    `host` replaces all hosts in profiles. `find_gateway`: entries without an address of their own use the gateway that
    `Client()` finds, and its token; the addresses of the profile count if none is found. Raises `ValueError`.
    """

    def __init__(self, options: Options | None = None, *, host: str | None = None, find_gateway: bool = False) -> None:
        options = options or Options()
        self._connections = Connections(options)
        # Apart, because the token of the environment is for the gateway only.
        self._to_gateway = Connections(with_environment(options)) if find_gateway else None
        if self._to_gateway is not None:
            found_address(self._to_gateway.options)  # an invalid EDGE_URL is reported here
        self._host = host
        self._clients: dict[tuple[Endpoints, bool], Client] = {}

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
        gateway = None if entry.own_address else self._to_gateway
        found = self._clients.get((endpoints, gateway is not None))
        if found is None:
            address = None if gateway is None else found_address(gateway.options, endpoints)
            found = Client(endpoints, connections=gateway or self._connections, address=address)
            self._clients[endpoints, gateway is not None] = found
        return found

    @property
    def connected(self) -> bool:
        """Whether all WebSockets in use are open. False if none is in use."""
        used = [each for each in (self._connections, self._to_gateway) if each is not None and each.used]
        return bool(used) and all(each.connected for each in used)

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
        if self._to_gateway is not None:
            await self._to_gateway.close()

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
