"""Requests of the last minutes, so that one that comes again is carried out once (RFC 7252, sections 4.2 and 4.5)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

_OVERHEAD: Final = 860
"""Bytes that one takes beside its answer."""


class _Request(NamedTuple):
    until: float
    """When it is forgotten, by the loop's clock."""
    digest: bytes
    answer: bytes


class Deduplication:
    """Which requests have come, and what they were answered, for a time; up to a size, beyond which the oldest go."""

    def __init__(self, lifetime: float, limit: int) -> None:
        """In seconds; in bytes."""
        self._lifetime = lifetime
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[Hashable, _Request] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable, digest: bytes = b"") -> bytes | None:
        """What a request was answered; empty if it is still in work; None if it is new.

        `digest` is of what it says: a device that begins its numbers anew says something else.
        """
        found = self._kept.get(key)
        return None if found is None or found.digest != digest else found.answer

    def came(self, key: Hashable, digest: bytes = b"") -> None:
        """A request is new."""
        before = self._kept.pop(key, None)
        if before is not None:
            self._size -= _OVERHEAD + len(before.answer)
        self._kept[key] = _Request(asyncio.get_running_loop().time() + self._lifetime, digest, b"")
        self._size += _OVERHEAD
        self._forget()

    def answered(self, key: Hashable, datagram: bytes) -> None:
        """Keep the answer to a request, unless it is forgotten."""
        found = self._kept.get(key)
        if found is not None:
            self._kept[key] = found._replace(answer=datagram)
            self._size += len(datagram) - len(found.answer)
            self._forget()

    def close(self) -> None:
        """Forget all."""
        self._kept.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _forget(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._kept and (self._size > self._limit or next(iter(self._kept.values())).until <= now):
            _, oldest = self._kept.popitem(last=False)
            self._size -= _OVERHEAD + len(oldest.answer)
        if self._kept and self._timer is None:
            oldest = next(iter(self._kept.values()))
            self._timer = asyncio.get_running_loop().call_at(oldest.until, self._again)

    def _again(self) -> None:
        self._timer = None
        self._forget()
