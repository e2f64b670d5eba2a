"""What all clients share: one takes as much of it as it leaves to others."""

from __future__ import annotations

from edge.engine.admission.slots import Slots
from edge.protocol.errors import TooManyRequests


class Quota:
    """So many of something. It belongs to the event loop."""

    def __init__(self, limit: int, what: str, key: str, *, retry_after: int | None = None) -> None:
        """`what` there are, and which setting says how many; when it is worth while to try again (s)."""
        self._places = Slots(limit)
        self._what = what
        self._key = key
        self._retry_after = retry_after

    def take(self, who: str) -> None:
        """A client has one more. Raises `TooManyRequests`."""
        places = self._places
        if not places.take(who, 1):
            mine = places.held.get(who, 0)
            raise TooManyRequests(
                f"This client has {mine} {self._what}, and all clients together have {places.taken} of {places.limit} "
                f"({self._key}); one may have as many as it leaves to others. Try again later",
                retry_after=self._retry_after,
            )

    def give_back(self, who: str) -> None:
        """It has one fewer."""
        self._places.give_back(who, 1)
