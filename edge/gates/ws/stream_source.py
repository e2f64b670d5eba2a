"""A WebSocket whose client sends elements of one stream, and gets an answer to each message, in order."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.frames import CloseCode

from edge.gates.guard import check
from edge.gates.http.streams import Streams
from edge.gates.refusals import log_refusal
from edge.gates.report_following import no_streams
from edge.gates.sessions import Sessions
from edge.gates.stream_charge import request_size
from edge.gates.ws.bounded import BoundedConnection
from edge.gates.ws.connection import WsConnection
from edge.gates.ws.element_lines import read_elements
from edge.gates.ws.stream_handshake import StreamHandshake
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidRequest, TooLarge, TooManyRequests, Unauthorized

Counts = Mapping[str, int]
"""Numbers of elements by fate."""

PATH: Final = "/streams/"
_PRIMITIVE: Final = "streams"
_unanswered: Final[set[asyncio.Future[Counts]]] = set()
"""Additions for clients that are gone: asyncio itself refers to tasks only weakly."""


class StreamSource:
    """Serves one connection. The gate takes the next message when the one before is answered (back-pressure)."""

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

    async def serve(self) -> None:
        """Answer messages until the client disconnects, or may not send elements any more."""
        try:
            if not await self._admit():
                return
            async for message in self._socket:
                if not await self._answer(message):
                    return
                if isinstance(self._socket, BoundedConnection):
                    self._socket.account()
        except ConnectionClosed:
            pass  # any way to disconnect is fine

    async def _admit(self) -> bool:
        """Check the token of the handshake, so that a client without one cannot hold the connection."""
        started = time.perf_counter()
        try:
            self._request.access("update")
        except EdgeError as error:
            return await self._refuse(error, started, ends=True)
        return True

    async def _answer(self, message: str | bytes) -> bool:
        """Answer a message. Returns whether the connection goes on."""
        started = time.perf_counter()
        try:
            counts = await self._add(message)
        except Unauthorized as error:
            return await self._refuse(error, started, ends=True)
        except EdgeError as error:
            return await self._refuse(error, started)
        except ConnectionClosed:
            return False
        except Exception as error:  # noqa: BLE001  logged under an incident number
            return await self._refuse(self._shared.as_error(error, None), started)
        self._shared.answered(_PRIMITIVE, 200, started)
        return await self._connection.write_and_wait(json.dumps({"elements": dict(counts)}))

    async def _add(self, message: str | bytes) -> Counts:
        access = self._request.access("update")
        if isinstance(message, bytes):
            raise InvalidRequest("Binary messages are not understood: send N-Quads as text")
        limit = self._shared.limits.max_message
        if len(message) > limit or len(message.encode()) > limit:
            raise TooLarge(f"The message is longer than {limit} bytes (ws.max_message); send a shorter one")
        streams = self._streams()
        if streams is None:
            raise no_streams()
        charge = self._shared.rate_limit.bytes.charge(self._request.client(access), request_size(message))
        try:
            elements = await asyncio.to_thread(read_elements, message)
            charge.set(request_size(message, len(elements), sum(len(triples) for triples, _ in elements)))
            access = self._permitted()  # again: the permissions may have ended meanwhile
            added = asyncio.ensure_future(streams.add(self._request.name, elements, access))
        except BaseException:
            charge.release()
            raise
        # Not when the client disconnects: it could otherwise fill the memory over ever new connections.
        added.add_done_callback(lambda _: charge.release())
        return await self._while_connected(added)

    async def _while_connected(self, added: asyncio.Future[Counts]) -> Counts:
        """Wait for a result, but not longer than the client: a slow processor must not keep a lost connection, or the
        gate that stops. The elements are added nevertheless. Raises `ConnectionClosed`.
        """
        added.add_done_callback(_retrieve_exception)
        closed = asyncio.ensure_future(self._socket.wait_closed())
        try:
            await asyncio.wait((added, closed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            if not added.done():
                _unanswered.add(added)
                added.add_done_callback(_unanswered.discard)
        if not added.done():
            raise ConnectionClosedError(None, None)
        return added.result()

    def _permitted(self) -> Access:
        access = self._shared.guard.access(self._request.authorization)
        check(access, "update")
        return access

    async def _refuse(self, error: EdgeError, started: float, *, ends: bool = False) -> bool:
        self._shared.answered(_PRIMITIVE, error.status_code, started)
        log_refusal(error, self._shared.gate, self._request.peer, _PRIMITIVE)
        goes_on = await self._connection.write_and_wait(error.to_json())
        if ends and isinstance(error, TooManyRequests):
            self._connection.close(CloseCode.TRY_AGAIN_LATER, "too many requests (limits.rate); try again later")
        elif ends:
            self._connection.close(CloseCode.POLICY_VIOLATION, "the client may not add elements")
        return goes_on and not ends


def _retrieve_exception(future: asyncio.Future[Counts]) -> None:
    """Retrieve the exception: with the client gone nobody else does, and asyncio would log it."""
    if not future.cancelled():
        future.exception()
