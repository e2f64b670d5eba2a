"""A closed transport of asyncio refers to itself: break that, so that its memory is free at once.

The garbage collector looks at long-lived objects seldom (`edge.garbage`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


def unlink_transport(transport: asyncio.BaseTransport) -> None:
    """Break the reference cycle of a transport that is closed: it has a bound method of its own.

    To be called from `connection_lost`. Nothing happens to transports of TLS, or of another event loop.
    """
    with suppress(AttributeError):
        transport._read_ready_cb = None  # type: ignore[attr-defined]  # asyncio has no other way
