"""Private names of asyncio's socket and TLS transports. Checked with CPython 3.11.

A closed transport refers to itself by a stored bound method, so only the garbage collector frees it. Older versions of
CPython keep the reference (https://github.com/python/cpython/issues/100348).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

_TURNS: Final = 4
"""Turns of the event loop until an accepted connection has its protocol, and the task of its handler has begun."""


class Unlink:
    """Reference cycle of an asyncio transport, which stores a bound method of itself."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        """Create it while the transport is open: only then a TLS transport knows its underlying one."""
        tls = getattr(transport, "_ssl_protocol", None)
        self._transport: Any = transport if tls is None else getattr(tls, "_transport", transport)

    def __call__(self) -> None:
        """Break the cycle. Call it after the transport was closed.

        There is no effect while TLS still waits for the client's closing message, or with another event loop.
        """
        with suppress(AttributeError):
            if self._transport.is_closing():
                self._transport._read_ready_cb = None  # asyncio offers no other way


def limit_reads(transport: asyncio.BaseTransport, most: int) -> None:
    """Set the maximum bytes of one read. A TLS transport ignores it."""
    transport.max_size = most  # type: ignore[attr-defined]  # of asyncio's socket transports


async def stop_accepting(servers: Iterable[asyncio.Server]) -> None:
    """Accept no further connections, and wait until those that asyncio is accepting have begun.

    To be called before `Server.close`, which would leave them open. A TLS handshake may take longer.
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
