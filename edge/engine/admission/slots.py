"""Places in a queue: how many may wait, and how many of one client.

Who has something waiting may have as many places as are left for others. So one client fills half of a queue at the
most, two that flood it a third each, and whoever comes next finds room.
"""

from __future__ import annotations

from typing import Final

GATEWAY: Final = ""
"""Who asks where it is the gateway itself: it has as many places as all clients together, and they cannot fill them."""


class Slots:
    """The places of one queue. It belongs to whoever holds the queue's lock."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clients = 0
        """Places that all clients have."""
        self.held: dict[str, int] = {}
        """Places by client; none that has none."""

    @property
    def taken(self) -> int:
        """Places that are taken, the gateway's own among them."""
        return self.clients + self.held.get(GATEWAY, 0)

    def take(self, who: str, places: int) -> bool:
        """Take places if there are so many for this client. What is longer than the queue gets an empty one."""
        held = self.held.get(who, 0)
        others = held if who == GATEWAY else self.clients
        free = self.limit - others
        if (others and places > free) or (held and who != GATEWAY and held + places > free):
            return False
        self.held[who] = held + places
        if who != GATEWAY:
            self.clients += places
        return True

    def give_back(self, who: str, places: int) -> None:
        """Places are free again."""
        left = self.held[who] - places
        if left:
            self.held[who] = left
        else:
            del self.held[who]
        if who != GATEWAY:
            self.clients -= places
