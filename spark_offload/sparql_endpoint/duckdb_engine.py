"""Queries in DuckDB, in this process and without Java."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from spark_offload.compat import connect_client
from spark_offload.embedded.client import new_database
from spark_offload.embedded.history import EmbeddedHistory
from spark_offload.embedded.session import embedded_session
from spark_offload.embedded.table_files import open_files

if TYPE_CHECKING:
    from spark_offload.live import GatewayEndpoint


class DuckDbEngine:
    """DuckDB. Queries share the memory and the threads of a database, and each has a connection.

    The whole process must be in `connect_mode`.
    """

    largest = 60
    """Maximum size of a query. DuckDB plans a join of 60 patterns for several seconds, and of 120 for half a minute."""

    def __init__(self, table: str, live: Iterable[GatewayEndpoint] = ()) -> None:
        """Open a table. Raises `MissingPart`, `TableRefused`, `EngineRefused`."""
        self._table = table
        self._live = tuple(live)
        self._histories: dict[str, EmbeddedHistory] = {}
        self._database = new_database()
        with self.query("opening"):
            pass  # the table can be read

    def alive(self) -> bool:
        """Return True: it runs as long as this process."""
        return True

    @contextlib.contextmanager
    def query(self, identifier: str) -> Iterator[EmbeddedHistory]:
        """Return the newest version of the history. Raises `TableRefused`, `EngineRefused`."""
        session = embedded_session(self._database.cursor())
        try:
            found = EmbeddedHistory(open_files(session, self._table), live=self._live)
            self._histories[identifier] = found
            yield found
        finally:
            self._histories.pop(identifier, None)
            connect_client(session).close()

    def cancel(self, identifier: str) -> None:
        """Interrupt a query."""
        import duckdb

        if found := self._histories.get(identifier):
            with contextlib.suppress(duckdb.ConnectionException):  # it has ended meanwhile
                found.interrupt()
