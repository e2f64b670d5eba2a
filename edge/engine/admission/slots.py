"""Slots of a queue: limits the waiting items of all clients, and of each client.

A client with waiting items may hold as many slots as it leaves free. So one client fills at most half of a queue, two
that flood it a third each, and the next client always finds room.
"""

from __future__ import annotations

from typing import Final

GATEWAY: Final = ""
"""Client name of the gateway itself. It has as many slots as all clients together, and clients cannot take them."""


class Slots:
    """Slots of one queue. Not thread-safe: the lock of the queue protects it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clients = 0
        """Slots held by all clients."""
        self.held: dict[str, int] = {}
        """Slots by client; clients without slots have no entry."""

    @property
    def taken(self) -> int:
        """Number of slots in use, including the gateway's own."""
        return self.clients + self.held.get(GATEWAY, 0)

    def take(self, client: str, slots: int) -> bool:
        """Take slots if the client may have them. An item larger than the whole queue fits an empty one."""
        held = self.held.get(client, 0)
        others = held if client == GATEWAY else self.clients
        free = self.limit - others
        # An item larger than the limit passes when no other slots are taken; it would wait forever otherwise.
        if (others and slots > free) or (held and client != GATEWAY and held + slots > free):
            return False
        self.held[client] = held + slots
        if client != GATEWAY:
            self.clients += slots
        return True

    def give_back(self, client: str, slots: int) -> None:
        """Free slots."""
        left = self.held[client] - slots
        if left:
            self.held[client] = left
        else:
            del self.held[client]
        if client != GATEWAY:
            self.clients -= slots
