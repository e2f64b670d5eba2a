"""Authorization of a client: a Bearer token, fetched on first use and again when the broker rejects it."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from edge.client.errors import NoAnswer
from edge.protocol.addresses import is_loopback, keeps_secrets

TokenSource = Callable[[], str | Awaitable[str]]
"""Returns a token (without the word `Bearer`). A plain function runs in its own thread, so it may block."""


@dataclass(frozen=True, slots=True)
class GatewayToken:
    """`TokenSource` for the gateway only: for servers of this machine, and for one other host."""

    token: str = field(repr=False)
    host: str = ""
    """Host name of the gateway in lower case; "" if it runs on this machine."""

    def __call__(self) -> str:
        """Return the token."""
        return self.token

    def goes_to(self, url: str) -> bool:
        """Return whether the server of a URL gets the token."""
        try:
            host = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return is_loopback(host) or (bool(host) and host == self.host)


class Authorization:
    """Value of the header `Authorization` for all requests of a client."""

    def __init__(self, source: TokenSource | None) -> None:
        self._source = source
        self._value: str | None = None
        self._lock = asyncio.Lock()

    def goes_to(self, url: str) -> bool:
        """Return whether requests to this URL carry the token."""
        return self._source is not None and (not isinstance(self._source, GatewayToken) or self._source.goes_to(url))

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


def without_token(text: str) -> str:
    """Return the text of a WebSocket message, `{kind: members}`, without its token."""
    return json.dumps(
        {
            kind: {name: value for name, value in members.items() if name != "authorization"}
            for kind, members in json.loads(text).items()
        },
        ensure_ascii=False,
    )


async def _called(source: TokenSource) -> str:
    found = source() if inspect.iscoroutinefunction(source) else await asyncio.to_thread(source)
    return await found if inspect.isawaitable(found) else found
