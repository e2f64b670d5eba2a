"""Private names of asyncio's socket and TLS transports. Checked with CPython 3.11.

A closed transport refers to itself by a stored bound method, so only the garbage collector frees it. Older versions of
CPython keep the reference (https://github.com/python/cpython/issues/100348).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


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
