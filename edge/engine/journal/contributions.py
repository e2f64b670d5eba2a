"""Bytes of the graph that each client has added, less what it has removed, over restarts.

They are written with each snapshot, when the gateway stops, and with a commit once a client's have changed by `STEP`
since. So an update writes nothing for them as a rule, and a crash forgets less than one step of each client.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from edge.engine.journal.journal import Journal

STEP: Final = 1024 * 1024
"""Bytes that a client may add before they are written."""
_CLIENTS: Final = 10_000
"""Clients that are known; with more those that have added least are forgotten."""
_NAME: Final = "added:"
"""What their rows in the table `meta` begin with."""


class Contributions:
    """Bytes by client. It belongs to the writer's thread."""

    def __init__(self) -> None:
        self._added: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        """As written."""
        self._moved: set[str] = set()
        """Clients for whom a step has not been written."""

    def load(self, journal: Journal) -> None:
        """Take over what was written. What cannot be read counts as nothing: this is a limit, no data."""
        rows = journal.select("SELECT name, value FROM meta WHERE name >= ? AND name < ?", (_NAME, _AFTER))
        for name, value in rows:
            if value.isdecimal():
                self._stored[name.removeprefix(_NAME)] = int(value)
        self._added = dict(self._stored)

    def of(self, client: str) -> int:
        """What a client has added."""
        return self._added.get(client, 0)

    def add(self, client: str, size: int) -> None:
        """A client has added more, or removed something where it is negative."""
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
        """Whether there is something to write with the next commit."""
        return bool(self._moved)

    def write(self, connection: sqlite3.Connection, *, whole: bool = False) -> None:
        """Write what has moved by a step, or `whole`: all that has changed, in a transaction of the journal."""
        for client in self._unwritten() if whole else self._moved:
            if (added := self._added.get(client, 0)) > 0:
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_NAME + client, str(added)))
            else:
                connection.execute("DELETE FROM meta WHERE name = ?", (_NAME + client,))

    def written(self, *, whole: bool = False) -> None:
        """What `write` wrote is committed."""
        for client in self._unwritten() if whole else self._moved:
            if client in self._added:
                self._stored[client] = self._added[client]
            else:
                self._stored.pop(client, None)
        self._moved.clear()

    def close(self, journal: Journal) -> None:
        """Write what is left. Raises `StorageFailed`."""
        if self._unwritten():
            journal.commit([], lambda connection: self.write(connection, whole=True))
            self.written(whole=True)

    def _unwritten(self) -> set[str]:
        clients = {*self._added, *self._stored}
        return {client for client in clients if self._added.get(client, 0) != self._stored.get(client, 0)}


_AFTER: Final = "added;"
"""What comes after all of them."""
