"""Authorization of a client: a Bearer token, fetched on first use and again when the broker rejects it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from edge.client.errors import NoAnswer
from edge.protocol.addresses import keeps_secrets

TokenSource = Callable[[], str | Awaitable[str]]
"""Returns a token (without the word `Bearer`). A plain function runs in its own thread, so it may block."""


class Authorization:
    """Value of the header `Authorization` for all requests of a client."""

    def __init__(self, source: TokenSource | None) -> None:
        self._source = source
        self._value: str | None = None
        self._lock = asyncio.Lock()

    @property
    def required(self) -> bool:
        """Whether requests carry a token."""
        return self._source is not None

    async def value(self) -> str | None:
        """Return `Bearer ...`, or None for a client without tokens. Concurrent callers are served in order.

        Raises `NoAnswer`.
        """
        if self._source is None:
            return None
        async with self._lock:  # one fetch at a time: the waiting callers use its token
            if self._value is None:
                try:
                    self._value = f"Bearer {await _called(self._source)}"
                except Exception as error:
                    raise NoAnswer(f"no token: {error}", sent=False) from error
            return self._value

    def refused(self, value: str | None) -> bool:
        """Report that the broker rejected `value`. Returns True if a retry will use another token."""
        if self._source is None or value is None:
            return False
        if self._value == value:  # else another request has fetched a new token in the meantime
            self._value = None
        return True


def check_encrypted(url: str) -> None:
    """Raise `ValueError` if others could read a token on the way to this URL."""
    if not keeps_secrets(url):
        raise ValueError(f"{url} is not encrypted: others could read the token on the way; use https and wss")


async def _called(source: TokenSource) -> str:
    found = source() if inspect.iscoroutinefunction(source) else await asyncio.to_thread(source)
    return await found if inspect.isawaitable(found) else found
