"""The handshake of a WebSocket for streams: what it names, and the permissions of its client."""

from __future__ import annotations

from urllib.parse import unquote

from websockets.asyncio.server import ServerConnection

from edge.gates.rate_limit import client_of, peer_of
from edge.gates.sessions import Sessions
from edge.protocol.access import Access, Action


class StreamHandshake:
    """The request that opened a connection."""

    def __init__(self, sessions: Sessions, socket: ServerConnection, path: str) -> None:
        """`sessions`: guard and limits of the gate. `path`: the part of the path before the name."""
        self._shared = sessions
        request = socket.request
        assert request is not None  # noqa: S101  the handshake is complete
        self.name = unquote(request.path.partition("?")[0].removeprefix(path))
        """The stream or query."""
        headers = request.headers.get_all("Authorization")
        self.authorization = headers[0] if len(headers) == 1 else None
        self.peer = peer_of(*socket.remote_address[:2])
        """Origin of the connection, for the limits."""

    def access(self, action: Action) -> Access:
        """See `Sessions.admit`."""
        return self._shared.admit(self.authorization, self.peer, action)

    def client(self, access: Access) -> str:
        """Return the client that the limits count: without security, its address."""
        return client_of(access, self.peer)
