"""Slots for queries that run at the same time."""

from __future__ import annotations

from collections import Counter


class QuerySlots:
    """At most `most` queries, and at most `each` of one client. A client without a name has no limit of its own."""

    def __init__(self, most: int, each: int) -> None:
        self._most = most
        self._each = each
        self._taken: Counter[str | None] = Counter()

    def take(self, client: str | None) -> str:
        """Take a slot. Returns an empty text, or the reason why all are taken."""
        if client is not None and self._taken[client] >= self._each:
            return f"{client} already has {self._each} queries, the limit of one client"
        if self._taken.total() >= self._most:
            return f"{self._most} queries (--max-queries) are running"
        self._taken[client] += 1
        return ""

    def free(self, client: str | None) -> None:
        """Return a slot."""
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]
