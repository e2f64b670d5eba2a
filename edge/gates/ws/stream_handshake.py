"""The handshake of a WebSocket for streams: what it names, and the permissions of its client."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, unquote

from websockets.asyncio.server import ServerConnection

from edge.gates.rate_limit import client_of, peer_of
from edge.gates.sessions import Sessions
from edge.protocol.access import Access, Action
from edge.protocol.errors import InvalidRequest

_MOST_PARAMETERS: Final = 100


class StreamHandshake:
    """The request that opened a connection."""

    def __init__(self, sessions: Sessions, socket: ServerConnection, path: str) -> None:
        """`sessions`: guard and limits of the gate. `path`: the part of the path before the name."""
        self._shared = sessions
        request = socket.request
        assert request is not None  # noqa: S101  the handshake is complete
        resource, _, self._parameters = request.path.partition("?")
        self.name = unquote(resource.removeprefix(path))
        """The stream or query."""
        headers = request.headers.get_all("Authorization")
        self.authorization = headers[0] if len(headers) == 1 else None
        self.peer = peer_of(*socket.remote_address[:2])
        """Origin of the connection, for the limits."""

    def parameter(self, name: str) -> list[str]:
        """Return the values of a parameter of the URL."""
        try:
            found = parse_qsl(self._parameters, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError:
            raise InvalidRequest(f"The URL has more than {_MOST_PARAMETERS} parameters; use fewer") from None
        return [value for each, value in found if each == name]

    def access(self, action: Action) -> Access:
        """See `Sessions.admit`."""
        return self._shared.admit(self.authorization, self.peer, action)

    def client(self, access: Access) -> str:
        """Return the client that the limits count: without security, its address."""
        return client_of(access, self.peer)
