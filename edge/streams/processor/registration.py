"""Continuous queries that clients register, subscribe to, explain and end."""

from __future__ import annotations

import uuid

from edge.engine.requests import Delta
from edge.engine.subscriptions.explanation import Explanation
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest
from edge.streams.language import describe
from edge.streams.model import ContinuousQuery
from edge.streams.names import check_name, stream_iri
from edge.streams.processor.advance_in_progress import AdvanceInProgress
from edge.streams.processor.committer import Committer
from edge.streams.processor.query_text import read_query_text
from edge.streams.processor.query_windows import QueryWindows
from edge.streams.processor.registered_queries import RegisteredQueries
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.rights import check_writes, reads
from edge.streams.processor.window_advance import WindowAdvance
from edge.streams.processor.window_clock import WindowClock
from edge.streams.processor.window_users import WindowUsers
from edge.streams.running_query import RunningQuery
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore
from edge.streams.stored_rows import StoredQuery
from edge.streams.stream import Stream
from edge.streams.window_engine import WindowEngine
from edge.streams.window_graph import GRAPHS


class QueryRegistration:
    """Adds queries and removes them."""

    def __init__(
        self,
        settings: StreamSettings,
        store: StreamStore,
        engine: WindowEngine,
        queries: RegisteredQueries,
        streams: RegisteredStreams,
        users: WindowUsers,
        windows: QueryWindows,
        committer: Committer,
        window_advance: WindowAdvance,
        clock: WindowClock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._queries = queries
        self._streams = streams
        self._users = users
        self._windows = windows
        self._committer = committer
        self._window_advance = window_advance
        self._clock = clock

    def register(self, name: str, text: str, access: Access, now: int) -> RunningQuery:
        """Register a query and start it.

        Raises `ParsingFailed`, `InvalidRequest` (among others, if a stream is not registered), `Forbidden`,
        `TooManyRequests`, `StorageFailed`, and errors of the subscription. Raises `AdvanceInProgress` if it has to
        wait: see `QueryWindows.depends_on_slide`.
        """
        check_name(name)
        now = self._window_advance.begin_time(now)
        if not self._window_advance.is_advancing:
            # Its first reports come after this time, also if the process ends at once.
            self._committer.commit()
        parsed_query = self._read(text, now)
        self._check_registration(name, parsed_query, access)
        stored = StoredQuery(name, text, access, now, False, 0, now, uuid.uuid4().hex)
        query = RunningQuery(stored, parsed_query)
        if self._window_advance.is_advancing and self._windows.depends_on_slide(query):
            raise AdvanceInProgress
        derived = query.output_stream
        if derived is not None:
            check_writes(access, derived)
            if derived in self._streams.by_iri:
                raise InvalidRequest(f"The stream {derived} exists already; end it first, or choose another name")
        self._windows.begin(query, None)
        try:
            output = self._store_query(query, stored)
        except BaseException:
            self._windows.end(query)
            raise
        query.unsaved.clear()
        if output is not None:
            self._streams.enter(output)
        self._queries.add(query)
        return query

    def _store_query(self, query: RunningQuery, stored: StoredQuery) -> Stream | None:
        """Store a query that has begun. Returns the stream of its results; None if they are not graphs."""
        output = None
        with self._store.transaction():
            self._store.put_query(stored)
            if query.output_stream is not None:
                output = Stream(self._store.put_stream(query.output_stream, query.access.client, 0, query.name))
            for window in query.windows:
                source = self._streams.by_iri[window.definition.stream]
                self._store.add(source.id, source.number, ())
                self._store.put_window(window.key, window.begin, window.first)
            self._store.change_result(query.name, query.unsaved)
        return output

    def subscribe(self, text: str, access: Access, now: int) -> tuple[RunningQuery, Delta]:
        """Start a query for one subscriber, and return its first result. It ends with `unsubscribe`, or the process.

        Raises the errors of `register`. Raises `AdvanceInProgress` during a slide or corrections: the first result
        would be that of a part.
        """
        self._window_advance.begin_time(now)
        if self._window_advance.is_advancing:
            raise AdvanceInProgress
        now = max(now, self._clock.time)
        parsed_query = self._read(text, now)
        self._check_windows(parsed_query, access)
        name = f"urn:uuid:{uuid.uuid4()}"
        query = RunningQuery(StoredQuery(name, text, access, now, False, 0, now), parsed_query, is_subscription=True)
        self._queries.add(query)
        try:
            first = self._windows.begin(query, None)
        except BaseException:
            self._queries.remove(name)
            raise
        return query, first

    def unsubscribe(self, name: str) -> None:
        """End a query of one subscriber. Does nothing if it has ended."""
        query = self._queries.remove(name)
        if query is not None:
            self._windows.end(query)
            self._committer.forget_query(query)

    def explain(self, text: str, access: Access, now: int) -> tuple[str, Explanation]:
        """Return a description of the windows of a query, and how it would be evaluated. Raises as `register`."""
        parsed_query = self._read(text, max(now, self._clock.time))
        self._check_windows(parsed_query, access)
        query = RunningQuery(StoredQuery(parsed_query.name, text, access, now, False, 0, now), parsed_query)
        windows = [self._engine.find(window.definition) for window in parsed_query.windows]
        graphs = [f"{GRAPHS}{number}" if each is None else each.graph.value for number, each in enumerate(windows)]
        return describe(parsed_query), self._engine.explain(access.read, query.request(graphs))

    def unregister(self, name: str, access: Access) -> None:
        """End a query, with its stream and its observers. Raises `NotFound`, `Forbidden`, `InvalidRequest`."""
        query = self._queries.owned(name, access)
        derived = self._streams.by_iri.get(query.output_stream or "")
        if derived is not None and (readers := self._queries.readers(derived, access)):
            raise InvalidRequest(f"Its results are used by {readers}; end these queries first")
        with self._store.transaction():
            self._store.drop_query(name)
            if derived is not None:
                self._store.drop_stream(derived.id)
            for window in query.windows:
                if len(self._users.of(window)) == 1:
                    self._store.drop_window(window.key)
        self._queries.remove(name)
        if derived is not None:
            self._streams.leave(derived)
        self._windows.end(query)
        self._committer.forget_query(query)

    def pause(self, name: str, access: Access, *, paused: bool) -> None:
        """Pause a query or let it go on. Raises `NotFound`, `Forbidden`, `StorageFailed`."""
        query = self._queries.owned(name, access)
        with self._store.transaction():
            self._store.pause(name, paused=paused)
        query.paused = paused

    def _read(self, text: str, now: int) -> ContinuousQuery:
        return read_query_text(text, now, self._settings.origin)

    def _check_registration(self, name: str, query: ContinuousQuery, access: Access) -> None:
        if query.name not in (name, stream_iri(name)):
            raise InvalidRequest(
                f'The query is called "{query.name}" in its text, and "{name}" in the request; use one'
            )
        if self._queries.find(name) is not None:
            raise InvalidRequest(f'The query "{name}" exists already; end it first: DELETE /queries/{name}')
        self._check_windows(query, access)

    def _check_windows(self, query: ContinuousQuery, access: Access) -> None:
        self._queries.check_room(access.client)
        for window in query.windows:
            stream = self._streams.by_iri.get(window.definition.stream)
            if stream is None or not reads(access, stream.iri):
                raise InvalidRequest(
                    f"The stream {window.definition.stream} is not registered; register it first: PUT /streams/{{id}}"
                )
