"""A WebSocket that sends the reports of one registered query, from the next one on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.http.streams import FollowedQuery, Streams
from edge.gates.sessions import Sessions
from edge.gates.ws.connection import WsConnection
from edge.gates.ws.stream_handshake import StreamHandshake
from edge.protocol.errors import EdgeError, InvalidRequest, NotFound, TooManyRequests

PATH: Final = "/queries/"
_PRIMITIVE: Final = "follow"


class ReportFollower:
    """Serves one connection. A client that reads slowly gets merged reports."""

    def __init__(
        self,
        sessions: Sessions,
        socket: ServerConnection,
        connection: WsConnection,
        streams: Callable[[], Streams | None],
    ) -> None:
        """`sessions`: guard, limits and metrics of the gate. `streams` returns None without streams."""
        self._shared = sessions
        self._socket = socket
        self._connection = connection
        self._streams = streams
        self._request = StreamHandshake(sessions, socket, PATH)
        self._woken = asyncio.Event()
        self._error: EdgeError | None = None
        """Why the gate ends the connection; None: it does not."""
        self._gone = False
        """Whether the client has disconnected."""

    async def serve(self) -> None:
        """Send reports until the client disconnects, may not read them any more, or the query ends."""
        started = time.perf_counter()
        try:
            access = self._request.access("query")
            charge = self._shared.rate_limit.bytes.charge(self._request.client(access))
            streams = self._streams()
            if streams is None:
                raise NotFound("The gateway has no streams: the setting streams.enabled is false, or it is starting")
            followed = await streams.follow(self._request.name, access, charge, self._woken.set)
        except EdgeError as error:
            await self._refuse(error, started)
            return
        except Exception as error:  # noqa: BLE001  logged under an incident number
            await self._refuse(self._shared.as_error(error, None), started)
            return
        self._shared.answered(_PRIMITIVE, 200, started)
        watch = AuthorizationWatch(self._shared.guard, access, self._request.authorization, self._end)
        reading = asyncio.create_task(self._read())
        try:
            await self._send(followed)
        finally:
            watch.end()
            reading.cancel()
            await asyncio.wait([reading])
            followed.close()

    async def _send(self, followed: FollowedQuery) -> None:
        head = {"query": followed.query, "number": followed.number}
        if not await self._connection.write_and_wait(json.dumps({"following": head})):
            return
        while True:
            self._woken.clear()
            while self._error is None and (message := followed.take()) is not None:
                if not await self._connection.write_and_wait(message):
                    return
            if self._gone:
                return
            if (error := self._error or followed.error) is not None:
                await self._refuse(error, time.perf_counter())
                return
            await self._woken.wait()

    async def _read(self) -> None:
        """Notice the end of the connection, and messages, which have no meaning here."""
        try:
            await self._socket.recv()
        except ConnectionClosed:
            self._gone = True
            self._woken.set()
        else:
            self._end(InvalidRequest('This WebSocket only sends reports; send requests over the path "/subscribe"'))

    def _end(self, error: EdgeError) -> None:
        self._error = self._error or error
        self._woken.set()

    async def _refuse(self, error: EdgeError, started: float) -> None:
        self._shared.answered(_PRIMITIVE, error.status_code, started)
        if not await self._connection.write_and_wait(error.to_json()):
            return
        if isinstance(error, TooManyRequests):
            self._connection.close(CloseCode.TRY_AGAIN_LATER, "too many requests or unread reports; try again later")
        else:
            self._connection.close(CloseCode.POLICY_VIOLATION, "no more reports follow")
