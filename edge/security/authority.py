"""OAuth 2.0 authorization server of the gateway (RFC 6749, section 4.4), independent of the transports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from edge.protocol.errors import TooManyRequests
from edge.security.clients import ClientRegistry
from edge.security.keys import Keys
from edge.security.tokens import Tokens

_T = TypeVar("_T")

_WAITING = 100
"""Concurrent requests. Each takes a tenth of a second of processor time, and they run one at a time."""


class Authority:
    """Registers clients and issues their tokens."""

    def __init__(self, clients: ClientRegistry, keys: Keys, tokens: Tokens) -> None:
        self._clients = clients
        self._keys = keys
        self._tokens = tokens
        self._turn = asyncio.Lock()
        self._pending = 0

    async def register(self, identity: str) -> dict[str, Any]:
        """Return the credentials of an identity. Raises `UnauthorizedClient`, `TooManyRequests`."""

        def register() -> dict[str, Any]:
            client_id, password = self._clients.register(identity)
            return {"client_id": client_id, "client_secret": password, "signature": self._keys.public()}

        return await self._in_turn(register)

    async def token(self, client_id: str, password: str) -> dict[str, Any]:
        """Return a token message. Raises `InvalidClient`, `TooManyRequests`."""

        def issue() -> dict[str, Any]:
            self._clients.authenticate(client_id, password)
            issued = self._tokens.issue(client_id)
            seconds = max(issued.expires - int(time.time()), 0)
            return {"access_token": issued.token, "token_type": "bearer", "expires_in": seconds}

        return await self._in_turn(issue)

    async def _in_turn(self, work: Callable[[], _T]) -> _T:
        if self._pending >= _WAITING:
            raise TooManyRequests("Too many clients register or request tokens; try again in a few seconds")
        self._pending += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(work)
        finally:
            self._pending -= 1
