"""Order of updates that are sent one after the other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from edge.client.errors import NoAnswer


class UpdateOrder:
    """The turn of an update. asyncio locks are fair, so the updates keep their order."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()  # held by the update that is being sent

    @asynccontextmanager
    async def taken(self, deadline: float, failure: Callable[[], str]) -> AsyncIterator[None]:
        """Hold back later updates. `deadline` in the loop's time (s); infinite: none. `failure` returns the reason why
        the earlier update waits, "" if it is not known. Raises `NoAnswer`.
        """
        try:
            async with asyncio.timeout_at(None if deadline == math.inf else deadline):
                await self._lock.acquire()
        except TimeoutError:
            # The reason why the earlier update waits is also the reason for this one.
            raise NoAnswer(failure() or "an update before it is not answered", sent=False) from None
        try:
            yield
        finally:
            self._lock.release()
