"""How long a subscription may go on: until its client's token expires, or the client's rights change or end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from edge.gates.guard import Guard
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidGrant

_LONGEST: Final = 60.0
"""Seconds until it is looked again: the machine's clock may be set meanwhile."""


class AuthorizationWatch:
    """Watches over one subscription. All methods are called on the event loop."""

    def __init__(
        self, guard: Guard, access: Access, authorization: str | None, over: Callable[[EdgeError], None]
    ) -> None:
        """`access` is what the subscription began with; `over` is called, once, with the reason why it must end."""
        self._guard = guard
        self._access = access
        self._authorization = authorization
        self._over = over
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._unwatch: Callable[[], None] | None = None
        # The rights may have ended since they were asked for. It is not told here: its owner is being made.
        self._timer = asyncio.get_running_loop().call_soon(self._look)

    def end(self) -> None:
        """The subscription is over anyway."""
        if self._timer is not None:
            self._timer.cancel()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None  # it refers to this

    def _look(self) -> None:
        self.end()
        try:
            access = self._guard.access(self._authorization)
            if access != self._access:
                raise InvalidGrant("The rights of this client have changed; subscribe again")
        except EdgeError as error:
            self._over(error)
            return
        self._unwatch = self._guard.watch(access.client, self._look)
        left = _LONGEST if access.expires is None else access.expires / 1_000_000 - time.time()
        self._timer = asyncio.get_running_loop().call_later(min(max(left, 0.01), _LONGEST), self._look)
