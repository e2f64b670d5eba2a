"""Whether registered queries can go on: after a restart, and with the present permissions of their clients."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, Forbidden, NotReady
from edge.streams.processor.query_text import read_query_text
from edge.streams.processor.query_windows import QueryWindows
from edge.streams.processor.registered_queries import RegisteredQueries
from edge.streams.processor.rights import may_write
from edge.streams.running_query import RunningQuery
from edge.streams.store import StreamStore
from edge.streams.window_engine import WindowEngine
from edge.streams.window_graph import window_key

_log = logging.getLogger(__name__)


class Continuation:
    """Restores and reviews queries. One that cannot go on is kept with the state "failed"."""

    def __init__(
        self,
        store: StreamStore,
        engine: WindowEngine,
        queries: RegisteredQueries,
        windows: QueryWindows,
        rights: Callable[[Access], Access],
        origin: int,
    ) -> None:
        """`origin`: see `read_query_text`.
        `rights`: returns the current permissions of a client; raises `EdgeError` if it has none any more.
        """
        self._store = store
        self._engine = engine
        self._queries = queries
        self._windows = windows
        self._rights = rights
        self._origin = origin
        self._late: deque[RunningQuery] = deque()
        """Queries that have to begin later. The one that has waited longest for an attempt is first."""

    def restore(self) -> None:
        """Begin the queries of an earlier process.

        Each answer of the live graph can take long. So after the first one that does not come, queries that need the
        live graph are late without another attempt.
        """
        begins = self._store.windows()
        restored: list[RunningQuery] = []
        stored_queries = self._store.queries()
        for stored in stored_queries:
            try:
                query = RunningQuery(stored, read_query_text(stored.text, stored.begun, self._origin))
            except EdgeError as error:
                # Another version may have accepted it.
                _log.error("streams.query_unreadable", extra={"query": stored.name, "reason": error.description})
                continue
            query.is_late = True  # until it begins, so that its elements stay
            self._queries.add(query)
            self._queries.are_late = True
            restored.append(query)
        if len(restored) == len(stored_queries):
            self._forget_windows(restored, begins)
        busy = ""
        for query in restored:
            if busy and self._windows.asks_live_graph(query):
                query.failure = busy
            else:
                self._begin(query, begins)
            if query.is_late:
                busy = query.failure
                self._late.append(query)
            if query.failure:
                _log.warning("streams.query_failed", extra={"query": query.name, "reason": query.failure})
        self._queries.are_late = bool(self._late)

    def _forget_windows(self, queries: Iterable[RunningQuery], begins: dict[str, tuple[int, int]]) -> None:
        """Forget windows that no query has any more, because the window origin is another one.

        With the former origin, they would go on later as if they had not been away.
        """
        used = {window_key(window.definition) for query in queries for window in query.query.windows}
        unused = begins.keys() - used
        if unused:
            with self._store.transaction():
                for key in unused:
                    self._store.drop_window(key)

    def review(self) -> list[RunningQuery]:
        """Fail the registered queries whose clients have lost permissions. Returns them.

        The gates end the subscriptions of such clients themselves, which need another action. Also begins late
        queries.
        """
        self.begin_late()
        failed: list[RunningQuery] = []
        for query in self._queries.all():
            if query.failure or query.is_subscription:
                continue
            try:
                self._check_rights(query)
            except EdgeError as error:
                self._engine.unsubscribe(query.spuid)
                query.fail(error.description)
                failed.append(query)
        return failed

    def begin_late(self) -> bool:
        """Begin the queries that could not begin at the start, because the live graph was busy.

        Only until one has to wait again: no request is served meanwhile. The queries take turns. Returns whether
        queries are late.
        """
        while self._late:
            query = self._late.popleft()
            if self._queries.find(query.name) is query:
                self._begin(query, self._store.windows())
                # The live graph is still busy, so that the next query would wait as long.
                if query.is_late:
                    self._late.append(query)
                    break
        self._queries.are_late = bool(self._late)
        return self._queries.are_late

    def _begin(self, query: RunningQuery, begins: Mapping[str, tuple[int, int]]) -> None:
        try:
            self._check_rights(query)
            self._windows.begin(query, begins)
        except EdgeError as error:
            query.failure, query.is_late = error.description, isinstance(error, NotReady)
            if not query.is_late:
                self._windows.end(query)  # no element has to stay for it
        else:
            query.failure, query.is_late = "", False

    def _check_rights(self, query: RunningQuery) -> None:
        """Raise `EdgeError` if the client of a query was revoked, or has lost permissions that the query needs."""
        now, derived = self._rights(query.access), query.output_stream
        if now.read != query.access.read or (derived is not None and not may_write(now, derived)):
            raise Forbidden("The permissions of its client have changed; register it again")
