"""Slots of a queue: limits the waiting items of all clients, and of each client to its fair share."""

from __future__ import annotations

from edge.engine.admission.fair_share import GATEWAY, FairShare


class Slots:
    """Slots of one queue. Not thread-safe: the lock of the queue protects it.

    The gateway itself has as many slots as all clients together, and clients cannot take them.
    """

    def __init__(self, limit: int) -> None:
        self._clients = FairShare(limit)
        self._gateway = FairShare(limit)

    @property
    def limit(self) -> int:
        """Number of slots of all clients together."""
        return self._clients.limit

    @property
    def taken(self) -> int:
        """Number of slots in use, including the gateway's own."""
        return self._clients.total + self._gateway.total

    def held(self, client: str) -> int:
        """Return the number of slots that a client holds."""
        return self._pool(client).held(client)

    def take(self, client: str, slots: int) -> bool:
        """Take slots if the client may have them. An item larger than the whole queue fits an empty one."""
        pool = self._pool(client)
        # An item larger than the limit passes when no other slots are taken; it would wait forever otherwise.
        if pool.total and slots > pool.room(client):
            return False
        pool.add(client, slots)
        return True

    def give_back(self, client: str, slots: int) -> None:
        """Free slots."""
        self._pool(client).add(client, -slots)

    def _pool(self, client: str) -> FairShare:
        return self._gateway if client == GATEWAY else self._clients
