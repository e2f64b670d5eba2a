"""Deduplication of requests: a repeated request is executed once (RFC 7252, sections 4.2 and 4.5)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

_OVERHEAD: Final = 860
"""Memory of an entry in bytes without its response."""


class _Request(NamedTuple):
    until: float
    """Expiry by the loop's clock."""
    digest: bytes
    answer: bytes


class Deduplication:
    """Recent requests with their responses, bounded in time and size; the oldest are dropped first."""

    def __init__(self, lifetime: float, limit: int) -> None:
        """`lifetime` in seconds; `limit` in bytes."""
        self._lifetime = lifetime
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[Hashable, _Request] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable, digest: bytes = b"") -> bytes | None:
        """Return the response to an earlier request; empty if it is pending; None if the request is new.

        `digest` identifies the content: a restarted device may reuse message IDs for other requests.
        """
        found = self._entries.get(key)
        return None if found is None or found.digest != digest else found.answer

    def came(self, key: Hashable, digest: bytes = b"") -> None:
        """Register a new request."""
        before = self._entries.pop(key, None)
        if before is not None:
            self._size -= _OVERHEAD + len(before.answer)
        self._entries[key] = _Request(asyncio.get_running_loop().time() + self._lifetime, digest, b"")
        self._size += _OVERHEAD
        self._forget()

    def answered(self, key: Hashable, datagram: bytes) -> None:
        """Store the response to a request, unless the request has expired."""
        found = self._entries.get(key)
        if found is not None:
            self._entries[key] = found._replace(answer=datagram)
            self._size += len(datagram) - len(found.answer)
            self._forget()

    def close(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _forget(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._entries and (self._size > self._limit or next(iter(self._entries.values())).until <= now):
            _, oldest = self._entries.popitem(last=False)
            self._size -= _OVERHEAD + len(oldest.answer)
        if self._entries and self._timer is None:
            oldest = next(iter(self._entries.values()))
            self._timer = asyncio.get_running_loop().call_at(oldest.until, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._forget()
