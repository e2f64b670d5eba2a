"""The registered queries, and those of subscribers."""

from __future__ import annotations

from typing import Final

from edge.engine.admission.fair_share import FairShare
from edge.protocol.access import Access
from edge.protocol.errors import NotFound
from edge.streams.processor.rights import check_owns, sees
from edge.streams.quota import check_quota
from edge.streams.running_query import RunningQuery
from edge.streams.stream import Stream

_NAMED: Final = 5
"""Queries that an error message names."""


class RegisteredQueries:
    """The queries by name."""

    def __init__(self, most: int) -> None:
        """`most`: number of queries of all clients together."""
        self._queries: dict[str, RunningQuery] = {}
        self._shares = FairShare(most)
        self.are_late = False
        """Whether some have yet to begin since the start (`RunningQuery.is_late`)."""

    def check_room(self, client: str) -> None:
        """Raise `TooManyRequests` if a client may have no further query."""
        check_quota(self._shares, client, "queries", "streams.max_queries")

    def add(self, query: RunningQuery) -> None:
        """Add a query."""
        self._queries[query.name] = query
        self._shares.add(query.access.client, 1)

    def remove(self, name: str) -> RunningQuery | None:
        """Remove a query; None: there is none."""
        query = self._queries.pop(name, None)
        if query is not None:
            self._shares.add(query.access.client, -1)
        return query

    def find(self, name: str) -> RunningQuery | None:
        """Return a query, for the gateway itself."""
        return self._queries.get(name)

    def all(self) -> list[RunningQuery]:
        """Return all queries."""
        return list(self._queries.values())

    def visible(self, access: Access) -> list[RunningQuery]:
        """Return the registered queries that the client may see."""
        return [query for query in self._queries.values() if not query.is_subscription and sees(query, access)]

    def get(self, name: str, access: Access) -> RunningQuery:
        """Return a query that the client may see: it may read all its streams. Raises `NotFound`."""
        query = self._queries.get(name)
        if query is None or query.is_subscription or not sees(query, access):
            raise NotFound(f'There is no query "{name}"; GET /queries lists them')
        return query

    def owned(self, name: str, access: Access) -> RunningQuery:
        """Return a query of the client, or any for administrators. Raises `NotFound`, `Forbidden`."""
        query = self.get(name, access)
        check_owns(query, access)
        return query

    def readers(self, stream: Stream, access: Access) -> str:
        """Name the queries that use a stream; empty for none. Those that the client may not see are only counted."""
        users = [
            query
            for query in self._queries.values()
            if any(window.definition.stream == stream.iri for window in query.query.windows)
        ]
        names = [query.name for query in users if not query.is_subscription and sees(query, access)][:_NAMED]
        if hidden := len(users) - len(names):
            names.append(f"{hidden} {'other ' if names else ''}{'query' if hidden == 1 else 'queries'}")
        return ", ".join(names)
