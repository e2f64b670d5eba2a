"""Quota of a resource that all clients share: one client gets at most as much as it leaves to others."""

from __future__ import annotations

from edge.engine.admission.slots import Slots
from edge.protocol.errors import TooManyRequests


class Quota:
    """A bounded number of slots. Belongs to the event loop."""

    def __init__(self, limit: int, what: str, key: str, *, retry_after: int | None = None) -> None:
        """`what`: name of the resource; `key`: its setting; `retry_after`: seconds until a retry is useful."""
        self._slots = Slots(limit)
        self._what = what
        self._key = key
        self._retry_after = retry_after

    def take(self, who: str) -> None:
        """Take a slot for a client. Raises `TooManyRequests`."""
        slots = self._slots
        if not slots.take(who, 1):
            mine = slots.held(who)
            raise TooManyRequests(
                f"This client has {mine} {self._what}, and all clients together have {slots.taken} of {slots.limit} "
                f"({self._key}); one may have as many as it leaves to others. Try again later",
                retry_after=self._retry_after,
            )

    def release(self, who: str) -> None:
        """Release a slot of a client."""
        self._slots.give_back(who, 1)
