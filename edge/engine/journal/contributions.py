"""Contributions: bytes that each client has added to the graph, less those that it removed, across restarts.

They are written with each snapshot, at a stop, and with a commit after those of a client have changed by `STEP`. So
most updates write nothing for them, and a crash forgets less than one step of each client.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from edge.engine.journal.journal import Journal

STEP: Final = 1024 * 1024
"""Change in bytes from which a client's value is written with the next commit."""
_CLIENTS: Final = 10_000
"""Limit of tracked clients. Beyond it, those with the smallest contributions are dropped."""
_NAME: Final = "added:"
"""Prefix of the names of their rows in the table `meta`."""


class Contributions:
    """Contributions in bytes, by client. Only the writer thread uses it."""

    def __init__(self) -> None:
        self._added: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        """Values on disk."""
        self._moved: set[str] = set()
        """Clients whose value has changed by a step since it was written."""

    def load(self, journal: Journal) -> None:
        """Load the stored values. Unreadable ones are ignored: they serve a limit and are not data."""
        rows = journal.select("SELECT name, value FROM meta WHERE name >= ? AND name < ?", (_NAME, _AFTER))
        for name, value in rows:
            if value.isdecimal():
                self._stored[name.removeprefix(_NAME)] = int(value)
        self._added = dict(self._stored)

    def of(self, client: str) -> int:
        """Return the contribution of a client."""
        return self._added.get(client, 0)

    def add(self, client: str, size: int) -> None:
        """Add bytes to the contribution of a client; a negative `size` subtracts."""
        held = self._added.get(client, 0) + size
        if held > 0:
            if client not in self._added and len(self._added) >= _CLIENTS:
                self._forget()
            self._added[client] = held
        else:
            self._added.pop(client, None)
            held = 0
        if abs(held - self._stored.get(client, 0)) >= STEP:
            self._moved.add(client)
        else:
            self._moved.discard(client)

    def _forget(self) -> None:
        for client in sorted(self._added, key=self._added.__getitem__)[: _CLIENTS // 2]:
            del self._added[client]
            self._moved.discard(client)

    @property
    def changed(self) -> bool:
        """Whether there are values to write with the next commit."""
        return bool(self._moved)

    def write(self, connection: sqlite3.Connection, *, whole: bool = False) -> None:
        """Write the values that changed by a step in a transaction of the journal; with `whole` all changed ones."""
        for client in self._unwritten() if whole else self._moved:
            if (added := self._added.get(client, 0)) > 0:
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_NAME + client, str(added)))
            else:
                connection.execute("DELETE FROM meta WHERE name = ?", (_NAME + client,))

    def written(self, *, whole: bool = False) -> None:
        """Note that the written values are committed."""
        for client in self._unwritten() if whole else self._moved:
            if client in self._added:
                self._stored[client] = self._added[client]
            else:
                self._stored.pop(client, None)
        self._moved.clear()

    def close(self, journal: Journal) -> None:
        """Write the remaining values. Raises `StorageFailed`."""
        if self._unwritten():
            journal.commit([], lambda connection: self.write(connection, whole=True))
            self.written(whole=True)

    def _unwritten(self) -> set[str]:
        clients = {*self._added, *self._stored}
        return {client for client in clients if self._added.get(client, 0) != self._stored.get(client, 0)}


_AFTER: Final = "added;"
"""The first name after all names with that prefix, in the order of SQLite."""
