"""A WebSocket that sends the reports of one registered query: the next ones, or those after a number."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from edge.gates.http.streams import Streams
from edge.gates.refusals import log_refusal
from edge.gates.report_following import ReportFollowing, read_after
from edge.gates.sessions import Sessions
from edge.gates.ws.connection import WsConnection
from edge.gates.ws.stream_handshake import StreamHandshake
from edge.protocol.errors import EdgeError, InvalidRequest, NotReady, StorageFailed, TooManyRequests

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
        self._request = request = StreamHandshake(sessions, socket, PATH)
        self._woken = asyncio.Event()
        self._following = ReportFollowing(sessions, streams, request.authorization, request.peer, self._woken.set)
        self._gone = False
        """Whether the client has disconnected."""

    async def serve(self) -> None:
        """Send reports until the client disconnects, may not read them any more, or the query ends."""
        started = time.perf_counter()
        reading = asyncio.create_task(self._read())
        try:
            if (head := await self._begin(reading, started)) is not None:
                self._shared.answered(_PRIMITIVE, 200, started)
                await self._send(head)
        finally:
            self._following.close()
            reading.cancel()
            await asyncio.wait([reading])

    async def _begin(self, reading: asyncio.Task[None], started: float) -> dict[str, object] | None:
        """Follow the query. Returns the content of the first message; None: the client is gone, or got the reason.

        Not longer than the client is there: a slow processor must not keep a lost connection, or the gate that stops.
        """
        beginning = asyncio.create_task(self._follow())
        await asyncio.wait((beginning, reading), return_when=asyncio.FIRST_COMPLETED)
        if not beginning.done():
            beginning.cancel()
            await asyncio.wait([beginning])
        failure = self._following.error if beginning.cancelled() else beginning.exception()
        if failure is not None:
            await self._refuse(self._shared.as_error(failure, None), started)
        return None if failure is not None or beginning.cancelled() else beginning.result()

    async def _follow(self) -> dict[str, object]:
        after = read_after(self._request.parameter("after"), self._request.parameter("of"))
        return await self._following.begin(self._request.name, after)

    async def _send(self, head: dict[str, object]) -> None:
        following = self._following
        if not await self._connection.write_and_wait(json.dumps({"following": head})):
            return
        while True:
            self._woken.clear()
            while (message := following.take()) is not None:
                sending = self._connection.write_and_wait(message)
                del message  # the connection holds its own copy
                if not await sending:
                    return
            if self._gone:
                return
            if (error := following.error) is not None:
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
            self._following.end(
                InvalidRequest('This WebSocket only sends reports; send requests over the path "/subscribe"')
            )

    async def _refuse(self, error: EdgeError, started: float) -> None:
        self._shared.answered(_PRIMITIVE, error.status_code, started)
        log_refusal(error, self._shared.gate, self._request.peer, _PRIMITIVE)
        if not await self._connection.write_and_wait(error.to_json()):
            return
        if isinstance(error, TooManyRequests | NotReady | StorageFailed):
            self._connection.close(CloseCode.TRY_AGAIN_LATER, "the gateway cannot serve this now; try again later")
        else:
            self._connection.close(CloseCode.POLICY_VIOLATION, "no more reports follow")
