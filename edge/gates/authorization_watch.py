"""Authorization watch: ends a subscription when its token expires or the client's permissions change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from edge.gates.guard import Guard
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidGrant

_MAX_INTERVAL: Final = 60.0
"""Maximum seconds between two checks, because the machine's clock may be changed."""


class AuthorizationWatch:
    """Watches one subscription. All methods are called on the event loop."""

    def __init__(
        self, guard: Guard, access: Access, authorization: str | None, over: Callable[[EdgeError], None]
    ) -> None:
        """`access`: permissions at the start; `over`: called once with the reason why the subscription must end."""
        self._guard = guard
        self._access = access
        self._authorization = authorization
        self._over = over
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._unwatch: Callable[[], None] | None = None
        # The permissions may have ended since the request. Checked later, because the owner is not constructed yet.
        self._timer = asyncio.get_running_loop().call_soon(self._check)

    def end(self) -> None:
        """Stop watching: the subscription has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None  # breaks a reference cycle

    def _check(self) -> None:
        self.end()
        try:
            access = self._guard.access(self._authorization)
            # The result was computed with the old permissions, so the client has to subscribe again.
            if access != self._access:
                raise InvalidGrant("The rights of this client have changed; subscribe again")
            self._unwatch = self._guard.watch(access.client, self._check)
        except EdgeError as error:
            self._over(error)
            return
        left = _MAX_INTERVAL if access.expires is None else access.expires / 1_000_000 - time.time()
        self._timer = asyncio.get_running_loop().call_later(min(max(left, 0.01), _MAX_INTERVAL), self._check)
