"""Shared connections of clients: one WebSocket for each URL, one pool of HTTP connections, one authorization."""

from __future__ import annotations

import dataclasses
from weakref import WeakSet

from edge.client.authorization import Authorization
from edge.client.discovery import BrokerAddress
from edge.client.http_transport import Http
from edge.client.options import Options
from edge.client.report_feed import ReportFeed
from edge.client.subscriptions import ClientSubscriptions
from edge.client.websocket import WebSocketClient


class Connections:
    """Connections of clients on one event loop. `close` closes all of them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.authorization = Authorization(options.token)
        self.http = Http(options.tls, options.timeout, self.authorization)
        self._sockets: dict[str, ClientSubscriptions] = {}
        self._running: set[ReportFeed] = set()
        self._feeds: WeakSet[ReportFeed] = WeakSet()
        """All feeds, also those that are not connected."""

    def socket(self, address: BrokerAddress) -> ClientSubscriptions:
        """Return the WebSocket for an address, open or not."""
        found = self._sockets.get(address.key)
        if found is None:
            options = self._located(address)
            link = WebSocketClient(address.endpoints().subscribe, options, self.authorization)
            found = self._sockets[address.key] = ClientSubscriptions(link, options, self.authorization)
        return found

    def reports(self, address: BrokerAddress, query: str, after: int | None, of: str | None) -> ReportFeed:
        """Return a new feed of the reports of a query."""
        url, options = address.endpoints().subscribe, self._located(address)
        feed = ReportFeed(query, url, options, self.authorization, self._running, after, of)
        self._feeds.add(feed)
        return feed

    def _located(self, address: BrokerAddress) -> Options:
        """Return the options, with the look-up of an address that may change."""
        if address.changes and self.options.locate is None:
            return dataclasses.replace(self.options, locate=address.subscribe_url)
        return self.options

    @property
    def connected(self) -> bool:
        """Whether all WebSockets in use are open. False if none is in use."""
        return self.used and all(socket.link.connected for socket in self._sockets.values() if socket.link.started)

    @property
    def used(self) -> bool:
        """Whether a WebSocket is in use."""
        return any(socket.link.started for socket in self._sockets.values())

    async def close(self) -> None:
        """Close all connections."""
        for feed in list(self._feeds):
            await feed.close()
        for socket in self._sockets.values():
            await socket.link.close()
        await self.http.close()
