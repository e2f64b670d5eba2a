"""Bytes of a result on their way from the thread that writes them to the event loop that sends them."""

from __future__ import annotations

import asyncio
import io
import re
import threading
from concurrent.futures import TimeoutError as NotYet
from typing import Final, NamedTuple

from spark_offload.errors import QueryCancelled, QueryRefused, ResultTooLarge

PIECE: Final = 64 * 1024
"""Length in bytes from which a part of a result is sent."""
_PIECES: Final = 4
"""Parts that may wait for the client."""
_LOOKED: Final = 0.2
"""Seconds between two checks whether a query was cancelled while its client does not read."""
_NOT_XML: Final = re.compile(b"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
"""Characters in UTF-8 that XML 1.0 cannot represent in any form (section 2.2)."""


class QueryFailure(NamedTuple):
    """Status and text for a query that failed."""

    status: int
    detail: str


class ResultOutput(io.RawIOBase):
    """Writable binary file, whose content the event loop reads in parts. A full one lets the writer wait."""

    def __init__(self, most: int, *, xml: bool) -> None:
        """`most`: maximum length in bytes. Call this in the event loop."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[bytes | QueryFailure] = asyncio.Queue(_PIECES)
        self._most = most
        self._xml = xml
        self._length = 0
        self._buffer = bytearray()
        self._cancelled = threading.Event()

    def writable(self) -> bool:
        """Return whether it can be written."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # pyoxigraph passes only bytes
        """Append bytes. Raises `QueryCancelled`, `QueryRefused`, `ResultTooLarge`."""
        self._length += len(data)
        if self._length > self._most:
            raise ResultTooLarge(f"the result has more than {self._most} bytes (--max-result-bytes): add a LIMIT")
        self._buffer += data
        if len(self._buffer) >= PIECE:
            self.deliver()
        return len(data)

    def deliver(self) -> None:
        """Pass what was written to the event loop. Raises `QueryCancelled`, `QueryRefused`."""
        if self._xml and (found := _NOT_XML.search(self._buffer)):
            raise QueryRefused(
                f"the result has the character {found[0].decode()!r}, which XML cannot represent: ask for another"
                " format"
            )
        part, self._buffer = bytes(self._buffer), bytearray()
        if part:
            self._put(part)

    def end(self, failure: QueryFailure | None) -> None:
        """Pass the end of the result, or the failure that ends it. Raises `QueryCancelled`."""
        self._put(b"" if failure is None else failure)

    def check(self) -> None:
        """Raise `QueryCancelled` after `cancel`."""
        if self._cancelled.is_set():
            raise QueryCancelled("the query was cancelled")

    def cancel(self) -> None:
        """Let the writer fail with `QueryCancelled`."""
        self._cancelled.set()

    async def part(self) -> bytes | QueryFailure:
        """Return the next part of the result. An empty one is the end."""
        return await self._parts.get()

    def _put(self, part: bytes | QueryFailure) -> None:
        self.check()
        put = asyncio.run_coroutine_threadsafe(self._parts.put(part), self._loop)
        while True:
            try:
                return put.result(_LOOKED)
            except NotYet:
                if self._cancelled.is_set():
                    put.cancel()
                self.check()
