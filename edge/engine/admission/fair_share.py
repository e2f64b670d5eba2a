"""Fair share: each client may hold as much of a limited resource as it leaves for others.

So one greedy client holds at most half of it, two hold a third each, and the next client always finds room.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final

GATEWAY: Final = ""
"""Client name of the gateway itself, and of all clients together where they are not distinguished."""


class FairShare:
    """Amounts that clients hold of a resource. Not thread-safe: the owner's lock protects it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        """Amount that all hold together."""
        self._held: dict[str, int] = {}
        """By client; clients that hold nothing have no entry."""

    def held(self, client: str) -> int:
        """Return the amount that a client holds."""
        return self._held.get(client, 0)

    def heaviest(self) -> tuple[str, int]:
        """Return the client that holds most, and its amount."""
        return max(self._held.items(), key=itemgetter(1), default=(GATEWAY, 0))

    def room(self, client: str) -> int:
        """Return how much more a client may hold. The gateway need not leave as much as it holds."""
        return self.limit - self.total - (self.held(client) if client != GATEWAY else 0)

    def add(self, client: str, amount: int) -> None:
        """Add to the amount that a client holds, even beyond its share; a negative amount releases."""
        self.total += amount
        held = self._held.get(client, 0) + amount
        if held:
            self._held[client] = held
        else:
            self._held.pop(client, None)
