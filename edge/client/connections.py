"""Shared connections of clients: one WebSocket for each URL, one pool of HTTP connections, one authorization."""

from __future__ import annotations

from edge.client.authorization import Authorization
from edge.client.options import Options
from edge.client.over_http import Http
from edge.client.subscriptions import ClientSubscriptions
from edge.client.websocket import WebSocketClient


class Connections:
    """Connections of clients on one event loop. `close` closes all of them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.authorization = Authorization(options.token)
        self.http = Http(options.tls, options.timeout)
        self._sockets: dict[str, ClientSubscriptions] = {}

    def socket(self, url: str) -> ClientSubscriptions:
        """Return the WebSocket for `url`, open or not."""
        found = self._sockets.get(url)
        if found is None:
            link = WebSocketClient(url, self.options, self.authorization)
            found = self._sockets[url] = ClientSubscriptions(link, self.options, self.authorization)
        return found

    @property
    def connected(self) -> bool:
        """Whether all WebSockets in use are open. False if none is in use."""
        started = [socket.link for socket in self._sockets.values() if socket.link.started]
        return bool(started) and all(link.connected for link in started)

    async def close(self) -> None:
        """Close all connections."""
        for socket in self._sockets.values():
            await socket.link.close()
        await self.http.close()
