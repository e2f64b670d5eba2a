"""Which queries use which windows: equal windows of several queries share their content."""

from __future__ import annotations

from collections.abc import Collection

from edge.streams.running_query import RunningQuery
from edge.streams.stream import Stream
from edge.streams.window_graph import WindowGraph


class WindowUsers:
    """The queries of each window in use."""

    def __init__(self) -> None:
        self._users: dict[WindowGraph, dict[RunningQuery, None]] = {}

    @property
    def windows(self) -> Collection[WindowGraph]:
        """All windows in use."""
        return self._users.keys()

    def add(self, window: WindowGraph, query: RunningQuery) -> None:
        """Let a query use a window."""
        self._users.setdefault(window, {})[query] = None

    def remove(self, window: WindowGraph, query: RunningQuery) -> bool:
        """Let a query use a window no more. Returns whether no other query uses it."""
        users = self._users[window]
        del users[query]
        if not users:
            del self._users[window]
        return not users

    def of(self, window: WindowGraph) -> Collection[RunningQuery]:
        """Return the queries of a window."""
        return self._users.get(window, {}).keys()

    def of_stream(self, stream: Stream) -> list[RunningQuery]:
        """Return the queries with a window on a stream."""
        return list(dict.fromkeys(query for window in stream.windows for query in self.of(window)))
