"""A server for callback URLs on loopback, with any behaviour, and a store of reports in memory."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from edge.streams.callbacks import StoredReport


class Request(NamedTuple):
    """A received request."""

    line: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """Server whose behaviours apply to its connections in turn; the last one applies to all further ones."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = list(behaviours)
        self.requests: asyncio.Queue[Request] = asyncio.Queue()
        self.connections = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """URL of a callback at this server."""
        return f"http://127.0.0.1:{self.port}/hook?key=1"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        behaviour = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
        try:
            await behaviour(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
        """Serve on a free port."""
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def answering(self, answer: str | bytes) -> Behaviour:
        """Return the behaviour that reads the request and sends this answer: a status line's end, or all bytes."""
        raw = answer if isinstance(answer, bytes) else f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode()

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.receive(reader)
            writer.write(raw)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        return behave

    async def receive(self, reader: asyncio.StreamReader) -> None:
        """Read one request."""
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        headers = dict(field.split(": ", 1) for field in fields)
        body = await reader.readexactly(int(headers.get("Content-Length", "0")))
        self.requests.put_nowait(Request(line, headers, body))

    def then(self, *behaviours: Behaviour) -> Receiver:
        """Set the behaviours."""
        self._behaviours = list(behaviours)
        return self


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read all and never answer."""
    while await reader.read(65_536):
        pass


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Neither read nor answer, until the peer ends the connection."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.get_running_loop().create_future()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reset the connection."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def dribble(start: bytes) -> Behaviour:
    """Send `start`, then one byte at a time without end."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(start)
        while not writer.transport.is_closing():
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.01)

    return behave


def flood(start: bytes) -> Behaviour:
    """Send `start`, then as much as the peer reads, without end."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(start)
        while True:
            writer.write(b"a" * 65_536)
            await writer.drain()

    return behave


class MemoryReports:
    """Reports of observers in memory."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[StoredReport]] = {}
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        """Acknowledged reports, in this order."""
        self.faults: list[Exception] = []
        """Errors of the next calls."""

    def put(self, observer_id: str, *numbers: int, body: bytes = b"{}", merged: int = 1) -> None:
        """Add reports."""
        for number in numbers:
            report = StoredReport(number, number * 1_000_000, "application/sparql-results+json", body, merged)
            self._waiting.setdefault(observer_id, []).append(report)

    def replace(self, observer_id: str, body: bytes) -> None:
        """Replace the bodies of the waiting reports of an observer."""
        self._waiting[observer_id] = [report._replace(body=body) for report in self._waiting[observer_id]]

    def waiting(self, observer_id: str, most: int) -> list[StoredReport]:
        self._fail()
        return self._waiting.get(observer_id, [])[:most]

    def acknowledged(self, observer_id: str, number: int) -> None:
        self._fail()
        reports = self._waiting[observer_id]
        self._waiting[observer_id] = [report for report in reports if report.number > number]
        self._loop.call_soon_threadsafe(self.done.put_nowait, (observer_id, number))

    def _fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)
